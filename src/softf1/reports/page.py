"""Renders the page: one HTML file with its style, its scripts and its data inside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.files import new_file
from softf1.reports.changes import make_table as changes_table
from softf1.reports.embed import clean, policy_hash, to_json
from softf1.reports.evidence import gather
from softf1.reports.files import section
from softf1.reports.groups import chosen_on, group_runs, name_score, pick_best
from softf1.reports.overview import list_facts, list_notes, make_comparison, say_verdict
from softf1.reports.sections import make_sections
from softf1.reports.settings import (
    list_warnings,
    make_origins,
    make_runs,
    make_settings,
    make_tuning,
)
from softf1.reports.study import Study, read_study
from softf1.reports.tables import raw, show

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILES = Path(__file__).parent
_TOLD = ("task", "encoder")
_EXTRA = "wanted plotly and jinja2 for reports: pip install 'softf1[report]'"


def write_report(
    paths: Sequence[Path | str], out: Path | str, *, notices: Sequence[str] = ()
) -> Path:
    """Writes the report of one grid folder, or of one or more run folders.

    Args:
        paths: A grid folder, or run folders.
        out: The HTML file, which is replaced as a whole.
        notices: Sentences for its foot, such as the licence of the data that it shows.

    Returns:
        The file.
    """
    target = Path(out)
    study = read_study([Path(path) for path in paths])
    page = render(study, library=_plotly(), notices=notices)
    with new_file(target) as file:
        file.write(page.encode())
    return target


def render(study: Study, *, library: str, notices: Sequence[str] = ()) -> str:
    """The page as text.

    Args:
        study: What it is about.
        library: The script of Plotly, which goes into the page.
        notices: Sentences for its foot.
    """
    try:
        import jinja2
    except ImportError:
        raise InputError(_EXTRA) from None
    context = make_context(study)
    script = (_FILES / "page.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FILES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"show": show, "raw": raw, "breakable": _breakable}
    text = environment.get_template("page.html.j2").render(
        **context,
        notices=notices,
        style=(_FILES / "page.css").read_text(encoding="utf-8"),
        library=library,
        script=script,
        policy=_policy(library, script),
    )
    return clean(text)


def make_context(study: Study) -> dict[str, Any]:
    """What the template shows."""
    rows = group_runs(study)
    groups = [group for group in rows if not group.reference]
    best = pick_best(groups, study.headline)
    evidence = gather(study, groups, best)
    sections = make_sections(study, groups, best, evidence)
    figures = {figure.id: figure for part in sections for figure in part.figures}
    tables = [make_comparison(study, rows), make_runs(study), make_settings(study)]
    tables += [make_origins(study), *(figure.table for figure in figures.values())]
    tables += [table for part in sections for table in part.tables]
    tuning = make_tuning(study)
    tables += [tuning] if tuning else []
    if evidence.changes and best:
        tables.append(changes_table(evidence.changes, (groups[0].label, best.label)))
    data = {
        "figures": {name: figure.to_data() for name, figure in figures.items()},
        "tables": {table.id: table.to_data() for table in tables},
    }
    return {
        "study": study,
        "about": _about(study),
        "version": section(study.runs[0].result, "versions").get("softf1", ""),
        "title": _title(study),
        "score": name_score(study.headline),
        "groups": groups,
        "best": best,
        "chosen_on": chosen_on(groups, study.headline),
        "verdict": say_verdict(study, groups),
        "facts": list_facts(study, groups, best),
        "notes": list_notes(study, groups, best),
        "warnings": list_warnings(study),
        "sections": [part for part in sections if part.figures],
        "absent": [part for part in sections if not part.figures],
        "changes": evidence.changes,
        "why_no_changes": evidence.why_no_changes or "no example changed",
        "tables": {table.id: table for table in tables},
        "data": to_json(data),
    }


def _breakable(text: str) -> Any:
    """A row's name as HTML that may go on in another line after a comma or a bracket."""
    from markupsafe import Markup, escape

    safe = str(escape(text))
    return Markup(safe.replace(",", ",<wbr>").replace("[", "<wbr>["))  # noqa: S704 - escaped above


def _title(study: Study) -> str:
    name = study.grid.get("name") or study.runs[0].result.get("name") or "runs"
    kinds = {"compare": "losses compared", "sweep": "sweep", "runs": "runs"}
    return f"{name}: {kinds.get(study.kind, study.kind)}"


def _about(study: Study) -> str:
    """What was trained: tasks and encoders of the runs."""
    parts = [dict.fromkeys(str(r.result.get(key, "")) for r in study.trained) for key in _TOLD]
    return " · ".join(", ".join(part) for part in parts if any(part))


def _policy(*scripts: str) -> str:
    """No network at all, and no script but these."""
    allowed = " ".join(map(policy_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _plotly() -> str:
    """Plotly's own script, as the Python package carries it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InputError(_EXTRA) from None
    # The browser hashes the script as the parser reads it, with \n for every end of line.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n").strip()
