"""The tables of results/corpora-rows.csv, written into the documentation between their marks.

    python benchmarks/corpora_table.py

One of them, docs/paper.md, also shows what `auto` gains, from results/gains.csv: run this after
gains.py.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from corpora import ROWS, RUNS, read_csv, read_grids
from scipy.special import stdtr

from softf1.experiments.statistics import correct_holm, t_quantile
from softf1.experiments.tables import find_table, is_printed

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[1] / "docs"
GAINS = Path(__file__).parent / "results" / "gains.csv"
NAMES = {
    "ce+tuned": "CE, tuned",
    "wce": "weighted CE",
    "la": "logit adj.",
    "focal": "focal",
    "dice": "dice",
    "tversky": "Tversky",
    "dsc": "DSC",
    "dsc[decay=paper]": "DSC, paper's decay",
    "authors": "DSC, authors'",
    "ce+dice": "CE + dice",
}
HEADS = (
    "tuned",
    "wCE",
    "LA",
    "focal",
    "dice",
    "Tversky",
    "DSC",
    "DSC pap.",
    "DSC auth.",
    "CE+dice",
)
"""The same in few letters."""
PRINTED = {"ce": "ce", "wce": "wce", "focal": "focal", "dice": "dice", "authors": "dsc"}
"""Our rows that stand for a row of the paper."""
MODELS = {"en": "MiniLM, 6 layers", "zh": "Chinese BERT, 6 layers", "": "text CNN"}
JOBS = 15
"""Runs that shared the GPU."""
Row = dict[str, Any]


def read_rows() -> dict[str, dict[str, Row]]:
    """Rows by grid and loss, numbers as numbers; folds put together."""
    grids: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in read_csv(ROWS):
        numbers = {key: _number(value) for key, value in row.items()}
        loss = "authors" if row["loss"].startswith("dsc[alpha") else row["loss"]
        grids[row["grid"]][loss] = {**numbers, "loss": loss}
    folds = sorted(name for name in grids if unfold(name) != name)
    if folds:
        grids["tweets"] = join_folds([grids.pop(name) for name in folds])
    return grids


def _number(value: str) -> Any:
    try:
        return float(value)
    except ValueError:
        return value or None


def join_folds(folds: list[dict[str, Row]]) -> dict[str, Row]:
    """Means over folds; the interval is Student's over their differences.

    Folds share what they are trained on, so that their differences are not independent: the
    variance is that of Nadeau and Bengio (2003), with test a third of the size of train.
    """
    joined = {}
    for loss, first in folds[0].items():
        own = [fold[loss] for fold in folds]
        means = [row["mean"] for row in own]
        joined[loss] = {**first, "n": len(own), "mean": fmean(means), "sd": stdev(means)}
        if loss != "ce":
            gains = [row["difference"] for row in own]
            mean, df = fmean(gains), len(gains) - 1
            error = stdev(gains) * math.sqrt(1 / len(gains) + 1 / 3)
            half = t_quantile(0.975, df) * error
            p = 2 * stdtr(df, -abs(mean) / error) if error else 1.0
            joined[loss] |= {"difference": mean, "low": mean - half, "high": mean + half, "p": p}
    corrected = correct_holm([row["p"] for loss, row in joined.items() if loss != "ce"])
    others = (row for loss, row in joined.items() if loss != "ce")
    for row, p in zip(others, corrected, strict=True):
        row["p_holm"] = p
    return joined


def minutes(name: str) -> float:
    """GPU minutes of a grid: the seconds of its runs, trials too, over the runs at a time."""
    own = (row for row in read_csv(RUNS) if unfold(row["grid"]) == name)
    return sum(float(row["seconds"]) for row in own if not row["hash"].endswith("+")) / JOBS / 60


def printed(grid: Row) -> dict[str, float]:
    """The paper's figures by its losses."""
    if "paper" not in grid:
        return {}
    table, dataset, recipe = grid["paper"]
    parts = find_table(table).parts
    part = next(p for p in parts if (p.dataset, p.recipe) == (dataset, recipe))
    return {row[1]: row[-1] for row in part.rows if is_printed(row[-1])}


def printed_gain(grid: Row, loss: str) -> float | None:
    """The paper's gain over cross entropy."""
    figures = printed(grid)
    return figures[loss] - figures["ce"] if {loss, "ce"} <= figures.keys() else None


def seeds(name: str, row: Row) -> str:
    """How many; of folds, one each."""
    return f"{row['n']:.0f} folds" if name == "tweets" else f"{row['n']:.0f}"


def points(value: float | None) -> str:
    """A gain in points, with a minus that is one."""
    if value is None:
        return ""
    return "0.0" if abs(value) < 0.05 else f"{value:+.1f}".replace("-", "−")


