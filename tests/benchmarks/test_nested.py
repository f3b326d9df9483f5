"""Nested data made of flat data, and the systems that are compared on it."""

import json
import shutil
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from softf1.experiments.grid import Done
from softf1.metrics.schemes import count_nested
from softf1.recipe import build_recipe
from softf1.training.run import train_run
from tests.pages import ROOT
from tests.tasks.conftest import bert

sys.path.insert(0, str(ROOT / "benchmarks"))

import nested

__all__ = ["bert"]

LINES = """
-DOCSTART- -X- O O

the DT I-NP O
new JJ I-NP O
British NNP I-NP I-ORG
Rail NNP I-NP I-ORG
chief NN I-NP O
left VBD I-VP O
London NNP I-NP I-LOC

British NNP I-NP I-MISC
tea NN I-NP O
, , O O
British NNP I-NP I-MISC
, , O O
BRITISH NNP I-NP I-MISC

Rail NNP I-NP I-ORG
and CC O O
Rail NNP I-NP I-ORG
""".lstrip()


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "data/conll03"
    folder.mkdir(parents=True)
    for name in nested.PARTS.values():
        (folder / name).write_text(LINES, "utf-8")
    return tmp_path


def test_phrases_and_inner_names_are_added_by_the_rules(work, capsys):
    first, second, third = nested.make_data(work)
    # "British" is a MISC 9 times in the three parts; "Rail" is an ORG, as the name around it
    assert first.layers == {
        "phrases": [(0, 5, "PHRASE")],
        "names": [(2, 4, "ORG"), (6, 7, "LOC")],
        "inner": [(2, 3, "MISC")],
    }
    assert first.spans == [(0, 5, "PHRASE"), (2, 3, "MISC"), (2, 4, "ORG"), (6, 7, "LOC")]
    assert second.layers["phrases"] == [(0, 2, "PHRASE")]  # not those that are a name and no more
    assert third.layers == {"phrases": [], "names": [(0, 1, "ORG"), (2, 3, "ORG")], "inner": []}
    assert "10 spans: {'phrases': 2, 'names': 7, 'inner': 1}" in capsys.readouterr().out
    files = {
        name: [json.loads(line) for line in path.read_text().splitlines()]
        for name in ("nested", "outer", *nested.LAYERS)
        for path in [work / f"data/nested/{name}/test.jsonl"]
    }
    assert [len(rows) for rows in files.values()] == [3] * 5
    assert files["outer"][0]["entities"] == [[0, 5, "PHRASE"], [6, 7, "LOC"]]
    for name in ("outer", *nested.LAYERS):
        assert not any(count_nested(map(tuple, row["entities"])) for row in files[name])


def test_a_rare_name_and_one_of_another_kind_are_no_inner_names():
    names = nested.count_names([[[w, "", "O", t] for w, t in (("Rome", "I-LOC"), ("x", "O"))]] * 2)
    words = ["Rome", "Press"]
    assert not nested.find_inner(words, (0, 2, "ORG"), names)  # twice only
    names["rome",]["LOC"] += 1
    assert nested.find_inner(words, (0, 2, "ORG"), names) == [(0, 1, "LOC")]
    assert not nested.find_inner(words, (0, 2, "LOC"), names)  # the same label
    assert not nested.find_inner(words, (0, 2, "PER"), names)  # "Jordan" in a person's name
    names["rome",]["PER"] += 3
    assert not nested.find_inner(words, (0, 2, "ORG"), names)  # a LOC in half of the cases


def test_scores_are_of_all_spans():
    layers = {"phrases": [(0, 5, "PHRASE")], "names": [(2, 4, "ORG")], "inner": [(2, 3, "MISC")]}
    test = [nested.Sentence(["w"] * 5, layers)]
    found = nested.score(test, [{(0, 5, "PHRASE"), (2, 4, "ORG"), (4, 5, "LOC")}])
    # 2 of 3 found, 2 of 3 right; of names 1 of 2 found, 1 of 2 right
    assert [found[key] for key in ("precision", "recall", "f1")] == pytest.approx([2 / 3] * 3, 1e-5)
    assert (found["phrase_f1"], found["name_f1"], found["inner_recall"]) == (1, 0.5, 0)
    assert (found["spans"], found["nested"], found["inner"]) == (3, 2, 1)
    assert nested.score(test, [set(test[0].spans)])["inner_recall"] == 1


class Inline:
    """Trains in this process."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, jobs):
        for job in jobs:
            result = train_run(build_recipe(job.recipe), job.folder, quiet=True)
            yield Done(job.id, result)

    def close(self):
        pass


def test_all_systems_are_trained_and_scored(work, bert, tmp_path, monkeypatch):
    shutil.copytree(bert, work / "encoders/en")
    monkeypatch.setattr(nested, "Pool", Inline)
    short = {"task.max_query": 8}  # the tiny encoder has 64 positions
    for name in ("BERT-MRC, judges pairs", "BERT-MRC"):
        parts = [part._replace(values=part.values | short) for part in nested.SYSTEMS[name]]
        monkeypatch.setitem(nested.SYSTEMS, name, parts)
    options = Namespace(
        work=work, out=tmp_path / "nested.csv", runs=str(tmp_path / "runs"), jobs=1, seeds=1,
        loss="ce", systems=[*nested.SYSTEMS], values=["train.max_steps=1", "task.max_length=48"],
    )  # fmt: skip
    nested.run(options)
    rows = nested.read_csv(options.out)
    assert [row["system"] for row in rows] == [*nested.SYSTEMS]
    assert all(0 <= float(row["f1"]) <= 1 and row["spans"] == "10" for row in rows)
    options.systems = [*nested.SYSTEMS][1:]
    nested.run(options)  # what is trained is not trained again, and other rows stay
    assert nested.read_csv(options.out) == rows
    table = nested.make_table(options.out).splitlines()
    assert sum(line.startswith("| ") for line in table) == 2 + len(nested.SYSTEMS)
    assert table[-1].startswith(
        "Test: 10 spans, 3 of them overlapping, 1 entities inside entities."
    )


def test_predictions_of_other_sentences_are_refused(tmp_path):
    line = {"words": ["other"], "tags": ["O"]}
    (tmp_path / "predictions.test.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    test = [nested.Sentence(["w"], {key: [] for key in nested.LAYERS})]
    with pytest.raises(SystemExit, match="line 1 is not of test sentence 1"):
        nested.read_spans(Path(tmp_path), test)


def test_the_table_of_the_page_is_that_of_the_runs():
    first, last = nested.MARKS
    shown = nested.PAGE.read_text("utf-8").partition(first)[2].partition(last)[0]
    assert shown.strip() == nested.make_table(nested.RESULTS).strip()


def test_the_page_says_how_long_each_system_trained():
    rows = nested.read_csv(nested.RESULTS)
    span, mrc, pairs = (
        nested.mean(float(row["train_seconds"]) for row in rows if row["system"] == system)
        for system in ("span classifier", "BERT-MRC", "BERT-MRC, judges pairs")
    )
    said = f"trained in {span:.0f} s where BERT-MRC took {mrc:.0f} s, and {pairs:.0f} s judging"
    assert said in nested.PAGE.read_text("utf-8")
