"""A run folder as training leaves it, of a model that knows a few words by heart."""

import pytest
import torch

from softf1.data.examples import TaggedSentence
from softf1.models.encoders import make_tokenizer
from softf1.recipe import build_recipe, format_recipe
from softf1.tasks import make_task
from softf1.training.evaluation import write_predictions
from softf1.training.publish import publish_model

TAGS = {"Ann": "B-PER", "Bob": "B-PER", "Oslo": "B-LOC", "ran": "O", "to": "O", ".": "O"}
SENTENCES = ["Ann ran .", "Bob ran to Oslo .", "Ann ran to Bob .", "Oslo ran to Ann"]


def tagged(text, line=1):
    words = text.split()
    return TaggedSentence(tuple(words), tuple(TAGS[word] for word in words), line)


def as_columns(sentences):
    return "".join(
        "".join(f"{word} {TAGS[word]}\n" for word in text.split()) + "\n" for text in sentences
    )


@pytest.fixture(scope="session")
def trained():
    """Task, tokenizer and a tagger that has learned `TAGS`."""
    examples = [tagged(text) for text in SENTENCES]
    task = make_task("tagging", format="conll")
    tokenizer = make_tokenizer("bilstm", task.texts(examples))
    features = task.encode(examples, tokenizer)
    task = task.fit(features)
    torch.manual_seed(0)
    model = task.build_model("bilstm", tokenizer, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    batch = task.collate(features, range(len(features)), tokenizer)
    for _ in range(30):
        logits = task.logits(model.train()(**batch.inputs), batch)["tags"]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch.targets["tags"].flatten()
        ).backward()
        optimizer.step()
    return model.eval(), task, tokenizer


@pytest.fixture
def run(trained, tmp_path):
    """The run folder; its test file is beside it."""
    model, task, tokenizer = trained
    data = {"kind": "tagging", "format": "conll"}
    for name, sentences in (("train", SENTENCES), ("test", SENTENCES[1:3])):
        path = tmp_path / f"{name}.txt"
        path.write_text(as_columns(sentences))
        data[name] = str(path)
    recipe = build_recipe(
        {"name": "names", "task": data | {"dev_share": 0.5}, "encoder": {"name": "bilstm"}}
    )
    folder = tmp_path / "run"
    publish_model(
        folder / "model", model=model, task=task, tokenizer=tokenizer, recipe=recipe, result={}
    )
    (folder / "recipe.toml").write_text(format_recipe(recipe))
    (folder / "result.json").write_text('{"schema": 1}\n')
    write_predictions(folder / "predictions.test.jsonl", task, [], [])
    return folder
