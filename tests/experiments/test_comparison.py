import json
import math
import re
import shutil
from functools import partial
from shutil import copytree

import numpy as np
import pytest

from softf1.cli.show import show_comparison
from softf1.experiments.compare import compare
from softf1.experiments.comparison import (
    compare_runs,
    group_labels,
    mean_scores,
    summarize,
    train_support,
)
from softf1.experiments.per_example import RunScores
from softf1.tasks import make_task
from tests.experiments import fake
from tests.experiments.fake import run_inline


def run_of(score, pseudo=None):
    return RunScores(score=score, pseudo=pseudo, scores={}, dev={}, labels={})


def test_seeds_are_paired_by_number_not_by_place():
    ours = {3: run_of(0.9), 1: run_of(0.6), 7: run_of(0.1)}
    theirs = {1: run_of(0.5), 2: run_of(0.0), 3: run_of(0.7)}
    found = compare_runs(ours, theirs)
    assert found.seeds == 2
    assert found.mean == pytest.approx(0.15)  # 0.6 − 0.5 and 0.9 − 0.7


def test_an_interval_ends_where_no_difference_can_be():
    ours, theirs = {0: run_of(0.9), 1: run_of(0.2)}, {0: run_of(0.5), 1: run_of(0.5)}
    found = compare_runs(ours, theirs)
    assert (found.low, found.high) == (-1, 1)  # 0.05 ± 12.7 · 0.35
    other = compare_runs({seed: run_of(10 * run.score) for seed, run in ours.items()}, theirs)
    assert other.high > 1  # not a share
    assert math.isnan(compare_runs({0: run_of(0.9)}, theirs).low)


def test_runs_over_other_examples_are_compared_by_seeds_alone():
    ours = {0: run_of(0.5, np.zeros(4)), 1: run_of(0.6, np.zeros(4))}
    theirs = {0: run_of(0.5, np.zeros(4)), 1: run_of(0.5, None)}
    assert compare_runs(ours, theirs).examples == 0
    assert compare_runs(ours, ours).examples == 4


def test_means_of_all_scores():
    labels = {"a": {"precision": 1.0, "recall": 0.5}, "b": {"precision": 0.0, "recall": 0.5}}
    found = mean_scores([{"f1": 0.5, "labels": labels}, {"f1": 0.7, "labels": labels}])
    assert found == pytest.approx({"f1": 0.6, "macro_precision": 0.5, "macro_recall": 0.5})


def test_spans_are_counted_by_the_tags_that_begin_them():
    counts = {"tags": {"O": 90, "B-PER": 4, "I-PER": 6, "E-PER": 2, "S-PER": 3, "S-LOC": 1}}
    task = make_task("tagging", scheme="BIOES")
    fitted = task.__class__(spans="BIOES")
    assert train_support(counts, fitted, ["PER", "LOC"]) == {"PER": 7, "LOC": 1}
    iob1 = task.__class__(spans="IOB1")  # an I may begin a span or not: tokens are counted
    assert train_support({"tags": {"I-PER": 6, "B-PER": 1}}, iob1, ["PER"]) == {"PER": 7}


def test_labels_of_several_outputs():
    counts = {"labels": {"a": [90, 10], "b": [99, 1]}}  # (negative, positive)
    assert train_support(counts, None, ["a", "b"]) == {"a": 10, "b": 1}
    assert train_support({"start": [[9, 1]]}, None, ["PER"]) == {"PER": None}


def test_groups_are_thirds():
    assert group_labels({"x": 5, "y": 5}) == {"x": "head", "y": "tail"}
    assert group_labels({"x": 5}) == {"x": "head"}
    found = group_labels({str(i): i for i in range(8)})
    assert list(found.values()) == ["head"] * 3 + ["mid"] * 3 + ["tail"] * 2


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    options = {"losses": ("ce", "ce+tuned", "dice"), "seeds": range(3), "tune": "none"}
    here = partial(run_inline, fake.train_run)
    compare(fake.make_recipe(), folder, execute=here, quiet=True, **options)
    return folder


def test_a_grid_can_be_summed_up_again_for_another_gain(grid):
    found = summarize(grid, gain=0.2)
    assert found["gain"] == 0.2
    first = json.loads((grid / "comparison.json").read_text("utf-8"))
    assert [row["mean"] for row in found["rows"]] == [row["mean"] for row in first["rows"]]


def test_what_precision_and_recall_traded_is_there(grid):
    rows = {row["loss"]: row for row in summarize(grid)["rows"]}
    for row in rows.values():
        assert 0 < row["precision"] <= 1
        f1 = row["means"]["test"]["f1"]
        assert f1 == pytest.approx(row["mean"])
        assert row["means"]["dev"]["f1"] != f1


