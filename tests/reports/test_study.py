import json
from dataclasses import replace

import pytest

from softf1.errors import InputError
from softf1.reports.overview import list_notes
from softf1.reports.study import group_runs, pick_best, read_study
from tests.reports import grids


def test_grid_has_its_runs_and_names_the_cell_that_failed(grid):
    study = read_study([grid])
    assert study.kind == "compare"
    assert len(study.trained) == 39
    assert study.unfinished == (("dsc-s4", "failed"),)
    assert (study.baseline, study.metric, study.split) == ("ce", "f1", "test")


def test_what_was_tuned_on_dev_is_a_row_of_its_own(grid):
    tuned = [run for run in read_study([grid]).runs if run.tuned]
    assert {run.label for run in tuned} == {"ce+tuned"}
    assert [run.predictions("test").name for run in tuned] == ["predictions.test.tuned.jsonl"] * 5
    plain = next(run for run in read_study([grid]).trained if run.label == "ce")
    assert tuned[0].score("test", "recall") > plain.score("test", "recall")


def test_tuned_scores_that_nobody_asked_for_are_left_out(tmp_path):
    folder = grids.write_compare(tmp_path / "g", losses=("ce", "ce+tuned"), seeds=1, sentences=20)
    grid = json.loads((folder / "grid.json").read_text())
    grids.write_json(folder / "grid.json", {**grid, "losses": ["ce"]})
    (folder / "comparison.json").unlink()
    assert [run.label for run in read_study([folder]).runs] == ["ce"]


def test_runs_without_a_grid_are_put_together_by_loss(texts):
    study = read_study(texts)
    assert study.kind == "runs"
    assert [run.label for run in study.runs] == ["ce", "ce", "dice"]
    assert study.baseline == "ce"


@pytest.mark.parametrize(
    ("part", "key", "values", "labels"),
    [
        ("train", "lr", (0.1, 0.01), ["ce lr=0.1", "ce lr=0.01"]),
        ("encoder", "name", ("bert", "x"), ["ce encoder=bert", "ce encoder=x"]),
    ],
)
def test_runs_of_one_loss_and_seed_are_told_apart_by_what_differs(
    part, key, values, labels, tmp_path
):
    folders = []
    for value in values:
        folder = grids.write_texts(tmp_path / f"{value}")
        result = json.loads((folder / "result.json").read_text())
        result["recipe"][part][key] = value
        grids.write_json(folder / "result.json", result)
        folders.append(folder)
    assert [run.label for run in read_study(folders).runs] == labels


def test_runs_of_the_same_folder_name_get_that_of_their_parent(tmp_path):
    folders = [
        grids.write_texts(tmp_path / parent / "run", loss=loss)
        for parent, loss in (("a", "ce"), ("b", "dice"))
    ]
    assert [run.id for run in read_study(folders).runs] == ["a/run", "b/run"]


def test_without_a_test_set_scores_are_those_of_dev(tmp_path):
    folder = grids.write_texts(tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    result["scores"] = {"dev": result["scores"]["test"]}
    grids.write_json(folder / "result.json", result)
    assert read_study([folder]).split == "dev"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "wanted JSON"),
        ("[]", "wanted an object, got list"),
        ('{"schema": 2}', 'wanted "schema": 1, got 2'),
        ('{"schema": 1}', 'wanted "scores" of type dict, got nothing'),
    ],
)
def test_a_wrong_result_is_one_line(tmp_path, text, message):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError, match="result.json: " + message):
        read_study([tmp_path])


def test_folders_that_are_none(tmp_path, grid):
    with pytest.raises(InputError, match="wanted the folder of a run"):
        read_study([tmp_path / "nowhere"])
    with pytest.raises(InputError, match=r"wanted a finished run with a result\.json"):
        read_study([tmp_path])
    with pytest.raises(InputError, match="wanted one grid, or runs, got 2"):
        read_study([grid, tmp_path])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ({"id": "a", "folder": "../other"}, "wanted cells inside the grid"),
        ({"id": "a"}, 'wanted "folder" of type str, got nothing'),
        ("a", "wanted objects in cells, got str"),
        ({"id": "a", "folder": "cells/a"}, "wanted at least one finished run"),
    ],
)
def test_a_wrong_grid_is_one_line(tmp_path, cell, message):
    grids.write_json(tmp_path / "grid.json", {"schema": 1, "cells": [cell]})
    with pytest.raises(InputError, match=r"grid\.json: " + message):
        read_study([tmp_path])


def test_a_comparison_of_another_form_is_one_line(tmp_path):
    folder = grids.write_compare(tmp_path / "g", losses=("ce", "dice"), seeds=1, sentences=20)
    grids.write_json(folder / "comparison.json", {"schema": 1, "rows": ["dice"]})
    with pytest.raises(InputError, match=r'comparison\.json: wanted objects in "rows", got str'):
        read_study([folder])


def test_notes_of_all_runs_about_the_files_are_on_the_page(texts):
    study = read_study(texts)
    leak, own = "test: 9 of 12 texts are also in train", "only here"
    runs = [
        replace(run, result=run.result | {"notes": [leak] + [own] * (number == 0)})
        for number, run in enumerate(study.runs)
    ]
    notes = list_notes(replace(study, runs=tuple(runs)), group_runs(study), None)
    assert "Test: 9 of 12 texts are also in train." in notes
    assert not any(own in note.lower() for note in notes)


@pytest.mark.parametrize(("recall", "said"), [(0.5, True), (0.0, False), (1.0, False)])
def test_the_precision_of_a_recall_is_that_of_the_baseline(grid, recall, said):
    """It has no sense for a model that finds nothing, or all."""
    study = read_study([grid])
    runs = []
    for run in study.runs:
        scores = run.result["scores"][study.split]
        own = recall if run.label == study.baseline else 0.25
        changed = {study.split: scores | {"recall": own}}
        runs.append(replace(run, result=run.result | {"scores": changed}))
    backwards = replace(study, runs=tuple(reversed(runs)))
    notes = list_notes(backwards, group_runs(study), None)
    assert any("so a recall of 50.0% is known" in note for note in notes) == said
    assert any("is known to about" in note for note in notes) == said


def test_a_recall_of_the_positive_label_is_known_as_well_as_its_own_items_allow(grid):
    study = read_study([grid])
    ok = {"precision": 0.97, "recall": 0.99, "f1": 0.98, "support": 575}
    fraud = {"precision": 0.7, "recall": 0.56, "f1": 0.62, "support": 25}
    scores = {**fraud, "labels": {"fraud": fraud, "ok": ok}}
    del scores["support"]
    runs = [
        replace(run, result=run.result | {"scores": {study.split: scores}}) for run in study.runs
    ]
    notes = list_notes(replace(study, runs=tuple(runs)), group_runs(study), None)
    # 1.96 · √(0.56 · 0.44 / 25)
    said = "25 gold items of fraud, so a recall of 56.0% is known to about ±19.5 points"
    assert any(said in note for note in notes)


def test_a_variance_that_was_cut_at_0_is_not_called_0(grid):
    study = read_study([grid])
    groups = group_runs(study)
    best = pick_best(study, groups)
    said = list_notes(study, groups, best)[0]
    assert "from the choice of" in said
    none = replace(best, row=best.row | {"sd_examples": 0.0, "sd_seeds": 0.02, "n": 4})
    said = list_notes(study, groups, none)[0]
    assert "has a standard error of 1.00 points; what the choice of" in said
    assert said.endswith("cannot be told apart from what its 4 seeds add.")
