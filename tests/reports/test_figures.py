"""Every figure against Plotly's own schema, and against the numbers in its table."""

import json
import shutil

import plotly.graph_objects as go
import pytest

from softf1.reports.evidence import read_evidence
from softf1.reports.page import make_sections
from softf1.reports.study import group_runs, pick_best, read_study
from tests.reports import grids


def figures_of(paths):
    study = read_study(paths)
    groups = group_runs(study)
    best = pick_best(study, groups)
    sections = make_sections(study, groups, best, read_evidence(study, groups, best))
    return {figure.id: figure for section in sections for figure in section.figures}


@pytest.fixture(scope="module")
def compared(grid):
    return figures_of([grid])


@pytest.fixture(scope="module")
def swept(sweep):
    return figures_of([sweep])


@pytest.fixture(scope="module")
def ranked(texts):
    return figures_of(texts)


def test_plotly_knows_all_that_figures_say(compared, swept, ranked):
    every = [*compared.values(), *swept.values(), *ranked.values()]
    assert len(every) > 15
    for figure in every:
        spec = figure.to_data()
        for traces in [spec["data"], *(view["data"] for view in spec["views"])]:
            go.Figure(_colored({"data": traces, "layout": spec["layout"]}))  # raises if unknown
        assert figure.summary.endswith(".")
        assert figure.table.rows


def _colored(value):
    """The figure with a colour for each name of one."""
    if isinstance(value, dict):
        return {key: _colored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_colored(item) for item in value]
    return "#123456" if isinstance(value, str) and value.startswith("var(--") else value


def test_a_grid_has_the_figures_that_its_files_allow(compared, swept, ranked):
    both = {"plot-scores", "plot-trade", "plot-confusion-left", "plot-confusion-right"}
    learned = {"plot-progress", "plot-loss", "plot-frequency", "plot-labels"}
    assert set(compared) == both | learned | {"plot-differences"}
    assert set(swept) == both | learned | {"plot-sweep"}
    # Of one label each, precision and recall are one number: nothing is traded.
    assert set(ranked) == (both - {"plot-trade"}) | {"plot-recall"}


def test_the_forest_shows_every_interval_filled_where_it_is_sure(compared):
    figure = compared["plot-differences"]
    rows = {row[0]: row[1:] for row in figure.table.rows}
    names = figure.y["ticktext"]
    assert len(figure.traces) == len(rows) == 8
    assert set(names) == {*rows, "ce"}
    symbols = set()
    for trace in figure.traces:
        middle, low, high = rows[names[trace["y"][0]]]
        assert trace["x"] == [100 * middle]
        assert trace["x"][0] + trace["error_x"]["array"][0] == pytest.approx(100 * high)
        assert trace["x"][0] - trace["error_x"]["arrayminus"][0] == pytest.approx(100 * low)
        assert trace["marker"]["symbol"] == ("circle" if low > 0 or high < 0 else "circle-open")
        symbols.add(trace["marker"]["symbol"])
    assert len(symbols) == 2


def test_labels_stand_over_their_frequency(compared):
    figure = compared["plot-frequency"]
    trace = next(trace for trace in figure.traces if trace["meta"] == "dice")
    rows = [row for row in figure.table.rows if row[4] == "dice"]
    assert trace["x"] == [row[2] for row in rows]
    assert trace["y"] == [100 * row[7] for row in rows]
    shown = [trace["meta"] for trace in figure.traces if trace["visible"]]
    assert shown[0] == "ce"
    assert len(shown) == 2  # the baseline and the best on dev


def test_lines_of_equal_f1_are(compared):
    lines = [trace for trace in compared["plot-trade"].traces if trace["mode"] == "lines+text"]
    assert lines
    for line in lines:
        wanted = float(line["text"][0].removeprefix("F1 "))
        for recall, precision in zip(line["x"], line["y"], strict=True):
            assert 2 * recall * precision / (recall + precision) == pytest.approx(wanted)


def test_points_of_the_trade_name_their_seed_where_a_run_has_no_precision(grid, tmp_path):
    folder = tmp_path / "grid"
    shutil.copytree(grid, folder)
    path = folder / "cells/dice-s0/result.json"
    result = json.loads(path.read_text("utf-8"))
    for scores in result["scores"].values():
        scores.pop("precision")
    path.write_text(json.dumps(result), "utf-8")
    (trace,) = (
        trace
        for trace in figures_of([folder])["plot-trade"].traces
        if trace.get("customdata") and trace["name"] == "dice"
    )
    assert 0 not in trace["customdata"]
    assert len(trace["customdata"]) == len(trace["x"])


def test_runs_of_one_loss_with_three_values_of_an_option_are_drawn_against_it(tmp_path):
    folders = []
    for seed, gamma in enumerate((0.5, 1.0, 2.0)):
        folder = grids.write_texts(tmp_path / str(gamma), loss="focal", seed=seed, sharpness=2.0)
        result = json.loads((folder / "result.json").read_text("utf-8"))
        result["loss_options"] = {"gamma": gamma, "reduction": "mean"}
        (folder / "result.json").write_text(json.dumps(result), "utf-8")
        folders.append(folder)
    figure = figures_of(folders)["plot-sweep"]
    assert figure.title == "Scores against loss.gamma"
    assert [row[0] for row in figure.table.rows] == [0.5, 1.0, 2.0]
    assert "plot-sweep" not in figures_of(folders[:2])


def test_a_sweep_of_alpha_trades_recall_for_precision(swept):
    figure = swept["plot-sweep"]
    assert [row[0] for row in figure.table.rows] == [0.1, 0.3, 0.5, 0.7, 0.9]
    precision, recall, f1 = figure.traces
    assert precision["y"][0] < precision["y"][-1]
    assert recall["y"][0] > recall["y"][-1]
    assert f1["name"] == "F1"


def test_a_label_is_text_for_plotly(compared):
    names = compared["plot-confusion-left"].y["ticktext"]
    assert any(name.startswith("&lt;script&gt;") for name in names)
    assert not any("<" in name for name in names)


def test_confusion_shows_the_baseline_beside_the_best(compared):
    left, right = (compared[f"plot-confusion-{side}"] for side in ("left", "right"))
    assert left.views[0][0] == "ce"
    assert right.views[0][0] != "ce"
    assert {name for name, _ in left.views} == {name for name, _ in right.views}
    for row in left.views[0][1][0]["z"]:
        known = [share for share in row if share is not None]
        assert not known or sum(known) == pytest.approx(100)


def test_what_was_tuned_has_scores_but_no_curve_of_its_own(compared):
    assert "ce+tuned" in compared["plot-scores"].y["ticktext"]
    assert "ce+tuned" in {name for name, _ in compared["plot-confusion-left"].views}
    assert "ce+tuned" not in {row[0] for row in compared["plot-progress"].table.rows}
