"""Nested spans from a file to a report, as a user goes: new, train, compare, report, predict."""

import json
from pathlib import Path

import pytest

from softf1.cli.main import main
from softf1.data import mrc, read
from softf1.data.stats import look_over
from softf1.recipe import read_recipe
from softf1.scaffold import propose_recipe

PLACES = ("paris", "graz", "oslo", "lima")
FRAMES = (
    ("ann is at the university of {} now", [(4, 7, "ORG"), (6, 7, "LOC")]),
    ("the bank of {} is the work", [(1, 4, "ORG"), (3, 4, "LOC")]),
    ("bob visits {} for the day", [(2, 3, "LOC")]),
    ("it was the day in the north", []),
)
SMALL = ["train.epochs=2", "train.lr=0.005", "task.max_span=6"]


def write(name, sentences=16, frames=FRAMES):
    lines = []
    for number in range(sentences):
        text, spans = frames[number % len(frames)]
        words = text.format(PLACES[number // 4 % 4]).split()
        lines.append({"words": words, "entities": [list(span) for span in spans]})
    Path(name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return name


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train", "dev", "test"):
        write(f"{name}.jsonl")


def read_lines(name):
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def run(capsys, *words, code=0):
    assert main(list(words)) == code
    return capsys.readouterr()


TASKS = {
    "span_ner": ((), [[[4, 7, "ORG"], [6, 7, "LOC"]]], 1),
    "mrc_ner": (("--task", "mrc_ner"), [[[6, 7]], [[4, 7]]], 2),
}
"""How to ask for each, the gold spans of its first lines, and how many lines a sentence has."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", TASKS)
def test_from_a_file_to_a_report(kind, bert, capsys):
    asked, gold, rows = TASKS[kind]
    files = [f"{name}.jsonl" for name in ("train", "dev", "test")]
    run(capsys, "new", *files, *asked, "--out", "nested.toml", "--encoder", str(bert))
    recipe = read_recipe("nested.toml")
    assert recipe.task.kind == kind
    assert recipe.task.options["nested"] is True
    queries = recipe.task.options.get("queries", {})
    assert set(queries) == ({"LOC", "ORG"} if kind == "mrc_ner" else set())

    run(capsys, "train", "nested.toml", *SMALL, "loss.name=ce", "--out", "run", "--quiet")
    result = json.loads(Path("run/result.json").read_text())
    assert result["scores"]["test"]["labels"]["LOC"]["support"] == 12  # inner ones are gold too
    lines = read_lines("run/predictions.test.jsonl")
    assert [line["gold"] for line in lines[:rows]] == gold

    said = run(capsys, "evaluate", "run", "--data", "test.jsonl").out
    assert f"test.jsonl: {16 * rows} examples" in said
    assert "Right boundaries" in run(capsys, "headroom", "run").out
    run(capsys, "predict", "run", "test.jsonl", "--out", "found.jsonl")
    found = read_lines("found.jsonl")
    assert [line["spans"] for line in found] == [line["spans"] for line in lines]
    Path("plain.txt").write_text("the bank of rome is closed\n")
    run(capsys, "predict", "run", "plain.txt", "--format", "plain", "--out", "plain.jsonl")
    assert len(read_lines("plain.jsonl")) == rows

    run(
        capsys,
        *("compare", "nested.toml", "--losses", "ce,dice", "--seeds", "2", "--no-controls"),
        *("--tune", "none", "--out", "compared", *SMALL),
    )
    run(capsys, "report", "compared")
    page = Path("compared/report.html").read_text()
    assert "dice" in page
    assert "ORG" in page


def test_new_says_why_and_looks_at_all_files():
    made = propose_recipe(["train.jsonl"])
    said = "8 of 20 spans lie inside another or cross one, but a word has one tag"
    assert f"nested = true               # {said}" in made.text
    flat = write("train-flat.jsonl", frames=FRAMES[2:])
    assert propose_recipe([flat]).recipe.task.kind == "tagging"
    both = propose_recipe([flat, "dev.jsonl"])  # of dev, the tagger could find the outer ones only
    assert (both.recipe.task.kind, both.recipe.task.options["nested"]) == ("span_ner", True)


def test_new_sees_nested_spans_of_query_files():
    sentences = read("train.jsonl").examples
    mrc.write("train.json", mrc.from_tagged(sentences, {"ORG": "which one?", "LOC": "where?"}))
    assert look_over("train.json").counts.nested == 8
    assert propose_recipe(["train.json"]).recipe.task.options["nested"] is True
    flat = [one for one in sentences if len(one.spans) < 2]
    mrc.write("flat.json", mrc.from_tagged(flat, {"ORG": "which one?", "LOC": "where?"}))
    assert "nested" not in propose_recipe(["flat.json"]).recipe.task.options


FLAT = (
    '[task]\nkind = "tagging"\ntrain = "{train}"\ntest = "test.jsonl"\n[encoder]\nname = "bilstm"\n'
)


@pytest.mark.parametrize(
    ("train", "place"), [("train.jsonl", "train.jsonl:1"), ("flat.jsonl", "test.jsonl:1")]
)
def test_a_flat_tagger_refuses_them_before_training(train, place, capsys):
    write("flat.jsonl", frames=FRAMES[2:])
    Path("flat.toml").write_text(FLAT.format(train=train))
    said = run(capsys, "train", "flat.toml", "--out", "run", code=2).err
    assert said.count("\n") == 1
    assert f"{place}: wanted spans that do not overlap, since a word has one tag" in said
    assert 'task kind "mrc_ner" or "span_ner" with nested = true' in said
    assert not Path("run").exists()
    said = run(capsys, "new", "train.jsonl", "--task", "tagging", "--out", "-", code=2).err
    assert said.count("\n") == 1
    assert (
        "8 of 20 spans lie inside another or cross one; --task span_ner or mrc_ner finds them"
        in said
    )


def test_flat_spans_train_a_tagger(capsys):
    write("test.jsonl", frames=FRAMES[2:])
    write("flat.jsonl", frames=FRAMES[2:])
    Path("flat.toml").write_text(FLAT.format(train="flat.jsonl") + "[train]\nepochs = 1\n")
    run(capsys, "train", "flat.toml", "--out", "run", "--quiet")
    result = json.loads(Path("run/result.json").read_text())
    assert result["scores"]["test"]["labels"]["LOC"]["support"] == 8


def test_stats_print_how_many_are_nested(capsys):
    assert (
        "\n8 of 20 spans lie inside another or cross one\n"
        in run(capsys, "stats", "train.jsonl").out
    )
    (stats,) = json.loads(run(capsys, "stats", "train.jsonl", "--json").out)["files"]
    assert (stats["spans"], stats["nested"]) == (20, 8)


@pytest.mark.slow
def test_suspects_come_from_a_span_classifier(bert, capsys):
    """Whoever asks for another task is told which one finds them."""
    how = ["--encoder", str(bert), "--folds", "2", "--epochs", "1", "--quiet", "--out", "checked"]
    words = ["suspects", "train.jsonl", *how]
    for task in ("mrc_ner", "tagging"):
        assert "span_ner" in run(capsys, *words, "--task", task, code=2).err
    run(capsys, *words)
    found = json.loads(Path("checked/suspects.json").read_text())
    assert (found["task"], found["examples"]) == ("span_ner", 16)
    assert "extra span" in found["kinds"]  # after a step the model finds hardly any span
