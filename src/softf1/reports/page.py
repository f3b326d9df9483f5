"""Renders the page: one HTML file with its style, its scripts and its data inside.

It has sections with figures and text. A section that has nothing to show says why, or is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.files import write_text
from softf1.metrics.counts import name_score
from softf1.reports.curves import draw_learning, draw_operating, draw_recall
from softf1.reports.evidence import Evidence, make_changes_table, read_evidence
from softf1.reports.figures import Figure, Table, clean, policy_hash, raw, show, to_script_json
from softf1.reports.headroom import draw_headroom, make_examples, read_run_headroom, say_summary
from softf1.reports.labels import draw_confusion, draw_labels, make_groups, read_labels
from softf1.reports.overview import (
    list_facts,
    list_notes,
    list_warnings,
    make_calibration,
    make_comparison,
    make_origins,
    make_runs_table,
    make_settings,
    make_tuning,
    say_verdict,
)
from softf1.reports.reading import section
from softf1.reports.scores import draw_differences, draw_scores, draw_sweep, draw_trade
from softf1.reports.study import Group, Study, chosen_on, group_runs, pick_best, read_study

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSection:
    """A section of the page.

    Attributes:
        id: The target of links.
        title: Its heading.
        short: Its name in the navigation.
        text: How to read it.
        figures: Its plots.
        tables: Tables below the plots.
        missing: What to say if there are no plots; if empty, the page then leaves the section out.
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
) -> list[PageSection]:
    """Makes all sections with plots, in the order of the page."""
    sweep = _sweep(study)
    first = [sweep] if study.kind == "sweep" else []
    return [
        *first,
        _scores(study, groups),
        _labels(study, groups, best),
        _headroom(study, groups),
        _trade(study, groups),
        *([] if first else [sweep]),
        _learning(study, groups),
        _confusion(groups, best, evidence),
        _recall(study, groups, evidence),
        _operating(groups),
    ]


def _some(*figures: Figure | None) -> list[Figure]:
    return [figure for figure in figures if figure is not None]


def _scores(study: Study, groups: list[Group]) -> PageSection:
    score = name_score(study.metric)
    text = f"Every point is one run, every bar the mean of its row ({score}, ×100)."
    differences = draw_differences(study, groups)
    if differences:
        text += (
            f" Differences to {study.baseline} are paired by seed; the interval counts seeds and "
            "test examples. A filled point stays clear of zero after Holm's correction."
        )
    return PageSection(
        id="scores",
        title=f"{score} of every {'setting' if study.kind == 'sweep' else 'loss'}",
        short="Scores",
        text=text,
        figures=_some(differences, draw_scores(study, groups)),
    )


def _labels(study: Study, groups: list[Group], best: Group | None) -> PageSection:
    labels = [label for label in read_labels(study, groups) if label.f1]
    shown = {group.label for group in (groups[0], best) if group}
    table = make_groups(study, groups)
    return PageSection(
        id="labels",
        title="Labels, frequent and rare",
        short="Labels",
        text="A loss for imbalanced data should gain most on rare labels. "
        "Choose losses in the legend.",
        figures=draw_labels(labels, groups, shown),
        tables=[table] if table else [],
        missing="the scores have no labels",
    )


def _headroom(study: Study, groups: list[Group]) -> PageSection:
    headroom = read_run_headroom(study, groups)
    examples = make_examples(headroom) if headroom else None
    return PageSection(
        id="headroom",
        title="How much there is to gain, and where",
        short="Headroom",
        text=(say_summary(headroom) + " " if headroom else "")
        + "These are upper bounds, found in hindsight on the same examples. The steps of the plot "
        "add up to 100; the table has each part on its own.",
        figures=_some(draw_headroom(study, headroom)),
        tables=[examples] if examples else [],
        missing="no run has a headroom.json; softf1 headroom RUN writes it",
    )


