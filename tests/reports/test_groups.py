from dataclasses import replace

import pytest

from softf1.reports.overview import list_facts
from softf1.reports.study import COLORS, chosen_on, group_runs, in_order, pick_best, read_study


def test_the_baseline_is_first_and_has_its_own_look(grid):
    groups = group_runs(read_study([grid]))
    assert groups[0].label == "ce"
    assert len({(group.color, group.symbol) for group in groups}) == 9
    assert len({group.key for group in groups}) == 9


def test_more_groups_than_colours_differ_in_their_lines(grid):
    study = read_study([grid])
    runs = tuple(replace(study.runs[0], label=f"l{n}") for n in range(2 * COLORS))
    groups = group_runs(replace(study, runs=runs, baseline="l0", comparison={}))
    assert len({(group.color, group.dash) for group in groups}) == 2 * COLORS


def test_the_best_is_a_loss_and_not_what_was_tuned_on_dev(grid):
    groups = group_runs(read_study([grid]))
    tuned = next(group for group in groups if group.label == "ce+tuned")
    assert tuned.tuned
    study = replace(read_study([grid]), comparison={})
    assert pick_best(study, [groups[0], tuned]) is None


def test_the_best_is_the_one_that_the_verdict_names(grid):
    study = read_study([grid])
    named = replace(study, comparison=study.comparison | {"best": "ce+tuned"})
    groups = group_runs(named)
    assert pick_best(named, groups).label == "ce+tuned"
    assert chosen_on(named, groups) == "test"
    (_, best, *_) = list_facts(named, groups, pick_best(named, groups))
    assert best.name == "ce+tuned (best other on test)"


def test_a_sweep_is_listed_in_its_own_order(sweep):
    study = read_study([sweep])
    groups = group_runs(study)
    assert groups[0].label == "alpha=0.5"
    tenths = [group.label for group in in_order(study, groups)]
    assert tenths == ["alpha=0.1", "alpha=0.3", "alpha=0.5", "alpha=0.7", "alpha=0.9"]


def _scored(run, dev, test):
    scores = {"dev": {"f1": dev}, "test": {"f1": test}}
    scores = {split: value for split, value in scores.items() if value["f1"] is not None}
    return replace(run, result={**run.result, "scores": scores})


@pytest.mark.parametrize(
    ("dev", "split", "best"),
    [((0.5, 0.7, 0.6), "dev", "b"), ((None, None, None), "test", "c")],
)
def test_the_best_is_chosen_on_dev_where_it_can_be(grid, dev, split, best):
    study = read_study([grid])
    names, test = ("a", "b", "c"), (0.5, 0.6, 0.9)
    runs = tuple(
        replace(_scored(study.runs[0], d, t), label=name)
        for name, d, t in zip(names, dev, test, strict=True)
    )
    study = replace(study, runs=runs, baseline="a", comparison={})
    groups = group_runs(study)
    assert chosen_on(study, groups) == split
    assert pick_best(study, groups).label == best
    assert pick_best(study, groups[:1]) is None
