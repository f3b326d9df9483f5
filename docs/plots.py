"""Makes every plot of the documentation: `python docs/plots.py [FOLDER]`.

All gradients come from the package's own losses through autograd; nothing is derived again here.
The gains and curves, and what losses do on names, come from benchmarks/results.
The figures are narrow with large letters, so that they can be read on a phone, and white, so that
they can be read in a dark theme. The same versions give the same bytes.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from torch import Tensor

from softf1.losses import class_weights, make_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

IMAGES = Path(__file__).parent / "images"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
GAINS, CURVES, NAMES = (RESULTS / f"{name}.csv" for name in ("gains", "curves", "names"))
# Okabe and Ito's colours, which differ for colour-blind readers too.
BLACK, BLUE, RED, GREEN, ORANGE = "#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7"
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 12,
    "grid.color": "#dddddd",
    "legend.fontsize": 10.5,
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "svg.hashsalt": "softf1",
}

Loss = Callable[[Tensor, Tensor], Tensor]


def probabilities(points: int = 199) -> Tensor:
    """Returns probabilities over 0 < p < 1, ends left out."""
    return torch.linspace(0.005, 0.995, points, dtype=torch.float64)


def summed(name: str, **options: Any) -> Loss:
    """Returns the loss summed over the examples, so that each has the gradient it has alone."""
    return make_loss(name, reduction="sum", **options)


def logit_gradient(loss: Loss, p: Tensor, *, positive: bool) -> Tensor:
    """Returns dL/dlogit of one example with one sigmoid output, at every p."""
    x = torch.logit(p).unsqueeze(1).requires_grad_()
    y = torch.full((len(p),), float(positive))
    return torch.autograd.grad(loss(x, y), x)[0].squeeze(1)


def push(loss: Loss, p: Tensor, *, positive: bool) -> Tensor:
    """Returns how hard the loss moves the logit towards the label; below 0 it moves it away."""
    gradient = logit_gradient(loss, p, positive=positive)
    return -gradient if positive else gradient


def figure_1(p: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the derivatives by p of the paper's f1 and f2, its figure 1.

    A positive with smooth = 0 has the dice loss 1 − 2·f1 and the self-adjusting one 1 − 2·f2.
    """
    dice = summed("dice", squared=False, smooth=0.0)
    dsc = summed("dsc", alpha=1.0, decay="paper", smooth=0.0)
    by_logit = [logit_gradient(loss, p, positive=True) for loss in (dice, dsc)]
    f1, f2 = (-0.5 * gradient / (p * (1 - p)) for gradient in by_logit)  # dp/dlogit = p·(1 − p)
    return f1, f2


def decayed(alpha: float, p: Tensor) -> Tensor:
    """Returns q = (1 − p)^alpha · p, read back from the loss of a positive with smooth = 0."""
    loss = make_loss("dsc", alpha=alpha, smooth=0.0, reduction="none")
    overlap = 1 - loss(torch.logit(p).unsqueeze(1), torch.ones(len(p)))  # 2·q / (q + 1)
    return overlap / (2 - overlap)


def best_probability(name: str, rate: float, **options: Any) -> float:
    """Returns the p of the least mean loss over examples that are positive at this rate."""
    p = probabilities(991)
    x = torch.logit(p).unsqueeze(1)
    loss = make_loss(name, reduction="none", **options)
    mean = rate * loss(x, torch.ones(len(p))) + (1 - rate) * loss(x, torch.zeros(len(p)))
    return p[mean.argmin()].item()


def positive_share(loss: Loss, share: float, *, rows: int = 20_000, p: float = 0.5) -> float:
    """Returns which part of all pushes on the logits of a batch comes from its positives."""
    x = torch.logit(torch.full((rows, 1), p, dtype=torch.float64)).requires_grad_()
    y = torch.zeros(rows)
    y[: max(1, round(share * rows))] = 1
    size = torch.autograd.grad(loss(x, y), x)[0].abs().squeeze(1)
    return (size[y == 1].sum() / size.sum()).item()


