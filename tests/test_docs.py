"""Every block of the documentation runs and prints what the page says; links lead somewhere."""

import gc
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from softf1.cli.main import build_parser
from softf1.losses import registry
from tests.pages import ROOT, SHELL, Block, anchors, every_page, prose, read_blocks, run_page

LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """More threads only wait for each other on tensors this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a page registers, seeds, writes or makes importable is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))  # for processes that a command starts
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    gc.freeze()  # transformers collects garbage often, which takes long over all that is imported
    with torch.random.fork_rng():
        yield
    gc.unfreeze()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of GLiNER
@every_page
@pytest.mark.usefixtures("own_state")
def test_code_prints_what_the_page_says(page: Path) -> None:
    run_page(page)


@every_page
def test_blocks_of_data_can_be_read(page: Path) -> None:
    for block in read_blocks(page.read_text(encoding="utf-8")):
        if block.language == "toml":
            tomllib.loads(block.code)
        elif block.language == "json":
            json.loads(block.code)


@every_page
def test_blocks_have_a_language_that_is_checked(page: Path) -> None:
    known = {"python", "text", "toml", "json", "csv", *SHELL}
    for block in read_blocks(page.read_text(encoding="utf-8")):
        assert block.language in known, f"{page.name}:{block.line}"


@every_page
def test_commands_that_are_only_shown_are_spelled_right(page: Path) -> None:
    for block in read_blocks(page.read_text(encoding="utf-8")):
        if block.language not in SHELL:
            continue
        for line in block.code.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|-m |\| )softf1 ((?:'[^']*'|[^|>'])+)", line)
            if found:
                build_parser().parse_args(shlex.split(found[1], comments=True))


def test_blocks_are_found_with_their_output() -> None:
    first = "```python\nprint(1)\n```\n\n```text\n1\n```\n"  # 7 lines
    second = "<!-- needs a.b -->\n```python\nx = 1\n```\nbetween\n```text\n2\n```\n"
    blocks = [block for block in read_blocks(first + second) if block.language == "python"]
    assert blocks == [
        Block(2, "python", "print(1)\n", "1\n"),
        Block(10, "python", "x = 1\n", None, (("needs", "a.b"),)),
    ]


@pytest.mark.usefixtures("own_state")
@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("```python\nprint(1)\n```\n```text\n2\n```\n", True),
        ("```python\nprint(1)\n```\n", True),  # what is printed must be shown
        ("```sh\nsoftf1 list tasks  # all\n```\n```text\ntasks: ...\n```\n", False),
        ("```sh\nsoftf1 list tasks\n```\n```text\nlosses: ...\n```\n", True),
        ("```sh\nsoftf1 stats no-such-file\n```\n", True),
        ("```sh\nmake something\n```\n", True),  # not run without a reason
        ("<!-- not run: wants a GPU -->\n```sh\nmake something\n```\n", False),
        ("<!-- file: a.txt -->\n```text\nAda B-PER\n```\n```sh\nsoftf1 stats a.txt\n```\n", False),
        (
            "```sh\nsoftf1 list --json > a.json\n```\n```python\nopen('a.json').close()\n```\n",
            False,
        ),
    ],
)
def test_what_a_page_says_is_checked(text: str, fails: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    if not fails:
        run_page(page)
        return
    with pytest.raises(AssertionError, match=r"page\.md:2"):
        run_page(page)


@every_page
def test_links_and_images_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(prose(text)):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{page.name}: {link}"


def test_anchors_are_the_hosts() -> None:
    assert anchors("# Set level, or example level?\n```text\n# no heading\n```\n") == {
        "set-level-or-example-level"
    }
