"""Runs the commands of the quickstart in an empty folder and writes session.md with their output.

    PYTHONPATH=src python docs/session.py

Takes a minute. The blocks come from quickstart.md, so this page cannot name other commands; run it
again after a change there, or where a command prints something else.
"""

from __future__ import annotations

import os
import platform
import pty
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

import softf1

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.pages import SHELL, Block, read_blocks  # noqa: E402

FILE = ROOT / "docs" / "session.md"
HEAD = """# The quickstart in a terminal

This is what you see when you type the commands of the [quickstart](quickstart.md), from made-up files to the report: {seconds:.0f} seconds of one core. [session.py](session.py) ran them and wrote this page (CPU, {system}, softf1 {softf1}, torch {torch}, seed 0, {date}).
"""  # noqa: E501


def list_blocks() -> list[Block]:
    """The blocks of the quickstart that are run: the data in Python, then commands."""
    blocks = read_blocks((ROOT / "docs" / "quickstart.md").read_text("utf-8"))
    wanted = [block for block in blocks if block.language in ("python", *SHELL)]
    return [block for block in wanted if "not run:" not in dict(block.marks)]


def list_commands() -> list[str]:
    """The commands of the page, in order; Python that prints nothing is not shown."""
    return [block.code.strip() for block in list_blocks() if block.language in SHELL]


def run(code: list[str], folder: Path) -> tuple[str, float]:
    """Returns what a command prints on a terminal of 80 columns, and its processor time."""
    where = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "TERM": "dumb"}
    start = os.times()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        code, cwd=folder, env={**os.environ, **where}, stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        printed = b"".join(iter(lambda: read(ours), b"")).decode().replace("\r\n", "\n")
    os.close(ours)
    if process.returncode:
        raise SystemExit(printed)
    end = os.times()
    spent = end.children_user + end.children_system - start.children_user - start.children_system
    return printed.rstrip("\n"), spent


def read(terminal: int) -> bytes:
    """Returns what came; nothing once the command has ended, which Linux calls an error."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def record() -> str:
    """Runs everything; returns the page."""
    parts, total, began = [], 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        for block in list_blocks():
            command = block.code.strip()
            if block.language == "python":
                _, spent = run([sys.executable, "-c", command], Path(name))
            else:
                shown = f'softf1() {{ "{sys.executable}" -m softf1 "$@"; }}\n{command}'
                printed, spent = run(["bash", "-ec", shown], Path(name))
                parts.append(f"```text\n$ {command}\n{printed}\n```\n")
            total += spent
            print(f"{time.monotonic() - began:4.0f} s  {command.splitlines()[0]}", flush=True)
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    about = {"softf1": softf1.__version__, "torch": torch.__version__.partition("+")[0]}
    head = HEAD.format(seconds=total, system=system, date=datetime.now(UTC).date(), **about)
    return "\n".join([head, *parts])


if __name__ == "__main__":
    FILE.write_text(record(), "utf-8")
    print(FILE)
