"""Train a tagger with any loss in a plain PyTorch loop; `train` and `evaluate` know no task.

python examples/train_tagger.py train.txt dev.txt --encoder minilm --loss ce+dice --lr 2e-4
python examples/train_tagger.py train.txt dev.txt --encoder bilstm --loss focal
"""

import argparse

import torch

from softf1.losses import make_loss, prior_bias
from softf1.models.encoders import make_tokenizer
from softf1.tasks import join, make_task


def train(task, examples, dev, *, encoder, loss, epochs=5, lr=1e-3, size=32):
    """Train a task's model; return fitted task, model, tokenizer and the last dev scores."""
    tokenizer = make_tokenizer(encoder, task.texts(examples))
    features = task.encode(examples, tokenizer)
    task = task.fit(features)
    model = task.build_model(encoder, tokenizer)
    for key, counts in task.class_counts(features).items():  # start at the class prior
        layer, rows = task.heads(model)[key]
        layer.bias.data[rows] = prior_bias(counts, sigmoid=counts.ndim == 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for epoch in range(epochs):
        for items in torch.randperm(len(features)).split(size):
            batch = task.collate(features, items.tolist(), tokenizer, epoch=epoch)
            logits = task.logits(model.train()(**batch.inputs), batch)
            optimizer.zero_grad()
            sum(loss(logits[key], target) for key, target in batch.targets.items()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        scores = evaluate(task, model, dev, tokenizer)
        print(f"epoch {epoch + 1}: {task.primary_metric} {scores[task.primary_metric]:.4f}")
    return task, model, tokenizer, scores


@torch.no_grad()
def evaluate(task, model, examples, tokenizer, *, size=64):
    """Score all examples."""
    features, found = task.encode(examples, tokenizer), []
    for items in torch.from_numpy(features["length"]).argsort().split(size):  # little padding
        batch = task.collate(features, items.tolist(), tokenizer)
        found.append(task.gather(task.logits(model.eval()(**batch.inputs), batch), batch))
    return task.score(task.decode(join(found), features, examples), examples)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs=2, help="training and dev file; the format is detected")
    parser.add_argument("--encoder", default="bilstm", help="a Hub name, a folder, minilm, bilstm")
    parser.add_argument("--loss", default="ce", help="such as ce, focal, dice, dsc, ce+dice")
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    torch.manual_seed(0)
    task = make_task("tagging")
    files = [list(task.read(path)) for path in options.files]
    train(task, *files, encoder=options.encoder, loss=make_loss(options.loss), lr=options.lr)