def draw_pushes(axes: Axes, curves: list[tuple[str, str, Loss]], *, negatives: bool = True) -> None:
    """Draws the pushes of some losses over p: solid for a positive, dashed for a negative."""
    p = probabilities()
    for label, colour, loss in curves:
        axes.plot(p, push(loss, p, positive=True), color=colour, label=label)
        if negatives:
            axes.plot(p, push(loss, p, positive=False), color=colour, linestyle="--")
    axes.axhline(0, color=BLACK, linewidth=0.8)
    axes.set(xlabel="p, the probability of the class", ylabel="push towards the label", xlim=(0, 1))
    if negatives:
        axes.plot([], [], color="#777777", linestyle="--", label="dashed: a negative")


def draw_ce(axes: Axes) -> None:
    """Cross entropy, weighted, smoothed."""
    curves = [
        ("ce", BLUE, summed("ce")),
        ("weight 3", RED, summed("wce", weight=[3.0])),
        ("label_smoothing 0.2", GREEN, summed("ce", label_smoothing=0.2)),
    ]
    draw_pushes(axes, curves)


def draw_focal(axes: Axes) -> None:
    """Focal loss for several gammas, positives only: negatives are the mirror image."""
    curves = [
        (f"gamma {gamma:g}{' (ce)' * (gamma == 0)}", colour, summed("focal", gamma=gamma))
        for gamma, colour in ((0.0, BLACK), (1.0, BLUE), (2.0, RED), (5.0, GREEN))
    ]
    draw_pushes(axes, curves, negatives=False)


def draw_la(axes: Axes) -> None:
    """Logit adjustment for a class with 9 negatives to a positive."""
    curves = [
        ("tau 0 (ce)", BLUE, summed("ce")),
        ("tau 0.5", RED, summed("la", weight=[9.0], tau=0.5)),
        ("tau 1", GREEN, summed("la", weight=[9.0])),
    ]
    draw_pushes(axes, curves)


def draw_dice(axes: Axes) -> None:
    """Dice of one example, squared and linear, and a smaller smooth."""
    curves = [
        ("squared, smooth 1", BLUE, summed("dice")),
        ("squared, smooth 0.1", RED, summed("dice", smooth=0.1)),
        ("linear, smooth 1", GREEN, summed("dice", squared=False)),
    ]
    draw_pushes(axes, curves)


def draw_tversky(axes: Axes) -> None:
    """Tversky of one example, alpha and beta traded."""
    curves = [
        (f"alpha {alpha}, beta {beta}", colour, summed("tversky", alpha=alpha, beta=beta))
        for alpha, beta, colour in ((0.5, 0.5, BLACK), (0.3, 0.7, BLUE), (0.7, 0.3, RED))
    ]
    draw_pushes(axes, curves)


def draw_dsc(axes: Axes) -> None:
    """Self-adjusting dice, detached, for several alphas."""
    curves = [
        (f"alpha {alpha:g}{' (dice)' * (alpha == 0)}", colour, summed("dsc", alpha=alpha))
        for alpha, colour in ((0.0, BLACK), (0.5, BLUE), (1.0, RED), (2.0, GREEN))
    ]
    draw_pushes(axes, curves)


def draw_compound(axes: Axes) -> None:
    """The push of cross entropy, dice and their sum on a positive."""
    curves = [
        ("ce", BLUE, summed("ce")),
        ("dice", RED, summed("dice")),
        ("ce+dice, mix (1, 0.5)", GREEN, summed("ce+dice", mix=(1.0, 0.5))),
    ]
    draw_pushes(axes, curves, negatives=False)


def draw_schedule(axes: Axes) -> None:
    """The shares of a scheduled sum over its steps."""
    steps = range(121)
    for schedule, line in (("linear", "-"), ("cosine", "--")):
        loss = make_loss("ce+dice", schedule=schedule, schedule_steps=100)
        shares = []
        for _ in steps:
            shares.append(loss.shares())
            loss.advance()
        of_ce, of_dice = torch.stack(shares).unbind(1)
        axes.plot(steps, of_ce, line, color=BLUE, label=f"ce, {schedule}")
        axes.plot(steps, of_dice, line, color=RED, label=f"dice, {schedule}")
    axes.set(xlabel="step (schedule_steps = 100)", ylabel="share of the part")