def test_caveats_are_among_the_notes(grid):
    path = grid / "grid.json"
    whole = path.read_text("utf-8")
    tuning = [{"loss": "dice", "score": 0.5, "share": 1 / 3}] * 4
    path.write_text(json.dumps(json.loads(whole) | {"tuning": tuning}), "utf-8")
    (note,) = summarize(grid)["notes"]
    path.write_text(whole, "utf-8")
    assert note.startswith("short runs say little about dice")


@pytest.mark.parametrize(
    ("device", "deterministic", "said"),
    [("NVIDIA H200", False, True), ("NVIDIA H200", True, False), ("linux cpu", False, False)],
)
def test_runs_that_cannot_repeat_are_named(grid, tmp_path, device, deterministic, said):
    copytree(grid, tmp_path / "grid")
    for path in (tmp_path / "grid").glob("cells/*/result.json"):
        result = json.loads(path.read_text("utf-8"))
        result["device"] = device
        result.setdefault("recipe", {}).setdefault("train", {})["deterministic"] = deterministic
        path.write_text(json.dumps(result), "utf-8")
    notes = summarize(tmp_path / "grid")["notes"]
    found = [note for note in notes if "may not repeat exactly" in note]
    assert len(found) == said
    assert all('or with train.compile = "inductor", the same' in note for note in found)


def test_what_all_runs_note_about_the_files_is_told(grid, tmp_path):
    copytree(grid, tmp_path / "grid")
    leak = "test: 9 of 12 texts are also in train"
    for number, path in enumerate((tmp_path / "grid").glob("cells/*/result.json")):
        result = json.loads(path.read_text("utf-8")) | {"notes": [leak, f"of run {number}"]}
        path.write_text(json.dumps(result), "utf-8")
    notes = summarize(tmp_path / "grid")["notes"]
    assert leak in notes
    assert not any("of run" in note for note in notes)


def test_without_test_dev_is_judged_and_said_to_flatter(grid, tmp_path):
    for path in grid.rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(grid)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    for path in tmp_path.glob("cells/*/result.json"):
        result = json.loads(path.read_text("utf-8"))
        del result["scores"]["test"]
        result.get("tuned", {}).pop("test", None)
        path.write_text(json.dumps(result), "utf-8")
    found = summarize(tmp_path)
    assert found["split"] == "dev"
    assert any("from dev, which chose" in note for note in found["notes"])


def test_table_in_a_pipe_has_tabs_and_the_verdict_last(grid, capsys):
    found = summarize(grid)
    show_comparison(found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "F1 on test, 400 examples"
    heads = lines[1].split("\t")
    row = dict(zip(heads, lines[4].split("\t"), strict=True))
    assert row["loss"] == "dice"
    assert float(row["mean"]) == pytest.approx(100 * found["rows"][2]["mean"], abs=0.005)
    assert row["difference"].startswith("+")
    assert lines[-1] == found["verdict"]


@pytest.mark.parametrize("width", [80, 200])
def test_table_on_a_terminal_shows_names_and_verdicts_at_any_width(
    grid, capsys, monkeypatch, width
):
    monkeypatch.delenv("TERM", raising=False)  # a dumb one has 80 columns
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)
    found = summarize(grid)
    long = "perhaps better, not sure; a gain of 0.5 would need 40 seeds"
    found["rows"][2] |= {"loss": "dice[over=batch,smooth=0.1]", "verdict": long}
    found["groups"] = []
    show_comparison(found)
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    table = [line for line in lines if "│" in line]
    assert max(map(len, table)) <= width
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table]
    whole = ["".join(parts) for parts in zip(*cells[2:], strict=True)]  # cells may go on below
    assert "dice[over=batch,smooth=0.1]" in whole[0]
    assert "perhapsbetter,notsure" in whole[-1].replace(" ", "")
    assert f"{100 * found['rows'][2]['mean']:.2f}" in whole[2 if width == 200 else 1]
    assert "dice[over=batch,smooth=0.1]: a gain of 0.5 would need 40 seeds" in lines
    assert any(line.startswith("columns left out to fit") for line in lines) == (width == 80)


def test_groups_of_labels_have_a_line_for_each_loss(grid, capsys):
    found = summarize(grid)
    names = [row["loss"] for row in found["rows"]]
    scores = {name: {"f1": 0.1 * place} for place, name in enumerate(names)}
    found["groups"] = [{"group": "tail", "labels": ["a", "b"], "scores": scores}]
    found["labels"] = ["a", "b", "c"]
    show_comparison(found)
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("F1 of labels\ttail (2)")
    assert lines[start + 1 : start + 3] == [f"{names[0]}\t0.00", f"{names[1]}\t10.00"]


def test_nothing_done_is_said(capsys):
    show_comparison({"rows": []})
    assert "nothing to compare" in capsys.readouterr().out


