"""The text and tables of the page: the verdict, its evidence, settings and runs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from softf1.files import flatten
from softf1.metrics.counts import name_score
from softf1.reports.figures import Column, Table, columns, shorten, show
from softf1.reports.reading import items_of, number, objects_of, section
from softf1.reports.study import Group, Study, chosen_on, deviation, in_order, mean_of


class Fact(NamedTuple):
    """A key figure with its label and an explanation."""

    name: str
    value: str
    note: str = ""


def say_verdict(study: Study, groups: list[Group]) -> str:
    """Returns the verdict of the grid; for plain runs, which has the highest mean."""
    verdict = study.comparison.get("verdict")
    if verdict:
        return str(verdict)
    means = {g.label: mean_of(g.scores(study.split, study.metric)) for g in groups}
    known = {label: value for label, value in means.items() if value is not None}
    score = f"{name_score(study.metric)} on {study.split}"
    if not known:
        return f"No run has {score}."
    top = max(known, key=lambda label: known[label])
    if len(known) == 1:
        return f"{top}: {show(known[top], 'score')} {score}."
    if study.split in find_mismatches(study):
        return f"No verdict: the runs have other {study.split} data, so scores cannot be compared."
    highest = show(known[top], "score")
    *others, last = (label for label, mean in known.items() if show(mean, "score") == highest)
    who = f"{', '.join(others)} and {last} have" if others else f"{last} has"
    return (
        f"{who} the highest mean, {highest} {score}, of {len(known)}. "
        "These files cannot show whether that is more than chance; softf1 compare can."
    )


def list_facts(study: Study, groups: list[Group], best: Group | None) -> list[Fact]:
    """The baseline, the best loss, their difference, and the size of the evidence."""
    score, split = name_score(study.metric), chosen_on(study, groups)
    facts = []
    for group in filter(None, (groups[0], best)):
        values = group.scores(study.split, study.metric)
        spread = deviation(values)
        note = "1 run" if spread is None else f"± {show(spread, 'score')} over {len(values)} seeds"
        role = f"best other on {split}" if group is best else "baseline" if best else score
        facts.append(Fact(f"{group.label} ({role})", show(mean_of(values), "score"), note))
    if best and number(best.row.get("difference")) is not None:
        value, low, high = (
            show(number(best.row.get(key)), "points") for key in ("difference", "low", "high")
        )
        facts.append(Fact(f"{best.label} − {groups[0].label}", value, f"95%: {low} to {high}"))
        p_holm = number(best.row.get("p_holm"))
        if p_holm is not None:
            losses = sum(group.competes for group in groups[1:])
            among = f" among {losses} losses" if losses > 1 else ""
            note = f"p {show(p_holm, 'p')}{among}"
            facts.append(Fact("is that more than chance?", _answer(best), note))
    return facts


def _answer(best: Group) -> str:
    """The verdict of a row, in a few words."""
    said = str(best.row.get("verdict") or "").partition(";")[0].partition(",")[0]
    return "not shown" if said.startswith(("no difference", "one seed")) else said


def list_notes(study: Study, groups: list[Group], best: Group | None) -> list[str]:
    """Caveats that a reader should know before trusting the verdict."""
    notes = [_say_noise(study, best)] if best else []
    notes += [_say_support(study)]
    if study.unfinished:
        names = ", ".join(f"{name} ({state})" for name, state in study.unfinished[:8])
        more = f" and {len(study.unfinished) - 8} more" if len(study.unfinished) > 8 else ""
        count = len(study.unfinished)
        missing = "1 run has" if count == 1 else f"{count} runs have"
        notes.append(f"{missing} no result: {names}{more}.")
    parts = find_mismatches(study)
    if parts:
        notes.append(f"The runs differ in their {' and '.join(parts)} data: do not compare scores.")
    sizes = {len(group.runs) for group in groups}
    if len(sizes) > 1:
        notes.append(f"Rows have from {min(sizes)} to {max(sizes)} runs.")
    if not study.comparison:  # a comparison has its own notes
        notes += _say_collapsed(groups)
        notes += _say_data(study)
    notes += [
        f"{note[:1].upper()}{note[1:]}."
        for note in map(str, items_of(study.comparison.get("notes")))
    ]
    return [note for note in notes if note]


def _say_data(study: Study) -> list[str]:
    """Notes that all runs have: they are about the files, such as texts of test in train."""
    first, *others = (items_of(run.result.get("notes")) for run in study.runs)
    shared = [str(note) for note in first if all(note in other for other in others)]
    return [f"{note[:1].upper()}{note[1:]}." for note in shared]


def _say_collapsed(groups: list[Group]) -> list[str]:
    """Notes about rows whose runs collapsed: they predict nothing, or a single class, on dev."""
    return [
        f"{count} of {len(group.runs)} runs of {group.label} collapsed: on dev they predict "
        "nothing, or only one class."
        for group in groups
        if (count := sum(run.result.get("collapsed") is True for run in group.runs))
    ]


def _say_noise(study: Study, best: Group) -> str:
    seeds, examples = (number(best.row.get(key)) for key in ("sd_seeds", "sd_examples"))
    runs = number(best.row.get("n")) or len(best.runs)
    if seeds is None or examples is None:
        return ""
    of_seeds = seeds / math.sqrt(runs)
    larger = "more test data" if examples > of_seeds else "more seeds"
    count = number(study.comparison.get("examples"))
    drawn = f"the choice of {count:,.0f} test examples" if count else "the choice of test examples"
    own = f"{runs:.0f} seeds" if runs > 1 else "one seed"
    if count and not examples:
        return (
            f"The difference of {best.label} has a standard error of {show(of_seeds, 'score')} "
            f"points; what {drawn} adds cannot be told apart from what its {own} add."
        )
    narrowest = number(best.row.get("narrowest"))
    least = f" However many seeds are run, it stays at ± {show(narrowest, 'score')} or more."
    return (
        f"The difference of {best.label} has a standard error of {show(of_seeds, 'score')} points "
        f"from its {own} and {show(examples, 'score')} from {drawn}: "
        f"{larger} would narrow the interval most." + (least if narrowest else "")
    )


def _say_support(study: Study) -> str:
    """A note about the precision of a score on this many gold items."""
    run = next((run for run in study.runs if run.label == study.baseline), study.runs[0])
    scores = section(run.result, "scores", study.split)
    labels, recall = section(scores, "labels"), number(scores.get("recall"))
    counted = _find_positive(scores) or list(labels)
    total = math.fsum(number(section(labels, name).get("support")) or 0.0 for name in counted)
    if not total or recall is None or not 0 < recall < 1:
        return ""
    half = 1.96 * math.sqrt(recall * (1 - recall) / total)
    return (
        f"The {study.split} set has {total:,.0f} gold items of "
        f"{counted[0] if len(counted) == 1 else f'{len(counted)} labels'}, so a recall "
        f"of {show(recall, 'share')}% is known to about ±{show(half, 'share')} points. Paired "
        "differences are known more precisely than single scores."
    )


def _find_positive(scores: Mapping[str, Any]) -> list[str]:
    """The positive one of two labels, whose precision and recall are those of the task."""
    labels = section(scores, "labels")
    whole = [number(scores.get(key)) for key in ("precision", "recall")]
    same = [
        name
        for name in labels
        if [number(section(labels, name).get(key)) for key in ("precision", "recall")] == whole
    ]
    return same if len(labels) == 2 and len(same) == 1 else []


_TESTS = ("difference", "low", "high", "p_holm")


def make_comparison(study: Study, groups: list[Group]) -> Table:
    """The table of losses, the best first."""
    score = name_score(study.metric)
    tested = any(group.row for group in groups)
    ordered = sorted(groups, key=lambda g: -(number(_value(study, g, "mean")) or 0.0))
    if study.kind == "sweep":
        ordered = in_order(study, groups)
    tests = columns(
        Column("difference", "Δ", "points"),
        Column("low", "95% low", "points"),
        Column("high", "95% high", "points"),
        Column("p_holm", "p (Holm)", "p"),
    )
    more = columns("precision:score", "recall:score")
    shown = (
        Column("loss", "Loss" if study.kind != "sweep" else "Setting"),
        Column("n", "Runs", "int"),
        Column("mean", score, "score"),
        Column("sd", "sd", "score"),
        *(tests if tested else ()),
        *(column for column in more if _tells(study, groups, column.key)),
        *(columns("verdict:verdict") if tested else ()),
    )
    rows = [[_value(study, group, column.key) for column in shown] for group in ordered]
    base = next(i for i, group in enumerate(ordered) if group.rank == 0)
    return Table(
        id="comparison",
        caption=f"{score} on {study.split}, ×100: means over seeds"
        + (f"; Δ is the difference to {study.baseline}" if tested else ""),
        columns=shown,
        rows=rows,
        marked=frozenset([base]),
    )


_ERRORS = {"calibration_error": "ECE", "calibration_error_tuned": "ECE tuned"}


def make_calibration(study: Study, groups: list[Group]) -> Table | None:
    """The table of expected calibration errors, for rows that have one."""
    errors = {group.label: [number(group.row.get(key)) for key in _ERRORS] for group in groups}
    errors = {label: own for label, own in errors.items() if own[0] is not None}
    if not errors:
        return None
    tuned = any(own[1] is not None for own in errors.values())
    shown = [Column(key, title, "score") for key, title in _ERRORS.items()][: 1 + tuned]
    return Table(
        id="calibration",
        caption=f"Expected calibration error on {study.split}, ×100: means over seeds",
        columns=columns("loss", *shown),
        rows=[[label, *own[: 1 + tuned]] for label, own in errors.items()],
    )


def _tells(study: Study, groups: list[Group], key: str) -> bool:
    """Whether a column says more than the score: precision does not, with one label per text."""
    pairs = [(_value(study, group, key), _value(study, group, "mean")) for group in groups]
    return any(own is not None and own != score for own, score in pairs)


def _value(study: Study, group: Group, key: str) -> object:
    """The value of a row in a column: from the comparison, else from its runs."""
    if key == "loss":
        return group.label
    if key == "verdict":
        return _explain(group, study.baseline) if group.rank else "baseline"
    if key in _TESTS and group.rank == 0:
        return None
    own = number(group.row.get(key))
    if key == "n":
        return len(group.runs) if own is None else int(own)
    if own is None and key in ("mean", "sd", "precision", "recall"):
        kind = "macro_" if study.metric == "macro_f1" else ""
        name = study.metric if key in ("mean", "sd") else f"{kind}{key}"
        scores = group.scores(study.split, name)
        return deviation(scores) if key == "sd" else mean_of(scores)
    return own


def _explain(group: Group, baseline: str) -> str:
    """The verdict, and after a semicolon the reason."""
    said, _, rest = str(group.row.get("verdict") or "").partition("; ")
    chance = number(group.row.get("probability"))
    parts = [rest] if rest else []
    if said.startswith("no difference that"):
        said, parts = "no difference shown", [said, *parts]
    if chance is not None and group.competes and said not in ("helps", "hurts", "no verdict"):
        parts.append(
            f"taken alone, it is above {baseline} with a probability of {show(chance, 'chance')}%; "
            "p is corrected for the number of losses"
        )
    return "; ".join([said, *parts])


_SECONDS = ("total", "train", "evaluate")


def make_settings(study: Study) -> Table:
    """Makes the table of settings: the value of each, or all values where runs differ."""
    recipes = [flatten(section(run.result, "recipe")) for run in study.trained]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    return Table(
        id="settings",
        caption="Settings of the recipe; where runs differ, every value",
        columns=columns("setting", "value"),
        rows=[[key, _values(recipe.get(key) for recipe in recipes)] for key in keys],
    )


def make_origins(study: Study) -> Table:
    """The table of versions, devices and data files."""
    results = [run.result for run in study.trained]
    names = dict.fromkeys(key for result in results for key in section(result, "versions"))
    origins = {name: [section(r, "versions").get(name) for r in results] for name in names}
    origins |= {name: [r.get(name) for r in results] for name in ("device", "world", "precision")}
    for part in dict.fromkeys(key for result in results for key in section(result, "data")):
        for key in ("path", "examples", "sha256"):
            origins[f"{part} {key}"] = [section(r, "data", part).get(key) for r in results]
    rows = [
        [name, _values(values)]
        for name, values in origins.items()
        if any(value is not None for value in values)
    ]
    return Table(
        id="origins",
        caption="Versions, machine and data",
        columns=columns("what", "value"),
        rows=rows,
    )


def make_runs_table(study: Study) -> Table:
    """The table of runs."""
    score = study.metric
    splits = [
        split
        for split in dict.fromkeys(("dev", study.split))
        if any(run.score(split, score) is not None for run in study.trained)
    ]
    return Table(
        id="runs",
        caption="Every run",
        columns=columns(
            "run",
            "loss",
            "seed:int",
            *(Column(f"{s}_{score}", f"{name_score(score)} {s}", "score") for s in splits),
            "best_epoch:number",
            "steps:int",
            *(Column(f"seconds_{name}", f"s {name}", "seconds") for name in _SECONDS),
            Column("tokens_per_second", "Tokens/s", "int"),
            Column("peak_memory_mib", "Peak MiB", "int"),
        ),
        rows=[
            [
                run.id,
                run.label,
                run.seed,
                *(run.score(split, score) for split in splits),
                number(section(run.result, "best").get("epoch")),
                number(run.result.get("steps")),
                *(number(section(run.result, "seconds").get(name)) for name in _SECONDS),
                number(run.result.get("tokens_per_second")),
                _mib(run.result.get("peak_memory")),
            ]
            for run in study.trained
        ],
    )


def make_tuning(study: Study) -> Table | None:
    """The table of trials that chose settings on dev."""
    trials = objects_of(study.grid.get("tuning"))
    if not trials:
        return None
    keys = dict.fromkeys(key for trial in trials for key in section(trial, "values"))
    told = [key for key in keys if len({_write(section(t, "values").get(key)) for t in trials}) > 1]
    told = [key for key in told if key != "loss.name"]
    return Table(
        id="tuning",
        caption="Tuning runs, scored on dev, the same number for each loss",
        columns=columns(
            "loss",
            Column("score", f"{name_score(study.metric)} dev", "score"),
            Column("share", "Share of a run, %", "share"),
            "steps:int",
            *(Column(key, key) for key in told),
        ),
        rows=[
            [
                str(trial.get("loss")),
                number(trial.get("score")),
                number(trial.get("share")),
                number(trial.get("steps")),
                *(_write(section(trial, "values").get(key, "")) for key in told),
            ]
            for trial in trials
        ],
    )


def list_warnings(study: Study) -> list[tuple[str, int]]:
    """Lists (warning, runs that gave it), in order of appearance."""
    counts = Counter(
        text
        for run in study.trained
        for text in dict.fromkeys(map(str, items_of(run.result.get("warnings"))))
    )
    return list(counts.items())


def find_mismatches(study: Study) -> list[str]:
    """Finds data files that differ between runs, whose scores are then not comparable."""
    return [
        part
        for part in ("train", "dev", "test")
        if len({_write(section(r.result, "data", part).get("sha256")) for r in study.trained}) > 1
    ]


def _mib(size: Any) -> float | None:
    known = number(size)
    return None if known is None else known / 2**20


def _values(values: Any) -> str:
    """The single value, or all different ones."""
    written = dict.fromkeys(map(_write, values))
    return shorten(" · ".join(written), 400)


def _write(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