def _trade(study: Study, groups: list[Group]) -> PageSection:
    return PageSection(
        id="trade",
        title="Precision and recall",
        short="Precision and recall",
        text="A loss that moves along a dotted line trades one for the other at the same F1; "
        "one that crosses the lines gains or loses. Small points are seeds, large ones means.",
        figures=_some(draw_trade(study, groups)),
        missing="the scores have no precision and recall, or both are one number",
    )


def _sweep(study: Study) -> PageSection:
    return PageSection(
        id="sweep",
        title="Sweep",
        short="Sweep",
        text="Bars are ± one standard deviation over seeds.",
        figures=_some(draw_sweep(study)),
        missing="no setting was given three or more numbers",
    )


def _learning(study: Study, groups: list[Group]) -> PageSection:
    return PageSection(
        id="learning",
        title="Learning curves",
        short="Learning",
        text="Thick lines are means over seeds, thin ones single runs. You cannot compare the "
        "values of different losses, and a lower value is not a better model.",
        figures=_some(*draw_learning(groups, study.metric)),
        missing="no run has metrics.jsonl",
    )


def _confusion(groups: list[Group], best: Group | None, evidence: Evidence) -> PageSection:
    pairs = {label: own for label, own in evidence.pairs.items() if own}
    unit = "words" if evidence.words else "texts"
    first = groups[0].label if groups[0].label in pairs else next(iter(pairs), "")
    second = best.label if best and best.label in pairs else first
    sides = [("left", first), ("right", second)][: 2 if len(pairs) > 1 else 1]
    figures = [draw_confusion(pairs, name, side=side, unit=unit) for side, name in sides if name]
    return PageSection(
        id="confusion",
        title="Confusion of labels",
        short="Confusion",
        text=f"Of the {unit} with a gold label (row), the percentage that got each label (column), "
        "over all seeds. Right ones are on the diagonal."
        + (" Row O has only the words that wrongly got a label." if evidence.words else ""),
        figures=_some(*figures),
        missing="no predictions with labels were found",
    )


def _recall(study: Study, groups: list[Group], evidence: Evidence) -> PageSection:
    return PageSection(
        id="recall",
        title="Precision-recall curves",
        short="Curves",
        text="Precision and recall at every threshold, means over seeds; the legend has average "
        "precision. If one curve lies above another everywhere, no threshold changes their order.",
        figures=_some(draw_recall(groups, evidence.ranked, study.split)),
        missing="the predictions hold no probabilities",
    )


def _operating(groups: list[Group]) -> PageSection:
    return PageSection(
        id="operating",
        title="Operating points",
        short="Points",
        text="Every threshold (or bias) along the curve, and the one that was chosen for "
        "eval.target (star). The bound is a 95% lower confidence bound of precision or recall. "
        "The point was chosen on dev, so trust the scores on test.",
        figures=_some(draw_operating(groups)),
    )


_FILES = Path(__file__).parent
_TOLD = ("task", "encoder")
_COMPARED = {"sweep": ("setting", "settings"), "runs": ("row", "rows")}
"""What a study compares, if not losses: one and several."""

EXTRA = "wanted plotly and jinja2 for reports: pip install 'softf1[report]'"


def write_report(
    paths: Sequence[Path | str], out: Path | str, *, notices: Sequence[str] = ()
) -> Path:
    """Writes the report of one grid folder, or of one or more run folders.

    Args:
        paths: A grid folder, or run folders.
        out: The HTML file to write or replace.
        notices: Sentences for the footer, such as the licence of the data.

    Returns:
        The file.
    """
    target = Path(out)
    study = read_study([Path(path) for path in paths])
    page = render(study, library=_plotly(), notices=notices)
    write_text(target, page)
    return target


def render(study: Study, *, library: str, notices: Sequence[str] = ()) -> str:
    """Renders the page as text.

    Args:
        study: The runs to show.
        library: The script of Plotly, which goes into the page.
        notices: Sentences for the footer.
    """
    return fill("page.html.j2", library, **make_context(study), notices=notices)


