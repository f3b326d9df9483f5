from softf1.reports.labels import frequency_part, read_labels
from softf1.reports.study import group_runs, read_study
from tests.reports import grids


def test_labels_of_a_comparison_from_frequent_to_rare(grid):
    study = read_study([grid])
    labels = read_labels(study, group_runs(study))
    assert [label.train for label in labels] == [1300, 325, 81, 20, 6]
    assert labels[0].group == "head"
    assert set(labels[0].f1) == set(grids.LOSSES)


def test_labels_of_runs_are_means_with_spans_counted_by_their_first_tags(grid):
    cells = sorted((grid / "cells").glob("dice-s*"))
    study = read_study(cells)
    labels = read_labels(study, group_runs(study))
    per = next(label for label in labels if label.name == "PER")
    assert per.train == 1300  # B-PER of class_counts
    scores = [run.result["scores"]["test"]["labels"]["PER"] for run in study.runs]
    assert per.f1["dice"] == sum(score["f1"] for score in scores) / 5
    assert per.test == scores[0]["support"]
    assert frequency_part(labels) == "train"