def draw_figure_1(axes: Axes) -> None:
    """The derivatives of the paper's figure 1, with the sign of the second."""
    p = probabilities()
    f1, f2 = figure_1(p)
    axes.plot(p, f1, color=BLUE, label="f1 = p / (1 + p)")
    axes.plot(p, f2, color=RED, label="f2 = (1−p)p / (1 + (1−p)p)")
    axes.fill_between(p, f2, 0, where=(f2 < 0).numpy(), color=RED, alpha=0.15)
    axes.text(0.04, -0.75, "below 0 a positive\nis pushed down", color=RED)
    axes.axhline(0, color=BLACK, linewidth=0.8)
    axes.set(xlabel="p", ylabel="derivative by p", xlim=(0, 1))


def draw_optimum(axes: Axes) -> None:
    """The decayed q over p, with its peak at 1 / (1 + alpha)."""
    p = probabilities()
    for alpha, colour in ((1.0, RED), (0.1, GREEN), (0.01, BLUE)):
        peak = torch.tensor([1 / (1 + alpha)], dtype=torch.float64)
        label = f"alpha {alpha:g}: p = {peak.item():.2f}"
        axes.plot(p, decayed(alpha, p), color=colour, label=label)
        axes.plot(peak, decayed(alpha, peak), "o", color=colour)
    axes.set(xlabel="p", ylabel="q = (1 − p)^alpha · p", xlim=(0, 1))


def draw_decay(axes: Axes) -> None:
    """The push on a positive, the decay differentiated and detached."""
    p = probabilities()
    for alpha, colour in ((1.0, RED), (0.1, GREEN), (0.01, BLUE)):
        for decay, line in (("paper", "--"), ("detached", "-")):
            loss = summed("dsc", alpha=alpha, decay=decay)
            label = f"alpha {alpha:g}" if decay == "detached" else None
            axes.plot(p, push(loss, p, positive=True), line, color=colour, label=label)
    axes.plot([], [], color="#777777", linestyle="--", label='decay="paper"')
    axes.plot([], [], color="#777777", label='decay="detached"')
    axes.axhline(0, color=BLACK, linewidth=0.8)
    axes.set(xlabel="p of a positive", ylabel="push up: −dL/dlogit", xlim=(0, 1))


def draw_best_probability(axes: Axes) -> None:
    """Where an example's p settles, over the rate at which such examples are positive."""
    rates = torch.linspace(0.0, 1.0, 101).tolist()
    curves = [
        ("ce", BLACK, partial(best_probability, "ce")),
        ("focal, gamma 2", BLUE, partial(best_probability, "focal")),
        ("dice", RED, partial(best_probability, "dice")),
        ("tversky .3/.7", GREEN, partial(best_probability, "tversky", alpha=0.3, beta=0.7)),
    ]
    for label, colour, best in curves:
        axes.plot(rates, [best(rate=rate) for rate in rates], color=colour, label=label)
    axes.axhline(0.5, color=BLACK, linewidth=0.8)
    axes.set(xlabel="share of positives among such examples", ylabel="p where the loss is least")


def draw_positive_share(axes: Axes) -> None:
    """Who decides: the part of the pushes that comes from the positives, all p at 0.5."""
    shares = torch.logspace(-3, -0.31, 40).tolist()
    batch = {"over": "batch"}
    curves = [
        ("dice, batch", RED, "-", make_loss("dice", **batch)),
        (
            "tversky .3/.7, batch",
            GREEN,
            "-",
            make_loss("tversky", alpha=0.3, beta=0.7, **batch),
        ),
        ("dice, example", BLUE, "--", make_loss("dice")),
        ("ce", BLACK, "-", make_loss("ce")),
    ]
    for label, colour, line, loss in curves:
        values = [100 * positive_share(loss, share) for share in shares]
        axes.plot([100 * share for share in shares], values, line, color=colour, label=label)
    axes.set(xlabel="positives in the batch, %", ylabel="push that comes from them, %")
    axes.set(xscale="log", ylim=(0, 100), xticks=[0.1, 1, 10, 50], xticklabels=[0.1, 1, 10, 50])


