"""Which loss to begin with, from how imbalanced the data is, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softf1.data.counts import negative_label
from softf1.metrics.schemes import OUTSIDE
from softf1.scaffold.lines import Line, Section

if TYPE_CHECKING:
    from softf1.data.stats import Overview
    from softf1.scaffold.survey import Survey

EVEN_RATIO, EVEN_SPREAD = 2.0, 3.0
"""Up to here cross entropy has nothing to mend: negatives a positive, frequent to rarest label."""

REMARKS = (
    "Cross entropy is the one to beat. Added dice looks at F1, and cross entropy keeps it from",
    "collapsing. Whether it helps here, only a comparison over seeds can say: softf1 compare.",
)

OF_CLASSES = (
    "All classes count alike in macro F1: class weights tell the loss so, in any batch. Logit",
    "adjustment (la) does it otherwise. Which helps here, a comparison says: softf1 compare.",
)

ENOUGH = 10
"""Positives in a batch below which a ratio over the batch is mostly noise."""


def propose_loss(found: Survey) -> list[Section]:
    """The section `[loss]`, and one for the options of its part."""
    stats = found.stats
    if found.task == "qa":
        why = "a softmax over positions: dice exists for it at example level only"
        return [Section("loss", [Line("name", "ce", why)])]
    if stats.ratio is not None and stats.ratio < EVEN_RATIO and stats.spread < EVEN_SPREAD:
        return [Section("loss", [Line("name", "ce", "the labels are even; nothing to mend")])]
    if weighs_classes_alike(found):
        return [Section("loss", [Line("name", "wce", _why_not_even(found))], OF_CLASSES)]
    positives, said = count_positives(found)
    batch = positives >= ENOUGH
    level = (
        Line("over", "batch", f"the soft F1 of a batch: {said}, enough for a ratio")
        if batch
        else Line("over", "example", f"each example alone: {said}, too few for a ratio")
    )
    named = Line("name", "ce+dice", _why_not_even(found))
    lines = [level, *(Line(key, value, why) for key, value, why in _options(found, batch=batch))]
    return [Section("loss", [named], REMARKS), Section("loss.dice", lines)]


def weighs_classes_alike(found: Survey) -> bool:
    """Whether macro F1 decides: one label a text, out of three or more."""
    texts = found.task in ("classification", "pairs")
    return texts and len(found.stats.labels) > 2 and not has_several(found.corpus)


def count_positives(found: Survey) -> tuple[float, str]:
    """Positives that a batch has, and the sentence that says it.

    With a background (O, the negative of two labels, "no" at a position) all positives count
    together. Without one each class has its own ratio, so the rarest decides.
    """
    stats = found.stats
    if has_background(found):
        share = stats.batch_size / max(stats.examples, 1)
        number = stats.positives * min(share, 1.0)
        if found.task != found.corpus.task:  # a sentence is asked once for each label
            number /= max(len(stats.labels) - 1, 1)
        return number, f"{number:.3g} positives a batch"
    rarest = min(stats.labels, key=lambda label: label.per_batch)
    return rarest.per_batch, f"{rarest.per_batch:.2g} of the rarest label a batch"


def has_background(found: Survey) -> bool:
    """Whether one label stands for nothing found."""
    return found.task == "mrc_ner" or background(found.corpus) is not None


def background(corpus: Overview) -> str | None:
    """The label that stands for nothing found; None where every label is one."""
    counts = corpus.counts
    if corpus.task == "tagging":
        return OUTSIDE if counts.scheme is not None else None
    two = len(counts.labels) == 2 and not has_several(corpus)
    return negative_label(counts.labels) if two else None


def has_several(corpus: Overview) -> bool:
    """Whether a text has more than one label, or none."""
    return corpus.counts.several


def _options(found: Survey, *, batch: bool) -> list[tuple[str, Any, str]]:
    """What dice leaves out, and how it averages."""
    left_out = None if found.task == "mrc_ner" else background(found.corpus)
    if left_out is None or not batch:
        return []
    return [
        ("average", "micro", "one ratio of all labels, as they occur"),
        ("exclude", [left_out], "no term of its own: being right about it is no gain in F1"),
    ]


def _why_not_even(found: Survey) -> str:
    stats = found.stats
    if has_background(found) and stats.ratio is not None and stats.ratio >= EVEN_RATIO:
        return f"{stats.ratio:.3g} negatives for a positive"
    times = f"{stats.spread:,.0f}" if stats.spread >= ENOUGH else f"{stats.spread:.1f}"
    return f"the most frequent label occurs {times} times as often as the rarest"
