"""Tables that are no scores: counts of classes, their weights, F1 by label, and figure 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.experiments.tables import Part, load_part, missing_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from softf1.experiments.reproduce import Reproduction
    from softf1.experiments.tables import Table

Rows = list[list[Any]]


def count_classes(
    table: Table, overrides: Sequence[str], data: Path | None
) -> tuple[list[str], Rows]:
    """Negatives, positives and their ratio as printed, and of the training files that are there."""
    from softf1.data import read
    from softf1.data.stats import describe

    rows: Rows = []
    for dataset, name, *printed in table.rest["rows"]:
        ours: list[Any] = ["", "", ""]
        remark = ""
        try:
            recipe = load_part(name, overrides, data)
            missing = [path for path in missing_files(recipe) if path == recipe.task.train]
            if missing:
                raise InputError(f"needs {missing[0]}")
            task = recipe.task
            corpus = read(task.train, format=task.options.get("format"), task=task.kind)
            found = describe(corpus)
            ours = [found.negatives, found.positives, found.ratio and round(found.ratio, 2)]
            remark = f"{found.unit}; negative: {found.negative}"
        except InputError as error:
            remark = str(error)
        rows.append([dataset, *printed, *ours, remark])
    heads = table.rest["heads"]
    return ["dataset", *heads, *(f"our {head}" for head in heads), ""], rows


def weigh_classes(
    table: Table, overrides: Sequence[str], data: Path | None
) -> tuple[list[str], Rows]:
    """Balanced weights as printed, of the printed counts, and of the data where it is there."""
    from softf1.losses import class_weights

    labels, counts, printed = zip(*table.rest["rows"], strict=True)
    weights = class_weights(counts).tolist()
    found, remark = _count_labels(table.rest["recipe"], overrides, data)
    rows: Rows = []
    for label, count, theirs, ours in zip(labels, counts, printed, weights, strict=True):
        rows.append([label, count, theirs, round(ours, 2), found.get(label, "")])
    heads = ["label", "texts", "weight", "our weight of that count", "texts in our data"]
    return heads, [*rows, *([[remark]] if remark else [])]


def _count_labels(
    name: str, overrides: Sequence[str], data: Path | None
) -> tuple[dict[str, int], str]:
    from softf1.data import read
    from softf1.data.stats import describe

    try:
        recipe = load_part(name, overrides, data)
        missing = missing_files(recipe)
        if missing:
            raise InputError(f"needs {', '.join(missing)}")
        task = recipe.task
        corpus = read(task.train, format=task.options.get("format"), task=task.kind)
    except InputError as error:
        return {}, str(error)
    return {one.label: one.count for one in describe(corpus).labels}, ""


def score_labels(table: Table, run: Reproduction) -> tuple[list[str], Rows]:
    """F1 of each label for each loss, as printed and ours."""
    rest = table.rest
    losses = rest["losses"]
    rows = [[loss, loss] for loss in losses]
    part = Part(
        dataset="", recipe=rest["recipe"], encoder=rest["encoder"], rows=rows, losses="news"
    )
    found, remark = {}, ""
    try:
        recipe = load_part(part.recipe, run.overrides, run.data)
        missing = missing_files(recipe)
        if missing:
            raise InputError(f"needs {', '.join(missing)}")
        if run.execute is None:
            raise InputError("can be run")
        measured = run.measure(part, recipe)
        found = {one["label"]: one["scores"] for one in measured["labels"]}
        remark = f"encoder {rest['encoder']}; ours {recipe.encoder.name}, {run.seeds} seeds"
    except InputError as error:
        remark = str(error)
    lines: Rows = []
    for label, count, *printed in rest["rows"]:
        ours = [_points(found.get(label, {}).get(loss)) for loss in losses]
        pairs = [f"{a} / {b}" for a, b in zip(printed, ours, strict=True)]
        lines.append([label, count, *pairs])
    return ["label", "texts", *(f"{loss}: theirs / ours" for loss in losses)], [*lines, [remark]]


def _points(scores: dict[str, float] | None) -> str:
    return f"{100 * scores['f1']:.0f}" if scores else "–"


def derive_figure() -> tuple[list[str], Rows]:
    """The derivatives of figure 1, from the losses themselves.

    A positive with smooth = 0 has the dice loss 1 − 2·f1 and the self-adjusting one 1 − 2·f2.
    """
    import torch

    from softf1.losses import make_loss

    p = torch.arange(0.05, 1.0, 0.1, dtype=torch.float64)
    columns = []
    for loss in (
        make_loss("dice", squared=False, smooth=0.0, reduction="sum"),
        make_loss("dsc", alpha=1.0, decay="paper", smooth=0.0, reduction="sum"),
    ):
        x = torch.logit(p).unsqueeze(1).requires_grad_()
        loss(x, torch.ones(len(p))).backward()
        assert x.grad is not None  # noqa: S101 - backward was run
        by_p = -x.grad.squeeze(1) / (2 * p * (1 - p))
        columns.append([round(value, 3) for value in by_p.tolist()])
    rows: Rows = [
        list(row) for row in zip([round(v, 2) for v in p.tolist()], *columns, strict=True)
    ]
    return ["p", "p / (1 + p)", "(1 − p)p / (1 + (1 − p)p)"], rows