def draw_weights(axes: Axes) -> None:
    """The weight of the rare one of two classes, over its share, relative to the other."""
    counts = torch.logspace(1, 3.69, 60).round().tolist()
    curves = [
        ("log, k = 1", GREEN, "log", 1.0),
        ("balanced, inverse", BLACK, "balanced", 1.0),
        ("effective", BLUE, "effective", 1.0),
        ("log, k = 10", RED, "log", 10.0),
    ]
    for label, colour, scheme, k in curves:
        weights = [class_weights([10_000 - count, count], scheme, k=k) for count in counts]
        shares = [count / 100 for count in counts]
        axes.plot(shares, [rare / other for other, rare in weights], color=colour, label=label)
    axes.set(xlabel="rare class, % of 10,000 rows", ylabel="its weight / the other's weight")
    axes.set(xscale="log", yscale="log", xticks=[0.1, 1, 10, 50], xticklabels=[0.1, 1, 10, 50])


def draw_gains(axes: Axes) -> None:
    """What `auto` gains over cross entropy on each task, with 95% intervals."""
    with GAINS.open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["gain"]))
    for place, row in enumerate(rows):
        gain, half = float(row["gain"]), float(row["half"])
        colour = BLUE if gain > half else RED if gain < -half else "#777777"
        axes.errorbar(
            gain, place, xerr=half, fmt="o" if int(row["examples"]) else "D", color=colour,
            mfc=colour if abs(gain) > half else "white", ms=7, capsize=3, lw=1.8,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [row["data"] for row in rows])
    axes.axvline(0, color=BLACK, lw=1.2)
    axes.plot([], [], "o-", color=BLUE, label="95% interval above 0")
    axes.plot([], [], "o-", color="#777777", mfc="white", label="interval includes 0")
    if not all(int(row["examples"]) for row in rows):
        axes.plot([], [], "D-", color=BLUE, label="interval over seeds only")
    if any(float(row["gain"]) < -float(row["half"]) for row in rows):
        axes.plot([], [], "o-", color=RED, label="below 0")
    axes.set(xlabel="points gained over cross entropy, test", ylim=(-0.7, len(rows) - 0.3))


def draw_curve(axes: Axes, points: list[dict[str, str]]) -> None:
    """Gains over cross entropy along an axis, a line for each loss, with 95% intervals."""
    colours, places = (BLUE, RED, GREEN, ORANGE), sorted({float(point["x"]) for point in points})
    names = list(dict.fromkeys(point["name"] for point in points))
    for number, name in enumerate(names):
        own = [point for point in points if point["name"] == name]
        at = [
            float(point["x"]) * 1.04 ** (number - len(names) / 2) for point in own
        ]  # side by side
        gains, halves = ([float(point[key] or 0) for point in own] for key in ("gain", "half"))
        axes.errorbar(
            at, gains, yerr=halves, fmt="o-", color=colours[number], capsize=3, label=name
        )
    axes.axhline(0, color=BLACK, lw=1.2)
    axes.set(xlabel=points[0]["axis"], ylabel="points gained over CE, test", xscale="log")
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.minorticks_off()


def read_curves(path: Path = CURVES) -> dict[str, Callable[[Axes], None]]:
    """Returns a plot for each curve in the file of benchmarks/curves.py."""
    with path.open(encoding="utf-8", newline="") as file:
        points = list(csv.DictReader(file))
    curves = dict.fromkeys(point["curve"] for point in points)
    return {
        curve: partial(draw_curve, points=[p for p in points if p["curve"] == curve])
        for curve in curves
    }


def read_names(split: str, key: str) -> dict[str, dict[float, list[float]]]:
    """Reads names.csv: a score in points, by row and epoch, a value for each seed."""
    found: dict[str, dict[float, list[float]]] = {}
    with NAMES.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["split"] == split:
                epochs = found.setdefault(line["row"], {})
                epochs.setdefault(float(line["epoch"]), []).append(100 * float(line[key]))
    return found


def read_trade() -> dict[str, list[tuple[float, float]]]:
    """Recall and precision on test of every row of names.csv, a pair for each seed."""
    scores = [read_names("test", key) for key in ("recall", "precision")]
    return {
        row: [
            pair
            for epoch in recalls
            for pair in zip(recalls[epoch], scores[1][row][epoch], strict=True)
        ]
        for row, recalls in scores[0].items()
    }


