"""Verdicts in words, and caveats: reasons not to trust a comparison that ran without errors."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from softf1.experiments.statistics import LEVEL, Difference, examples_needed, seeds_needed
from softf1.metrics.counts import name_score

if TYPE_CHECKING:
    from softf1.experiments.per_example import RunScores

ALPHA = 1 - LEVEL

LEANS = 0.1
"""Below this probability of the opposite sign, "no difference" would contradict the figures, so the
verdict says "perhaps better" or "perhaps worse"."""


def name_gain(difference: Difference, metric: str) -> str:
    """Formats a difference in points, with its interval.

    >>> from softf1.experiments.statistics import Difference
    >>> name_gain(Difference(mean=0.008, low=0.003, high=0.013, seeds=5), "f1")
    '+0.8 F1 [0.3, 1.3]'
    """
    gain = f"{_signed(difference.mean)} {name_score(metric)}"
    if math.isnan(difference.low):
        return gain
    return f"{gain} [{_points(difference.low)}, {_points(difference.high)}]"


def find_verdict(difference: Difference, p_holm: float, *, losses: int, gain: float) -> str:
    """Returns the verdict on a variant: a few words, and after a semicolon the reason.

    Args:
        difference: The difference to the baseline.
        p_holm: Its p-value, corrected for the number of losses.
        losses: The number of losses.
        gain: The smallest gain that matters, as a fraction (0.005 is half a point).
    """
    if math.isnan(difference.p):
        return "one seed is not enough"
    if p_holm < ALPHA:
        return "helps" if difference.mean > 0 else "hurts"
    if difference.p < ALPHA:
        way = "may help" if difference.mean > 0 else "may hurt"
        return f"{way}; among {losses} losses, one result like this can be chance"
    if difference.mean == 0 and difference.sd_seeds == 0 and difference.sd_examples == 0:
        return "no difference in any run"
    if min(difference.probability, 1 - difference.probability) < LEANS:
        said = f"perhaps {'better' if difference.mean > 0 else 'worse'}, not sure"
    else:
        said = f"no difference that {difference.seeds} seeds can show"
    return f"{said}; {name_needs(difference, gain=gain)}"


def judge_control(difference: Difference) -> str:
    """Returns the verdict on a control or reference: is it significantly above or below?"""
    if math.isnan(difference.p):
        return "one seed is not enough"
    if difference.p < ALPHA:
        return f"significantly {'above' if difference.mean > 0 else 'below'}"
    return "no significant difference"


def name_needs(difference: Difference, *, gain: float) -> str:
    """Says how many seeds or examples it takes to detect a gain of that size.

    >>> from softf1.experiments.statistics import Difference
    >>> name_needs(Difference(mean=0.0, seeds=5, sd_seeds=0.004, sd_examples=0.0), gain=0.003)
    'a gain of 0.3 would need 16 seeds'
    """
    points = f"{100 * gain:g}"
    seeds = seeds_needed(difference.sd_seeds, difference.sd_examples, gain)
    if seeds is not None and seeds <= difference.seeds:
        return f"a true gain of {points} would have been seen 4 times out of 5"
    if seeds is not None:
        return f"a gain of {points} would need {seeds} seeds"
    examples = examples_needed(difference.sd_examples, difference.examples, gain)
    if examples <= difference.examples:
        return f"more seeds alone cannot show a gain of {points}"
    of_seeds = difference.sd_seeds**2 / difference.seeds
    more = "more seeds and " if of_seeds > difference.sd_examples**2 else ""
    return (
        f"a gain of {points} would need {more}about {_rounded(examples):,} test examples in place "
        f"of {difference.examples:,}"
    )


def name_collapse(seeds: Mapping[int, tuple[float, bool]]) -> list[str]:
    """Describes collapsed seeds of a variant; empty if there are none.

    Args:
        seeds: Score of each seed, and whether it collapsed.

    >>> name_collapse({0: (0.92, False), 1: (0.0, True), 2: (0.94, False)})
    ['1 of 3 seeds collapsed (seed 1), the mean of the others is 93.0']
    >>> name_collapse({0: (0.0, True), 1: (0.0, True)})
    ['collapsed with every seed']
    """
    dead = sorted(seed for seed, (_, collapsed) in seeds.items() if collapsed)
    if not dead:
        return []
    if len(dead) == len(seeds):
        return ["collapsed with every seed" if len(dead) > 1 else "collapsed"]
    alive = [score for score, collapsed in seeds.values() if not collapsed]
    names = f"seed{'s' if len(dead) > 1 else ''} {', '.join(map(str, dead))}"
    mean = _points(math.fsum(alive) / len(alive))
    return [
        f"{len(dead)} of {len(seeds)} seeds collapsed ({names}), the mean of the others is {mean}"
    ]


def find_best(rows: Mapping[str, tuple[Difference, float]]) -> str | None:
    """Returns the loss that the verdict names first: the best of those that help, else of all."""
    sure = [loss for loss, (difference, p) in rows.items() if p < ALPHA and difference.mean > 0]
    return max(sure or rows, key=lambda loss: rows[loss][0].mean, default=None)


def say_which_help(
    rows: Mapping[str, tuple[Difference, float]],
    *,
    baseline: str,
    metric: str,
    noun: str = "loss",
) -> str:
    """Returns one sentence about all losses: which help, or that none does.

    Args:
        rows: Difference and corrected p-value of each loss.
        baseline: What they are compared with.
        metric: The primary metric.
        noun: What a row is: a loss, or in a sweep a setting.
    """
    best = find_best(rows)
    if best is None:
        return f"Nothing to compare with {baseline}."
    named = {
        loss: f"{loss} {name_gain(difference, metric)}" for loss, (difference, _) in rows.items()
    }
    if all(math.isnan(difference.p) for difference, _ in rows.values()):
        return f"One seed is not enough: {'; '.join(named.values())} against {baseline}."
    sure = {loss: difference.mean for loss, (difference, p) in rows.items() if p < ALPHA}
    better = sorted((loss for loss in sure if sure[loss] > 0), key=lambda loss: -sure[loss])
    worse = [loss for loss in sure if sure[loss] < 0]
    parts = []
    if better:
        verb = "helps" if len(better) == 1 else "help"
        parts.append(f"{', '.join(named[loss] for loss in better)} over {baseline}: {verb}.")
    else:
        ahead = "the best is" if rows[best][0].mean > 0 else "none is ahead of it, the closest is"
        parts.append(f"No {noun} is significantly better than {baseline}; {ahead} {named[best]}.")
    if worse:
        verb = "hurts" if len(worse) == 1 else "hurt"
        parts.append(f"{', '.join(worse)} {verb}.")
    return " ".join(parts)


def say_no_verdict(baseline: str, *, advice: str) -> str:
    """Returns the verdict where every run of the baseline collapsed: any loss beats such runs."""
    collapsed = f"{baseline} predicts nothing, or only one class, with every seed"
    return f"No verdict: {collapsed}; {advice}."


def say_reference(name: str, score: float, metric: str) -> str:
    """Says that a reference is ahead of everything that was trained.

    >>> say_reference("tfidf", 0.4314, "f1")
    'The row tfidf, which trains no encoder, is ahead of every loss with 43.1 F1.'
    """
    ahead = f"is ahead of every loss with {_points(score)} {name_score(metric)}"
    return f"The row {name}, which trains no encoder, {ahead}."


def _points(share: float) -> str:
    text = f"{100 * share:.1f}"
    return "0.0" if text == "-0.0" else text.replace("-", "−")


def _signed(share: float) -> str:
    text = _points(share)
    return text if text.startswith("−") else f"+{text}"


def _rounded(number: int) -> int:
    """Rounds up to two significant digits; more would suggest false precision."""
    unit = int("1" + "0" * max(len(str(number)) - 2, 0))
    return -(-number // unit) * unit


ENOUGH = 100
"""With this many test examples, two trained models never agree on all by chance."""


def list_caveats(
    runs: Mapping[str, Mapping[int, RunScores]], trials: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Lists caveats of a comparison, each a sentence with the variants concerned.

    Args:
        runs: Runs by variant and seed.
        trials: The trials of the grid, which chose the settings.
    """
    if undecided := find_undecided(trials):
        yield (
            f"short runs say little about {', '.join(undecided)}: "
            "most settings have the same dev score"
        )
    if collapsed := count_collapsed(runs):
        yield (
            f"collapsed (nothing, or only one class, predicted on dev): {', '.join(collapsed)}; "
            "do not trust a mean over such seeds"
        )
    if constant := find_constant(runs):
        yield (
            f"every test example scores the same with every seed of {', '.join(constant)}: the "
            "seeds found the same answers, or the model gives one answer to everything"
        )


