"""Experiments over real training, as small as it gets."""

import json
from contextlib import closing
from functools import partial

import pytest

from softf1.cli.main import main
from softf1.experiments.compare import compare
from softf1.experiments.sweep import sweep
from softf1.experiments.workers import Pool
from softf1.metrics.ranking import average_precision
from softf1.recipe import read_recipe
from softf1.reports import write_report
from softf1.training.run import train_run
from tests.experiments.fake import run_inline
from tests.experiments.made_up import write_corpus, write_texts

OPTIONS = {"losses": ("ce", "ce+tuned", "la"), "seeds": [0, 1], "tune": "none", "quiet": True}
OPTIONS["controls"] = False  # matched compute depends on seconds
here = partial(run_inline, train_run)


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    recipe = read_recipe(write_corpus(folder))
    return folder, recipe, compare(recipe, folder / "grid", execute=here, **OPTIONS)


def test_predictions_add_up_to_the_scores(grid):
    _, _, found = grid
    assert found["notes"] == []
    assert found["failed"] == {}
    rows = {row["loss"]: row for row in found["rows"]}
    assert rows["ce"]["mean"] > 0.5
    assert (found["headline"], found["split"], found["examples"]) == ("f1", "test", 60)
    assert [label["label"] for label in found["labels"]] == ["PER", "LOC"]
    assert found["labels"][0]["support_train"] > found["labels"][1]["support_train"] > 20
    assert rows["ce+tuned"]["n"] == 2


def test_every_loss_has_the_same_steps_and_its_own_start(grid):
    folder, _, _ = grid
    results = [
        json.loads((folder / f"grid/cells/{loss}-s1/result.json").read_text("utf-8"))
        for loss in ("ce", "la")
    ]
    assert results[0]["steps"] == results[1]["steps"]
    assert [r["recipe"]["train"]["head_bias"] for r in results] == ["prior", "zero"]


def test_report_of_a_finished_grid_comes_at_once(grid, capsys):
    folder, _, found = grid
    arguments = ["--losses", "ce,ce+tuned,la", "--seeds", "2", "--tune", "none"]
    arguments += ["--out", str(folder / "grid")]
    assert main(["compare", str(folder / "tiny.toml"), *arguments]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("F1 on test, 60 examples\n")
    assert found["verdict"] in printed


@pytest.mark.slow
def test_processes_train_the_same_models(grid, tmp_path):
    folder, recipe, found = grid
    with closing(Pool(2, logs=tmp_path)) as pool:
        again = compare(recipe, tmp_path / "grid", execute=pool, **OPTIONS)
    assert again["rows"] == found["rows"]
    for name in ("ce-s0", "la-s1"):
        path = f"grid/cells/{name}/predictions.test.jsonl"
        assert (tmp_path / path).read_bytes() == (folder / path).read_bytes()


def test_rankings_are_compared_by_average_precision(tmp_path):
    recipe = read_recipe(write_texts(tmp_path, '[eval]\nmetric = "average_precision"\n'))
    # Without controls: one of them depends on the time that a loss takes.
    options = OPTIONS | {"losses": ("ce", "smooth_ap", "pauc"), "controls": False}
    found = compare(recipe, tmp_path / "grid", execute=here, **options)
    assert (found["headline"], found["examples"]) == ("average_precision", 60)
    assert not any("intervals do not cover" in note for note in found["notes"])
    rows = {row["loss"]: row for row in found["rows"]}
    assert set(rows) >= {"ce", "smooth_ap", "pauc"}
    for name in ("smooth_ap", "pauc"):
        row = rows[name]
        assert row["low"] < row["difference"] < row["high"]
    folder = tmp_path / "grid/cells/pauc-s0"
    lines = (folder / "predictions.test.jsonl").read_text("utf-8").splitlines()
    pairs = [(one["probabilities"]["yes"], "yes" in one["gold"]) for one in map(json.loads, lines)]
    ranked = average_precision(*zip(*pairs, strict=True))
    result = json.loads((folder / "result.json").read_text("utf-8"))
    assert result["scores"]["test"]["average_precision"] == pytest.approx(ranked)
    pytest.importorskip("plotly")
    page = write_report([tmp_path / "grid"], tmp_path / "page.html").read_text("utf-8")
    assert "average precision on test" in page


def test_operating_points_go_through_compare_and_sweep(tmp_path):
    recipe = read_recipe(write_texts(tmp_path, '[eval]\ntarget = "recall>=0.5"\n'))
    options = OPTIONS | {"losses": ("ce", "ce+tuned")}
    found = compare(recipe, tmp_path / "compared", execute=here, **options)
    results = read_results(tmp_path / "compared/cells/ce-s*")
    assert [one["operating_points"][0]["target"] for one in results] == ["recall>=0.5"] * 2
    tuned = next(row for row in found["rows"] if row["loss"] == "ce+tuned")
    assert tuned["mean"] == pytest.approx(sum(one["tuned"]["test"]["f1"] for one in results) / 2)
    assert found["units"] == 60
    axes = {"eval.target": ["recall>=0.5", "cost:fp=1,fn=10"]}
    sweep(recipe, tmp_path / "swept", axes=axes, execute=here, seeds=[0], quiet=True)
    results = read_results(tmp_path / "swept/cells/*")
    assert {one["operating_points"][0]["target"] for one in results} == set(axes["eval.target"])


def read_results(pattern):
    folders = sorted(pattern.parent.glob(pattern.name))
    return [json.loads((folder / "result.json").read_text("utf-8")) for folder in folders]
