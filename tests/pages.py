"""The pages of the documentation: their blocks, their links, and how a block is run.

A comment above a block says what is special about it:

    <!-- needs lightning -->         skipped where that module is not installed
    <!-- not run: wants two GPUs -->   shown only
    <!-- file: train.conll -->       written to a file of that name, which later blocks use
"""

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from softf1.cli.main import main

ROOT = Path(__file__).parent.parent
NAMES = ("README.md", "CONTRIBUTING.md", "THIRD_PARTY_NOTICES.md", "benchmarks/README.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKS = re.compile(r"((?:<!-- .* -->\n)+)\Z")
MARK = re.compile(r"<!-- (needs|not run:|file:) (.+) -->\n")
SHELL = ("sh", "bash", "console")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


class Block(NamedTuple):
    """A fenced block, the text of the ```text block right after it, and its marks."""

    line: int
    language: str
    code: str
    output: str | None = None
    marks: tuple[tuple[str, str], ...] = ()


def read_blocks(text: str) -> Iterator[Block]:
    fences = list(FENCE.finditer(text))
    for fence, after in zip_longest(fences, fences[1:]):
        follows = after and after[1] == "text" and not text[fence.end() : after.start()].strip()
        line = text.count("\n", 0, fence.start(2)) + 1
        above = MARKS.search(text[: fence.start()])
        marks = tuple(MARK.findall(above[1])) if above else ()
        yield Block(line, fence[1], fence[2], after[2] if after and follows else None, marks)


def prose(text: str) -> str:
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The names that hosts give to headings: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def run_page(page: Path) -> None:
    """Runs the blocks of a page one after the other, in the current folder."""
    namespace = {"__name__": "page"}
    for block in read_blocks(page.read_text(encoding="utf-8")):
        marks = dict(block.marks)
        if "not run:" in marks:
            continue
        needed = marks.get("needs", "softf1")
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{page.name}:{block.line} needs {needed}")
        if "file:" in marks:
            path = Path(marks["file:"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            run_python(block, page, namespace)
        elif block.language in SHELL:
            run_shell(block, page)


def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    """What is printed must be what the page says, to the letter."""
    printed = io.StringIO()
    numbered = "\n" * (block.line - 1) + block.code  # so that a traceback names the line
    with contextlib.redirect_stdout(printed):
        exec(compile(numbered, page.name, "exec"), namespace)
    assert printed.getvalue() == (block.output or ""), (
        f"{page.name}:{block.line} printed\n{printed.getvalue()}"
    )


def run_shell(block: Block, page: Path) -> None:
    """Every command must end well; in what it prints, `...` stands for anything, as in doctests."""
    lines = block.code.replace("\\\n", " ").splitlines()
    printed = "".join(run_command(line, f"{page.name}:{block.line}") for line in lines)
    if block.output is None:
        return
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    fits = doctest.OutputChecker().check_output(block.output, printed, flags)
    assert fits, f"{page.name}:{block.line} printed\n{printed}"


def run_command(line: str, where: str) -> str:
    """What `softf1 …`, `softf1 … > FILE` or `echo TEXT | softf1 …` prints; runs here, not apart."""
    words = shlex.split(line, comments=True)
    if not words:
        return ""
    given, words = ("", words) if words[0] != "echo" else _split_pipe(words)
    assert words[:1] == ["softf1"], f"{where}: wanted a softf1 command or a reason, got {line}"
    into = Path(words[-1]) if words[-2:-1] == [">"] else None
    code, printed, errors = call_main(words[1:-2] if into else words[1:], given)
    assert code == 0, f"{where}: {line} ended with {code}: {errors}"
    if into is None:
        return printed
    into.write_text(printed, encoding="utf-8")
    return ""


def _split_pipe(words: list[str]) -> tuple[str, list[str]]:
    bar = words.index("|") if "|" in words else len(words)
    return " ".join(words[1:bar]) + "\n", words[bar + 1 :]


def call_main(arguments: list[str], given: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command that reads `given`."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # has a buffer, as stdout does
    errors = io.StringIO()
    with (
        _standard_input(given),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        try:
            code = main(arguments)
        except SystemExit as ended:  # argparse, on bad usage
            code = int(str(ended.code))
        printed.flush()
    return code, printed.buffer.getvalue().decode("utf-8"), errors.getvalue()


@contextlib.contextmanager
def _standard_input(text: str) -> Iterator[None]:
    """Puts text on descriptor 0, since commands open /dev/stdin."""
    kept = os.dup(0)
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(kept, 0)
            os.close(kept)
