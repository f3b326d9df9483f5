"""Formulas of the pages as MathML, which browsers show by themselves: no script, no font.

Only the commands that the pages use are known; any other is an error that stops the build.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\S")
SIGNS = {"-": "−", "<": "&lt;", ">": "&gt;", "&": "&amp;"}
SYMBOLS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "theta": "θ",
    "pi": "π",
    "tau": "τ",
    "partial": "∂",
    "log": "log",
    "cos": "cos",
    "max": "max",
}
OPERATORS = {"sum": "∑", "cdot": "⋅", "pm": "±", "in": "∈", "ne": "≠"}
SPACES = {",": "0.17em", "quad": "1em", "qquad": "2em"}
SIZES = ("bigl", "bigr")


def convert(formula: str) -> str:
    """A displayed formula.

    >>> convert("x^2")
    '<div class="formula"><math display="block"><msup><mi>x</mi><mn>2</mn></msup></math></div>'
    """
    # Words in \text keep their spaces, so they are taken out before the rest is cut into tokens.
    words: list[str] = []

    def keep(match: re.Match[str]) -> str:
        words.append(match[1])
        return f"\\text{{{len(words) - 1}}}"

    tokens = TOKEN.findall(re.sub(r"\\text\{([^}]*)\}", keep, formula))
    row = "".join(_row(iter(tokens), words, end=None))
    return f'<div class="formula"><math display="block">{row}</math></div>'


def _row(tokens: Iterator[str], words: list[str], *, end: str | None) -> list[str]:
    """Elements up to the token `end`, with what stands below and above them."""
    parts: list[str] = []
    for token in tokens:
        if token == end:
            return parts
        if token in ("_", "^"):
            base = parts.pop()
            parts.append(_script(base, token, _element(next(tokens), tokens, words)))
        else:
            parts.append(_element(token, tokens, words))
    if end is not None:
        raise ValueError(f"wanted {end} in a formula, got its end")
    return parts


def _script(base: str, kind: str, script: str) -> str:
    if kind == "_":
        name = "munder" if base == "<mo>∑</mo>" else "msub"
        return f"<{name}>{base}{script}</{name}>"
    if base.startswith("<msub>"):  # both: first below, then above
        return f"<msubsup>{base.removeprefix('<msub>').removesuffix('</msub>')}{script}</msubsup>"
    return f"<msup>{base}{script}</msup>"


def _element(token: str, tokens: Iterator[str], words: list[str]) -> str:
    if token == "{":
        return f"<mrow>{''.join(_row(tokens, words, end='}'))}</mrow>"
    if not token.startswith("\\"):
        name = "mn" if token[0].isdigit() else "mi" if token.isalpha() else "mo"
        return f"<{name}>{SIGNS.get(token, token)}</{name}>"
    return _command(token[1:], tokens, words)


def _command(name: str, tokens: Iterator[str], words: list[str]) -> str:
    def argument() -> str:
        return _element(next(tokens), tokens, words)

    if name in SYMBOLS:
        return f"<mi>{SYMBOLS[name]}</mi>"
    if name in OPERATORS:
        return f"<mo>{OPERATORS[name]}</mo>"
    if name in SPACES:
        return f'<mspace width="{SPACES[name]}"/>'
    if name == "left":  # a row of its own, in which brackets grow with what they hold
        opened, inside = argument(), "".join(_row(tokens, words, end="\\right"))
        return f"<mrow>{opened}{inside}{argument()}</mrow>"
    if name in ("frac", "tfrac"):
        return f"<mfrac>{argument()}{argument()}</mfrac>"
    return _dress(name, argument(), words)


def _dress(name: str, argument: str, words: list[str]) -> str:
    """A command that does something to what follows it."""
    if name in SIZES:
        return argument
    if name == "sqrt":
        return f"<msqrt>{argument}</msqrt>"
    if name == "bar":
        return f"<mover>{argument}<mo>¯</mo></mover>"
    if name == "mathrm":
        return _upright(argument)
    if name == "text":
        return f"<mtext>{words[int(_letters(argument))]}</mtext>".replace(" ", "\u00a0")
    raise ValueError(f"wanted a command of formulas that docs/mathml.py knows, got \\{name}")


def _upright(row: str) -> str:
    """Letters that follow each other as one upright word."""
    joined = re.sub(r"(?:<mi>\w</mi>)+", lambda run: f"<mi>{_letters(run[0])}</mi>", row)
    return joined.replace("<mi>", '<mi mathvariant="normal">')


def _letters(row: str) -> str:
    return re.sub(r"<[^>]+>", "", row)