def fill(template: str, library: str = "", **context: Any) -> str:
    """Renders a template with style and scripts inlined; escapes everything from data.

    Args:
        template: The file of the template.
        library: The script of Plotly, if the page has plots.
        context: The variables of the template.
    """
    try:
        import jinja2
    except ImportError:
        raise InputError(EXTRA) from None
    script = (_FILES / "page.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FILES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"show": show, "raw": raw, "breakable": _breakable}
    text = environment.get_template(template).render(
        **context,
        style=(_FILES / "page.css").read_text(encoding="utf-8"),
        library=library,
        script=script,
        policy=_policy(library, script),
    )
    return clean(text)


def make_context(study: Study) -> dict[str, Any]:
    """The variables of the template."""
    rows = group_runs(study)
    groups = [group for group in rows if not group.reference]
    best = pick_best(study, groups)
    evidence = read_evidence(study, groups, best)
    sections = make_sections(study, groups, best, evidence)
    figures = {figure.id: figure for part in sections for figure in part.figures}
    tables = [make_comparison(study, rows), make_runs_table(study), make_settings(study)]
    tables += [make_origins(study), *(figure.table for figure in figures.values())]
    tables += [table for part in sections for table in part.tables]
    tables += filter(None, (make_calibration(study, rows), make_tuning(study)))
    if evidence.changes and best:
        tables.append(make_changes_table(evidence.changes, (groups[0].label, best.label)))
    data = {
        "figures": {name: figure.to_data() for name, figure in figures.items()},
        "tables": {table.id: table.to_data() for table in tables},
    }
    return {
        "study": study,
        "about": _about(study),
        "version": section(study.runs[0].result, "versions").get("softf1", ""),
        "title": _title(study),
        "score": name_score(study.metric),
        "groups": groups,
        "compared": _count_compared(study, groups),
        "best": best,
        "chosen_on": chosen_on(study, groups),
        "verdict": say_verdict(study, groups),
        "facts": list_facts(study, groups, best),
        "notes": list_notes(study, groups, best),
        "warnings": list_warnings(study),
        "sections": [part for part in sections if part.figures],
        "absent": [part for part in sections if part.missing and not part.figures],
        "changes": evidence.changes,
        "why_no_changes": evidence.why_no_changes or "no example changed",
        "tables": {table.id: table for table in tables},
        "data": to_script_json(data),
    }


def _breakable(text: str) -> Any:
    """A row's name as HTML that may wrap after a comma or a bracket."""
    from markupsafe import Markup, escape

    safe = str(escape(text))
    return Markup(safe.replace(",", ",<wbr>").replace("[", "<wbr>["))  # noqa: S704 - escaped above


def _title(study: Study) -> str:
    name = study.grid.get("name") or study.runs[0].result.get("name") or "runs"
    kinds = {"compare": "losses compared", "sweep": "sweep", "runs": "runs"}
    return f"{name}: {kinds.get(study.kind, study.kind)}"


def _count_compared(study: Study, groups: Sequence[Group]) -> str:
    count = sum(group.rank == 0 or group.competes for group in groups)
    one, several = _COMPARED.get(study.kind, ("loss", "losses"))
    return f"{count} {one if count == 1 else several}"


def _about(study: Study) -> str:
    """The tasks and encoders of the runs."""
    parts = [dict.fromkeys(str(r.result.get(key, "")) for r in study.trained) for key in _TOLD]
    return " · ".join(", ".join(part) for part in parts if any(part))


def _policy(*scripts: str) -> str:
    """The content security policy: no network, and no scripts but these."""
    allowed = " ".join(map(policy_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _plotly() -> str:
    """Plotly's script, from the Python package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InputError(EXTRA) from None
    # The browser hashes the script as the parser reads it, with \n for every end of line.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n").strip()
