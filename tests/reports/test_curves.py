import json
import shutil

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, precision_recall_curve

from softf1.reports.curves import (
    ALL,
    POINTS,
    RECALLS,
    Curve,
    Ranking,
    draw_operating,
    draw_recall,
    precision_recall,
    rank,
    read_learning,
    thin,
)
from softf1.reports.evidence import read_evidence
from softf1.reports.reading import Item
from softf1.reports.study import group_runs, read_study


@pytest.mark.parametrize("seed", range(5))
def test_precision_recall_as_scikit_learn_has_it(seed):
    rng = np.random.default_rng(seed)
    right = rng.random(200) < 0.2
    scores = (rng.normal(size=200) + right).round(1)  # many equal scores
    at, area = precision_recall(scores, right)
    assert area == pytest.approx(average_precision_score(right, scores))
    precision, recall, _ = precision_recall_curve(right, scores)
    for level, value in zip(RECALLS, at, strict=True):
        assert value == pytest.approx(precision[:-1][recall[:-1] >= level - 1e-9].max())


def test_of_two_labels_only_the_rarer_is_ranked():
    items = [
        Item(
            id="1",
            gold=frozenset({gold}),
            predicted=frozenset({gold}),
            scores={"no": 1 - p, "yes": p},
        )
        for gold, p in (("no", 0.2), ("no", 0.6), ("yes", 0.7), ("no", 0.1))
    ]
    ranked = rank(items)
    assert list(ranked) == ["yes"]
    assert ranked["yes"].area == 1.0


def test_of_more_labels_all_together_come_first():
    items = [
        Item(
            id="1",
            gold=frozenset(gold),
            predicted=frozenset(),
            scores={"a": 0.9, "b": 0.8, "c": 0.1},
        )
        for gold in ({"a"}, {"b"}, {"a", "b"})
    ]
    assert list(rank(items)) == [ALL, "a", "b"]  # c is never right: no curve
    assert rank([]) == {}


def test_runs_that_rank_other_labels_share_the_curves_of_those_in_all(texts, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(texts[2], other)
    path = other / "predictions.test.jsonl"
    path.write_text(path.read_text("utf-8").replace("complaint", "grumble"), "utf-8")
    study = read_study([texts[0], other])
    groups = group_runs(study)
    figure = draw_recall(groups, read_evidence(study, groups, None).ranked, "test")
    assert [name for name, _ in figure.views] == [ALL, "praise", "<script>alert(1)</script>"]
    only = [{"dice": Ranking(RECALLS, 1.0)}, {"ce": Ranking(RECALLS, 1.0)}]
    assert draw_recall(groups, {"ce": only[:1], "dice": only[1:]}, "test") is None


def test_operating_points_of_another_form_are_left_out(texts):
    study = read_study(texts[:1])
    study.runs[0].result["operating_points"] = [5, "x", None]
    assert draw_operating(group_runs(study)) is None


def test_a_long_curve_gets_short_and_keeps_its_mean():
    curve = Curve(np.arange(10_000.0), np.random.default_rng(0).random(10_000))
    short = thin(curve)
    assert len(short.x) == POINTS
    assert (np.diff(short.x) > 0).all()
    assert short.y.mean() == pytest.approx(curve.y.mean(), abs=1e-3)


def test_learning_is_read_from_a_log_that_was_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [
        {"event": "step", "step": 1, "loss": 2.0},
        {"event": "eval", "epoch": 1.0, "split": "dev", "scores": {"f1": 0.5}},
        {"event": "warning", "message": "slow"},
        {"event": "step", "step": 2, "loss": float("nan")},
        {"event": "step", "step": 1, "loss": 1.5},  # after a restart: the later one counts
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"event": "st')
    scores, losses = read_learning(path, "f1")
    assert scores.y.tolist() == [0.5]
    assert losses.y.tolist() == [1.5]
    assert len(read_learning(tmp_path / "none", "f1")[0].x) == 0