def count_collapsed(runs: Mapping[str, Mapping[int, RunScores]]) -> list[str]:
    """Lists variants with collapsed seeds, and how many collapsed."""
    dead = {variant: sum(run.collapsed for run in own.values()) for variant, own in runs.items()}
    return [
        f"{variant} ({count} of {len(runs[variant])} seeds)"
        for variant, count in dead.items()
        if count
    ]


def find_undecided(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Finds variants whose settings mostly share one score in their last round.

    >>> find_undecided([{"loss": "dice", "share": 0.3, "score": score} for score in (0.5, 0.5)])
    ['dice']
    """
    rounds: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if trial["score"] is not None:
            rounds[trial["loss"]][trial["share"]].append(trial["score"])
    several = {
        variant: [scores for _, scores in sorted(own.items()) if len(scores) > 1]
        for variant, own in rounds.items()
    }
    return [variant for variant, own in several.items() if own and _mostly_one(own[-1])]


def _mostly_one(scores: Sequence[float]) -> bool:
    ((_, count),) = Counter(scores).most_common(1)
    return 2 * count > len(scores)


def find_constant(runs: Mapping[str, Mapping[int, RunScores]]) -> list[str]:
    """Finds imperfect variants whose seeds agree on every test example."""
    return [
        variant
        for variant, own in runs.items()
        if len(own) > 1
        and all(run.score < 1 for run in own.values())
        and _are_equal([run.pseudo for run in own.values()])
    ]


def _are_equal(values: Sequence[Any]) -> bool:
    first, *others = values
    if first is None or len(first) < ENOUGH:
        return False
    return all(np.array_equal(first, other) for other in others)