def gain(row: Row | None) -> str:
    """A gain over cross entropy; bold where it is sure."""
    if row is None or row["difference"] is None:
        return "–"
    text = points(100 * row["difference"])
    return f"**{text}**" if row["p_holm"] is not None and row["p_holm"] < 0.05 else text


def overview(rows: dict[str, dict[str, Row]]) -> str:
    """A line a corpus: cross entropy, the gain of every other loss, and what the paper prints."""
    heads = ["data (seeds)", "CE", *HEADS, "paper", "min"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name, grid, own in compared(rows):
        base, paper = own["ce"], printed_gain(grid, "dsc")
        shown = [gain(own.get(loss)) for loss in NAMES]
        theirs = "–" if paper is None else points(paper)
        data = f"{grid['short']} ({seeds(name, base)})"
        lines.append([data, spread(base), *shown, theirs, f"{minutes(name):.1f}"])
    return _markdown(lines)


def spread(row: Row) -> str:
    """Mean and deviation, on one line."""
    return f"{100 * row['mean']:.1f}\u00a0±\u00a0{100 * (row['sd'] or 0):.1f}"


def short(rows: dict[str, dict[str, Row]]) -> str:
    """A line a corpus: the losses that matter most, with intervals, beside the paper."""
    heads = ["data", "model", "seeds", "CE", "DSC, authors'", "CE + dice", "best other"]
    heads += ["paper: CE", "DSC", "gain", "min"]
    lines = [heads, ["---", "---", *["---:"] * 4, "---", *["---:"] * 4]]
    for name, grid, own in compared(rows):
        paper = printed(grid)
        shown = [interval(own["authors"]), interval(own["ce+dice"]), best_other(own)]
        theirs = [f"{paper[loss]:.1f}" if loss in paper else "–" for loss in ("ce", "dsc")]
        theirs.append(points(printed_gain(grid, "dsc")) or "–")
        model = MODELS[grid.get("encoder", "")]
        start = [grid["title"], model, seeds(name, own["ce"]), spread(own["ce"])]
        lines.append([*start, *shown, *theirs, f"{minutes(name):.1f}"])
    return _markdown(lines)


def answers(rows: dict[str, dict[str, Row]]) -> str:
    """A line for each task with a gain in the paper: that gain, and ours with three ways to train.

    Tasks with a gain of `auto` stand first, those with nothing but that last.
    """
    autos = {row["grid"]: row for row in read_csv(GAINS)}
    heads = ["data", "the paper, DSC", "DSC, authors' settings", "CE + dice", "`auto`"]
    lines = [heads, ["---", *["---:"] * 4]]
    alone = [(name, grid, {}) for name, grid in titles().items() if name in autos.keys() - rows]
    shown = [one for one in (*compared(rows), *alone) if printed_gain(one[1], "dsc") is not None]
    for name, grid, own in sorted(shown, key=lambda one: one[0] not in autos):
        ours = [interval(own[loss]) if own else "not measured" for loss in ("authors", "ce+dice")]
        theirs = points(printed_gain(grid, "dsc"))
        lines.append([grid["title"], theirs, *ours, auto_gain(autos.get(name))])
    return _markdown(lines)


def auto_gain(row: Row | None) -> str:
    """What `auto` gains with half of its interval; bold where that leaves out 0.

    A dagger marks an interval over seeds alone.
    """
    if row is None:
        return ""
    value, half = float(row["gain"]), float(row["half"] or 0)
    text = points(value)
    if not half:
        return f"{text}\u00a0(1\u00a0seed)"
    alone = "" if int(row["examples"]) else "†"
    return f"{f'**{text}**' if abs(value) > half else text}\u00a0±\u00a0{half:.1f}{alone}"


def best_other(own: dict[str, Row]) -> str:
    """The best of the losses that have no column."""
    others = [loss for loss in NAMES if loss not in ("authors", "ce+dice")]
    best = max(others, key=lambda loss: float(own[loss]["difference"]))
    return f"{NAMES[best]} {interval(own[best])}"


def interval(row: Row) -> str:
    """A gain over cross entropy with its interval; bold where it is sure."""
    low, high = (points(100 * row[key]).removeprefix("+") for key in ("low", "high"))
    return f"{gain(row)} [{low}, {high}]".replace(" ", "\u00a0")


def compared(rows: dict[str, dict[str, Row]]) -> Iterator[tuple[str, Row, dict[str, Row]]]:
    """Name, description and rows of the grids that compare losses and are done."""
    for name, grid in titles().items():
        if name in rows and grid.get("kind") not in ("sweep", "reproduce"):
            yield name, grid, rows[name]


def titles() -> dict[str, Row]:
    """The grids by name; folds are one."""
    return {unfold(name): grid for name, grid in read_grids().items()}


def unfold(name: str) -> str:
    """The name of a grid without the number of its fold."""
    return re.sub(r"^(tweets)-\d+$", r"\1", name)


def details(rows: dict[str, dict[str, Row]]) -> str:
    """A table a corpus: every row with its interval."""
    parts = []
    for name, grid, own in compared(rows):
        first, figures = next(iter(own.values())), printed(grid)
        score = first["headline"].replace("_", " ")
        heads = ["loss", score, "± sd", "gain", "95%", "p", "paper", "its gain"]
        lines = [heads, ["---", *["---:"] * 7]]
        for loss, row in own.items():
            shown, theirs = {"ce": "CE", **NAMES}.get(loss, loss), PRINTED.get(loss, "")
            paper = f"{figures[theirs]:.2f}" if theirs in figures else ""
            gained = printed_gain(grid, theirs) if theirs != "ce" else None
            lines.append([shown, *_figures(row), paper, points(gained)])
        about = f"{MODELS[grid.get('encoder', '')]}; seeds: {seeds(name, first)}; GPU minutes: "
        about += f"{minutes(name):.1f}"
        parts.append(f"### {grid['title']}\n\n{about}\n\n{_markdown(lines)}")
    return "\n\n".join(parts)


def _figures(row: Row) -> list[str]:
    figures = [f"{100 * row['mean']:.2f}", "" if row["sd"] is None else f"{100 * row['sd']:.2f}"]
    if row["difference"] is None:
        return [*figures, "", "", ""]
    figures.append(f"{100 * row['difference']:+.2f}".replace("-", "−"))
    if row["low"] is None:
        return [*figures, "", ""]
    interval = f"{100 * row['low']:.2f} … {100 * row['high']:.2f}".replace("-", "−")
    return [*figures, interval, "" if row["p"] is None else f"{row['p_holm']:.3f}"]


def sweeps(rows: dict[str, dict[str, Row]]) -> str:
    """Tversky's alpha: ours and the paper's."""
    parts = []
    for name, grid in titles().items():
        if grid.get("kind") != "sweep" or name not in rows:
            continue
        table, dataset, recipe = grid["paper"]
        part = next(p for p in find_table(table).parts if p.recipe == recipe)
        printed = {f"alpha={row[1]:g}": row[-1] for row in part.rows}
        lines = [
            ["alpha", "F1", "± sd", "P", "R", "to 0.5", "95%", f"paper: {dataset}"],
            ["---:"] * 8,
        ]
        for loss in sorted(rows[name]):
            row = rows[name][loss]
            figures = (row["mean"], row["sd"], row["precision"], row["recall"])
            shown = ["–" if value is None else f"{100 * value:.2f}" for value in figures]
            shown += _figures(row)[2:4]
            lines.append([loss.removeprefix("alpha="), *shown, f"{printed[loss]:.2f}"])
        about = f"{MODELS[grid['encoder']]}; seeds: {row['n']:.0f}; GPU minutes: "
        about += f"{minutes(name):.1f}"
        parts.append(f"### {grid['title']}\n\n{about}\n\n{_markdown(lines)}")
    return "\n\n".join(parts)


def balance(rows: dict[str, dict[str, Row]]) -> str:
    """Re-balanced pairs: cross entropy and the authors' DSC."""
    lines = [["training pairs", "CE", "DSC, authors'", "gain", "95%"], ["---", *["---:"] * 4]]
    for name, own in rows.items():
        table, _, folder = name.partition(": ")
        if table == "qqp-balance":
            shown = folder.removeprefix("qqp") or "as they are, 37% positive"
            mean, _, gained, interval, _ = _figures(own["dsc"])
            lines.append([shown, f"{100 * own['ce']['mean']:.2f}", mean, gained, interval])
    return _markdown(lines)


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill(path: Path, mark: str, text: str) -> None:
    """Put a text between the marks of a file."""
    start, end = f"<!-- {mark} -->\n", f"\n<!-- end of {mark} -->"
    before, _, rest = path.read_text("utf-8").partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{path}: wanted the marks {start.strip()} and {end.strip()}")
    path.write_text(f"{before}{start}\n{text}\n{end}{after}", "utf-8")


TABLES = {
    "corpora.md": {
        "corpora": overview,
        "paper": short,
        "details": details,
        "balance": balance,
        "sweeps": sweeps,
    },
    "paper.md": {"answers": answers},
}
"""The tables of each page, by the marks that they stand between."""


def main() -> None:
    """Write all tables."""
    rows = read_rows()
    for page, tables in TABLES.items():
        for mark, make in tables.items():
            fill(DOCS / page, mark, make(rows))


if __name__ == "__main__":
    main()
