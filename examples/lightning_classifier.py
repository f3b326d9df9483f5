"""A rare class with Lightning: batch-level dice over 4 micro-batches a step.

python examples/lightning_classifier.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from softf1.integrations.lightning import ExactLossMixin
from softf1.losses import WindowLoss, make_loss
from softf1.metrics.classification import count_classes_ids

try:
    from lightning.pytorch import LightningModule, Trainer
except ImportError:
    from pytorch_lightning import LightningModule, Trainer


def make_rows(count, seed):
    """Return points of which those far out in one corner, about 3%, are the rare class."""
    x = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, :2].sum(1) > 2.6).long()


class Classifier(ExactLossMixin, LightningModule):
    """The mixin writes `training_step`; a module writes what it would have in it."""

    accumulate = 4
    clip = 1.0

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
        self.window = WindowLoss(make_loss("ce+dice", dice={"over": "batch"}))

    def predict_batch(self, batch):
        """Return logits and target."""
        return self.body(batch[0]), batch[1]

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main(*, epochs=20, **options):
    """Train and return the F1 of the rare class on unseen rows."""
    torch.manual_seed(0)
    model = Classifier()
    trainer = Trainer(max_epochs=epochs, logger=False, enable_checkpointing=False, **options)
    trainer.fit(model, DataLoader(TensorDataset(*make_rows(2048, 1)), batch_size=32, shuffle=True))
    x, y = make_rows(2048, 2)
    with torch.no_grad():
        predicted = model.cpu().body(x).argmax(-1)
    return count_classes_ids(y, predicted, labels=["usual", "rare"])["rare"].f


if __name__ == "__main__":
    print(f"F1 {main():.3f}")
