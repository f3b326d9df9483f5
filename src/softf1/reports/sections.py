"""The parts of the page, each with its figures and its words; what cannot be shown says why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from softf1.reports.curves import read_learning
from softf1.reports.figures.confused import draw_confusion
from softf1.reports.figures.forest import draw_differences, draw_scores
from softf1.reports.figures.labels import draw_frequency, draw_labels
from softf1.reports.figures.learning import draw_loss, draw_progress
from softf1.reports.figures.recall import draw_recall
from softf1.reports.figures.sweep import draw_sweep
from softf1.reports.figures.trade import draw_trade
from softf1.reports.groups import name_score
from softf1.reports.labels import frequency_part, make_groups, read_labels

if TYPE_CHECKING:
    from softf1.reports.evidence import Evidence
    from softf1.reports.figures import Figure
    from softf1.reports.groups import Group
    from softf1.reports.study import Study
    from softf1.reports.tables import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of the page.

    Attributes:
        id: Where links lead.
        title: Its heading.
        short: Its name in the list of parts.
        text: How to read it.
        figures: Its plots.
        tables: Tables under them.
        missing: Why there are none.
    """

    id: str
    title: str
    short: str
    text: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    missing: str = ""


def make_sections(
    study: Study, groups: list[Group], best: Group | None, evidence: Evidence
) -> list[Section]:
    """All parts that are plots, in the order of the page."""
    sweep = _sweep(study)
    first = [sweep] if study.kind == "sweep" else []
    return [
        *first,
        _scores(study, groups),
        _labels(study, groups, best),
        _trade(study, groups),
        *([] if first else [sweep]),
        _learning(study, groups),
        _confusion(groups, best, evidence),
        _recall(study, groups, evidence),
    ]


def _some(*figures: Figure | None) -> list[Figure]:
    return [figure for figure in figures if figure is not None]


def _scores(study: Study, groups: list[Group]) -> Section:
    score = name_score(study.headline)
    text = f"Every point is one run, every bar the mean of its row ({score}, ×100)."
    differences = draw_differences(study, groups)
    if differences:
        text += (
            f" Differences to {study.baseline} are paired by seed; the interval counts seeds and "
            "test examples. A filled point stays clear of zero after Holm's correction."
        )
    return Section(
        id="scores",
        title=f"{score} of every {'setting' if study.kind == 'sweep' else 'loss'}",
        short="Scores",
        text=text,
        figures=_some(differences, draw_scores(study, groups)),
    )


def _labels(study: Study, groups: list[Group], best: Group | None) -> Section:
    labels = [label for label in read_labels(study, groups) if label.f1]
    shown = {group.label for group in (groups[0], best) if group}
    part, table = frequency_part(labels), make_groups(study, groups)
    return Section(
        id="labels",
        title="Labels, frequent and rare",
        short="Labels",
        text="Losses for imbalanced data should earn their keep where labels are rare. "
        "Choose losses in the legend.",
        figures=[
            draw_frequency(labels, groups, shown, part=part),
            draw_labels(labels, groups, shown, part=part),
        ]
        if labels
        else [],
        tables=[table] if table else [],
        missing="the scores have no labels",
    )


def _trade(study: Study, groups: list[Group]) -> Section:
    return Section(
        id="trade",
        title="Precision and recall",
        short="Precision and recall",
        text="A loss that moves along a dotted line trades one for the other at the same F1; "
        "one that crosses the lines gains or loses. Small points are seeds, large ones means.",
        figures=_some(draw_trade(study, groups)),
        missing="the scores have no precision and recall, or both are one number",
    )


def _sweep(study: Study) -> Section:
    figure = draw_sweep(study)
    return Section(
        id="sweep",
        title="Sweep",
        short="Sweep",
        text="Bars are one standard deviation over seeds either way.",
        figures=_some(figure),
        missing="no setting was given three or more numbers",
    )


def _learning(study: Study, groups: list[Group]) -> Section:
    read = {
        group.label: [
            read_learning(run.folder / "metrics.jsonl", study.headline) for run in group.runs
        ]
        for group in groups
        if not group.tuned
    }
    groups = [group for group in groups if group.label in read]
    scores, losses = (
        {label: [pair[i] for pair in pairs if len(pair[i].x)] for label, pairs in read.items()}
        for i in (0, 1)
    )
    return Section(
        id="learning",
        title="Learning curves",
        short="Learning",
        text="Thick lines are means over seeds, thin ones single runs. The values of different "
        "losses do not compare with each other, and a lower one is not a better model.",
        figures=_some(draw_progress(groups, scores, study.headline), draw_loss(groups, losses)),
        missing="no run has metrics.jsonl",
    )


def _confusion(groups: list[Group], best: Group | None, evidence: Evidence) -> Section:
    pairs = {label: own for label, own in evidence.pairs.items() if own}
    unit = "words" if evidence.words else "texts"
    first = groups[0].label if groups[0].label in pairs else next(iter(pairs), "")
    second = best.label if best and best.label in pairs else first
    sides = [("left", first), ("right", second)][: 2 if len(pairs) > 1 else 1]
    figures = [draw_confusion(pairs, name, side=side, unit=unit) for side, name in sides if name]
    return Section(
        id="confusion",
        title="Confusion of labels",
        short="Confusion",
        text=f"Of the {unit} with a gold label (row), the percentage that got each label (column), "
        "over all seeds. Right ones are on the diagonal."
        + (" Row O has only the words that wrongly got a label." if evidence.words else ""),
        figures=_some(*figures),
        missing="no predictions with labels were found",
    )


def _recall(study: Study, groups: list[Group], evidence: Evidence) -> Section:
    return Section(
        id="recall",
        title="Precision-recall curves",
        short="Curves",
        text="What every threshold would give, means over seeds; the legend has average precision. "
        "Where a curve lies above another everywhere, no threshold turns that round.",
        figures=_some(draw_recall(groups, evidence.ranked, study.split)),
        missing="the predictions hold no probabilities",
    )
