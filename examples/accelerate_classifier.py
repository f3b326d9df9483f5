"""A rare class with accelerate: the same steps on one GPU and on many.

python examples/accelerate_classifier.py
accelerate launch --num-processes 2 examples/accelerate_classifier.py
"""

from itertools import islice

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from softf1.losses import WindowLoss, backward_exact, make_loss
from softf1.metrics.classification import count_classes_ids

STEP = 128  # rows in an optimizer step, over all processes


def make_rows(count, seed):
    """Return points of which those far out in one corner, about 3%, are the rare class."""
    x = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, :2].sum(1) > 2.6).long()


def main(*, epochs=20, micro_batch=16):
    """Train and return the F1 of the rare class on unseen rows."""
    torch.manual_seed(0)
    accelerator = Accelerator()  # leave its gradient_accumulation_steps at 1
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    loader = DataLoader(TensorDataset(*make_rows(2048, 1)), batch_size=micro_batch, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    window = WindowLoss(make_loss("ce+dice", dice={"over": "batch"}))
    accumulate = STEP // (micro_batch * accelerator.num_processes)
    for epoch in range(epochs):
        batches = iter(loader)
        while micro_batches := list(islice(batches, accumulate)):
            optimizer.zero_grad()
            value = backward_exact(
                window,
                lambda batch: (model(batch[0]), batch[1]),
                micro_batches,
                backward=accelerator.backward,
                no_sync=lambda: accelerator.no_sync(model),
            )
            optimizer.step()
        accelerator.print(f"epoch {epoch + 1}: loss of the last step {value:.4f}")
    x, y = make_rows(2048, 2)
    with torch.no_grad():
        predicted = model(x.to(accelerator.device)).argmax(-1).cpu()
    return count_classes_ids(y, predicted, labels=["usual", "rare"])["rare"].f


if __name__ == "__main__":
    print(f"F1 {main():.3f}")