def test_numbers_that_are_none_stay_out_of_the_table(capsys):
    row = dict.fromkeys(["mean", "sd", "precision", "recall", "difference", "narrowest"], None)
    row |= {"calibration_error": None, "role": "loss"}
    row |= {"loss": "x", "n": 1, "low": math.nan, "high": math.nan, "p_holm": math.nan}
    row |= {"probability": math.nan, "verdict": "one seed is not enough", "mean": 0.5}
    found = {"rows": [row], "headline": "f1", "split": "test", "examples": 9, "units": 3}
    found |= {"kind": "compare", "groups": [], "labels": [], "notes": ["look"], "verdict": "none"}
    show_comparison(found)
    out = capsys.readouterr().out
    assert "nan" not in out
    assert "F1 on test, 9 examples, 3 independent" in out
    assert "note: look" in out


def change_results(grid, folder, change):
    """A copy of the grid whose results went through `change`, by loss and seed."""
    shutil.copytree(grid, folder)
    for path in folder.glob("cells/*/result.json"):
        result = json.loads(path.read_text("utf-8"))
        if (result["loss"], result["seed"]) in change:
            path.write_text(json.dumps(result | {"collapsed": True}), "utf-8")
    return folder


def test_one_dead_seed_of_three_is_said_as_such_not_as_a_large_deviation(grid, tmp_path, capsys):
    found = summarize(change_results(grid, tmp_path / "one", {("ce", 1), ("dice", 2)}))
    rows = {row["loss"]: row for row in found["rows"]}
    alive = [score for seed, score in rows["dice"]["scores"].items() if seed != "2"]
    wanted = f"1 of 3 seeds collapsed (seed 2), the mean of the others is {50 * sum(alive):.1f}"
    assert rows["dice"]["verdict"].endswith(wanted)
    assert rows["ce"]["verdict"].startswith("baseline; 1 of 3 seeds collapsed (seed 1)")
    show_comparison(found)
    said = capsys.readouterr().out
    assert "ce (1 of 3 seeds), dice (1 of 3 seeds)" in said
    assert wanted in said


def test_a_row_that_collapsed_with_every_seed_says_nothing_of_seeds_needed(grid, tmp_path):
    dead = {("dice", seed) for seed in range(3)}
    found = summarize(change_results(grid, tmp_path / "row", dead))
    (verdict,) = (row["verdict"] for row in found["rows"] if row["loss"] == "dice")
    assert verdict.endswith("collapsed with every seed")
    assert "4 times of 5" not in verdict
    everything = {(loss, seed) for loss in ("ce", "dice") for seed in range(3)}
    folder = change_results(grid, tmp_path / "all", everything)
    for path in folder.glob("cells/*/result.json"):
        result = json.loads(path.read_text("utf-8"))
        result["tuned"] = {k: v | {"f1": 0.0} for k, v in result.get("tuned", {}).items()}
        path.write_text(json.dumps(result), "utf-8")
    assert summarize(folder)["verdict"] == "Every run collapsed: there is nothing to compare."


def test_nothing_helps_over_a_baseline_that_collapsed_with_every_seed(grid, tmp_path):
    dead = {("ce", seed) for seed in range(3)}
    found = summarize(change_results(grid, tmp_path / "base", dead))
    assert found["verdict"] == (
        "No verdict: ce predicts nothing, or only one class, with every seed; train longer."
    )
    verdicts = {row["loss"]: row["verdict"] for row in found["rows"]}
    assert verdicts["ce"] == "baseline; collapsed with every seed"
    assert verdicts["dice"] == "no verdict; ce collapsed with every seed"


def test_a_reference_ahead_of_all_losses_is_in_the_verdict(grid, tmp_path):
    folder = copytree(grid, tmp_path / "grid")
    whole = json.loads((folder / "grid.json").read_text("utf-8"))
    best = max(summarize(folder)["rows"], key=lambda row: row["mean"])["loss"]
    cell = next(one for one in whole["cells"] if one["label"] == best.removesuffix("+tuned"))
    copytree(folder / cell["folder"], folder / "cells/tfidf")
    cell |= {"id": "tfidf", "label": "tfidf", "seed": None, "folder": "cells/tfidf"}
    path = folder / "cells/tfidf/result.json"
    result = json.loads(path.read_text("utf-8"))
    for score, ahead in ((0.99, True), (0.01, False)):
        result["scores"]["test"]["f1"] = score
        path.write_text(json.dumps(result), "utf-8")
        (folder / "grid.json").write_text(json.dumps(whole), "utf-8")
        said = "The row tfidf, which trains no encoder, is ahead of every loss with 99.0 F1."
        assert summarize(folder)["verdict"].endswith(said) == ahead
