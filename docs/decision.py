"""Draws the decision guide: `python docs/decision.py` writes images/decision.svg.

Boxes have fills of their own and dark text, lines a grey in the middle, so that the picture can be
read on white and on black; the background stays clear.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "images/decision.svg"

WIDTH, ROW, TOP = 720, 128, 12
ASK, TAKE = (12, 330), (412, 296)
"""Left edge and width of the column of questions and of the column of answers."""
HEIGHT = 84
LINE = "#7b8794"
FONT = "font-family='system-ui, sans-serif'"


class Step(NamedTuple):
    """A question, the answer that leads to the right, and the advice there."""

    question: tuple[str, ...]
    answer: str
    take: tuple[str, ...]
    code: str
    goes_on: str


STEPS = (
    Step(
        ("Do you report accuracy, not F1?",),
        "yes",
        ("No loss will help; an adversarial", "step and consistency may"),
        "ce, adversarial, consistency",
        "no",
    ),
    Step(
        ("Must precision or recall", "reach a given level?"),
        "yes",
        ("Choose the threshold for it,", "or train with Tversky"),
        "eval.target, or loss tversky",
        "no",
    ),
    Step(
        ("One label per text: below 20%", "positives, or judged by macro F1?"),
        "yes",
        ("Class weights and an", "adversarial step"),
        "wce or la, adversarial_relative=0.5",
        "no",
    ),
    Step(
        ("Entities, tags, answers, or", "several labels per text?"),
        "no",
        ("Cross entropy, an adversarial", "step and consistency"),
        "ce, adversarial, consistency",
        "yes",
    ),
    Step(
        ("A tagger of spans with", "fewer than 20 labels?"),
        "yes",
        ("Cross entropy with a CRF,", "adversarial step, consistency"),
        "ce, decoder=crf, adv., consistency",
        "no",
    ),
)
LAST = (
    ("CE + dice (BERT-MRC: DSC),", "adversarial step, consistency"),
    "ce+dice or dsc, adv., consistency",
)
END = (
    "loss.name = auto makes these choices for you, except the second.",
    "Then check on your data: softf1 compare with five seeds.",
)


def box(x: float, y: float, width: float, lines: tuple[str, ...], code: str, fill: str) -> str:
    """A rounded box with lines of text, and below them code."""
    rows = [(line, "font-size='16'") for line in lines]
    if code:
        rows.append((code, "font-size='13.5' font-family='ui-monospace, monospace'"))
    start = y + HEIGHT / 2 - (len(rows) - 1) * 11 + 5
    text = "".join(
        f"<text x='{x + width / 2:g}' y='{start + 22 * n:g}' text-anchor='middle' fill='#1b2733' "
        f"{style}>{escape(line)}</text>"
        for n, (line, style) in enumerate(rows)
    )
    edge = f"stroke='{LINE}' stroke-width='1.5'"
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{HEIGHT}' rx='10' fill='{fill}' "
        f"{edge}/>{text}"
    )


def arrow(x1: float, y1: float, x2: float, y2: float, said: str = "") -> str:
    """A line with a head, and on it a word in a box of its own."""
    line = (
        f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{LINE}' stroke-width='2' "
        "marker-end='url(#head)'/>"
    )
    if not said:
        return line
    x, y, width = (x1 + x2) / 2 - 3, (y1 + y2) / 2 - 3, 9 * len(said) + 10
    if x1 != x2:  # beside the line there is no room: above it
        y -= 14
    return (
        f"{line}<rect x='{x - width / 2:g}' y='{y - 11:g}' width='{width:g}' height='21' rx='5' "
        f"fill='#f4f6f8'/><text x='{x:g}' y='{y + 5:g}' text-anchor='middle' font-size='14' "
        f"fill='#1b2733'>{escape(said)}</text>"
    )


def draw() -> str:
    """The whole picture."""
    parts: list[str] = []
    middle = ASK[0] + ASK[1] / 2
    for number, step in enumerate(STEPS):
        y = TOP + number * ROW
        parts.append(box(*(ASK[0], y, ASK[1]), step.question, "", "#dbe9f6"))
        parts.append(box(*(TAKE[0], y, TAKE[1]), step.take, step.code, "#fdf0d5"))
        right = ASK[0] + ASK[1]
        parts.append(arrow(right, y + HEIGHT / 2, TAKE[0] - 3, y + HEIGHT / 2, step.answer))
        parts.append(arrow(middle, y + HEIGHT, middle, y + ROW - 3, step.goes_on))
    y = TOP + len(STEPS) * ROW
    parts.append(box(*(ASK[0], y, ASK[1]), *LAST, "#fdf0d5"))
    whole = TAKE[0] + TAKE[1] - ASK[0]
    parts.append(arrow(middle, y + HEIGHT, middle, y + ROW - 3))
    aside = TAKE[0] + TAKE[1] / 2
    parts.append(arrow(aside, y - ROW + HEIGHT, aside, y + ROW - 3))
    parts.append(box(*(ASK[0], y + ROW, whole), END, "", "#dcefdc"))
    height = y + ROW + HEIGHT + TOP
    head = (
        "<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' "
        f"markerHeight='7' orient='auto'><path d='M0 0 10 5 0 10z' fill='{LINE}'/></marker></defs>"
    )
    title = "<title>What to run: a decision guide</title>"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height:g}' role='img' "
        f"{FONT}>{title}{head}{''.join(parts)}</svg>\n"
    ).replace("><", ">\n<")


if __name__ == "__main__":
    FILE.write_text(draw(), encoding="utf-8")
    print(FILE)
