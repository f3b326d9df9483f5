"""Plain text to predict on: one example per line, no labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.data._text import lines
from softf1.data.examples import Format, PairExample, TaggedSentence, TextExample
from softf1.data.problems import Problems, RecordError, short

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def iterate(
    path: Path | str,
    *,
    task: str = TextExample.task,
    characters: bool = False,
    problems: Problems | None = None,
) -> Iterator[TaggedSentence | TextExample | PairExample]:
    """Reads one example per line; skips empty lines.

    Args:
        path: The file.
        task: "classification" takes the line, "tagging" its words, separated by spaces as in the
            training data, "pairs" two texts separated by a tab.
        characters: Every character of the line is a word (Chinese, one tag per character).
        problems: Decides about bad lines; None raises at the first.
    """
    problems, skipped = problems or Problems(), False
    for number, line in lines(path, problems):
        if not line.strip():
            skipped = True
            continue
        if skipped:
            problems.note(f"{path}: empty lines are skipped; the id is the number of the line")
        if task == TaggedSentence.task:
            words = "".join(line.split()) if characters else line.split()
            yield TaggedSentence(tuple(words), (), number)
        elif task == TextExample.task:
            yield TextExample(line.strip(), (), number)
        else:
            first, _, second = line.partition("\t")
            if first.strip() and second.strip():
                yield PairExample(first, second, None, number)
                continue
            message = f"wanted two texts with a tab between, got {short(line)}"
            problems.add(RecordError("no two texts", message, path=path, line=number))


FORMATS = {
    "plain": Format(
        iterate,
        (TaggedSentence.task, TextExample.task, PairExample.task),
        "one text per line, no labels, to predict",
    ),
}