def draw_trade(axes: Axes) -> None:
    """Precision and recall on real names: Tversky's alpha, focal's gamma, dice, cross entropy."""
    trade = read_trade()
    lines = [
        ("Tversky, alpha/beta", BLUE, "o", "tversky "),
        ("focal, gamma 0.5 to 5", RED, "s", "focal "),
        ("dice", GREEN, "D", "dice"),
        ("cross entropy", BLACK, "X", "ce"),
    ]
    for label, colour, marker, start in lines:
        rows = [row for row in trade if row == start or (start[-1] == " " and start in row)]
        means = [tuple(map(fmean, zip(*trade[row], strict=True))) for row in rows]
        for row in rows:
            recalls, precisions = zip(*trade[row], strict=True)
            axes.scatter(recalls, precisions, s=14, c=colour, marker=marker, alpha=0.3, lw=0)
        look = {"ls": "-" if colour == BLUE else "", "lw": 1.4, "marker": marker, "ms": 7}
        axes.plot(*zip(*means, strict=True), color=colour, label=label, **look)
        for row, point in zip(rows, means, strict=True) if colour == BLUE else ():
            at = {"xytext": (-4, -13), "textcoords": "offset points", "ha": "right"}
            axes.annotate(row.removeprefix(start), point, **at, size=9)
    axes.set(xlabel="recall on test", ylabel="precision on test", xlim=(12, 62), ylim=(30, 90))
    draw_levels(axes)


def draw_levels(axes: Axes) -> None:
    """Dotted lines of equal F1, with their value where they leave the plot."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    recalls = torch.linspace(max(left, 1), right, 400)
    for f1 in range(10, 100, 10):
        precisions = f1 * recalls / (2 * recalls - f1)  # of 1 / F1 = (1 / P + 1 / R) / 2
        inside = (precisions > low) & (precisions < high) & (2 * recalls > f1)
        if inside.sum() > 100:
            axes.plot(recalls[inside], precisions[inside], ":", color="#999999", lw=1)
            end = recalls[inside][-1], precisions[inside][-1]
            at = {"xytext": (-34, 4), "textcoords": "offset points"}
            axes.annotate(f"F1 {f1}", end, **at, size=8, color="#777777")


def draw_curves(axes: Axes) -> None:
    """F1 on dev while training on real names: the mean over seeds, and each seed thin."""
    curves = {
        "ce": ("cross entropy", BLACK), "ce+dice": ("CE + dice", BLUE), "dice": ("dice", GREEN),
        "dsc, authors": ("DSC, alpha 0.01", ORANGE), "dsc, squared": ("DSC, alpha 1", RED),
        "dsc, linear": ("DSC, alpha 1, linear", "#777777"),
    }  # fmt: skip
    found = read_names("dev", "f1")
    for row, (label, colour) in curves.items():
        epochs = sorted(found[row])
        values = [found[row][epoch] for epoch in epochs]
        for seed in zip(*values, strict=True):
            axes.plot(epochs, seed, color=colour, lw=0.7, alpha=0.4)
        axes.plot(epochs, [fmean(own) for own in values], color=colour, label=label)
    axes.set(xlabel="epochs", ylabel="F1 on dev", ylim=(-2, None), xticks=range(5))


PLOTS: dict[str, Callable[[Axes], None]] = {
    "best-probability": draw_best_probability,
    "ce": draw_ce,
    "compound": draw_compound,
    "compound-schedule": draw_schedule,
    "dice": draw_dice,
    "dsc": draw_dsc,
    "figure1-decay": draw_decay,
    "figure1-derivatives": draw_figure_1,
    "figure1-optimum": draw_optimum,
    "focal": draw_focal,
    "gains": draw_gains,
    "la": draw_la,
    "positive-share": draw_positive_share,
    "precision-recall": draw_trade,
    "training-curves": draw_curves,
    "tversky": draw_tversky,
    "weights": draw_weights,
} | read_curves()


def make_plots(folder: Path, kind: str = "svg") -> Iterator[Path]:
    """Writes every plot into `folder` and yields its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PLOTS.items():
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=(5.4, 4.2))
            axes = figure.add_subplot()
            draw(axes)
            # Above the axes, where it hides no curve.
            figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
            path = folder / f"{name}.{kind}"
            figure.savefig(path, dpi=100, metadata={"Date": None} if kind == "svg" else None)
        yield path


if __name__ == "__main__":
    for made in make_plots(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES, *sys.argv[2:]):
        print(made)
