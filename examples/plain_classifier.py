"""A rare class in a plain PyTorch loop: batch-level dice over micro-batches, exactly.

python examples/plain_classifier.py --loss ce+dice
"""

import argparse

import torch
from torch import nn

from softf1.losses import WindowLoss, backward_exact, make_loss, prior_bias
from softf1.metrics.classification import count_classes_ids


def make_rows(count, seed):
    """Return points of which those far out in one corner, about 3%, are the rare class."""
    x = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, :2].sum(1) > 2.6).long()


def main(*, name="ce+dice", epochs=20, accumulate=4):
    """Train and return the F1 of the rare class on unseen rows."""
    torch.manual_seed(0)
    x, y = make_rows(2048, 1)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    model[-1].bias.data = prior_bias(y.bincount())  # start at the class prior
    options = {"dice": {"over": "batch"}} if "+" in name else {}
    window = WindowLoss(make_loss(name, **options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        for rows in torch.randperm(len(x)).split(128):  # one optimizer step
            optimizer.zero_grad()
            value = backward_exact(
                window, lambda part: (model(x[part]), y[part]), rows.chunk(accumulate)
            )
            optimizer.step()
        print(f"epoch {epoch + 1}: loss of the last step {value:.4f}", flush=True)
    return evaluate(model)


@torch.no_grad()
def evaluate(model):
    """Return the F1 of the rare class on rows that were not trained on."""
    x, y = make_rows(2048, 2)
    return count_classes_ids(y, model(x).argmax(-1), labels=["usual", "rare"])["rare"].f


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", default="ce+dice", help="such as ce, focal, dice, ce+dice")
    print(f"F1 {main(name=parser.parse_args().loss):.3f}")
