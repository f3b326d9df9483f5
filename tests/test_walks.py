"""CONTRIBUTING's package `extra` adds a loss, a task, a format and an encoder, and all commands
take them: the files are those of the page, found through entry points as an installed package's.
"""

import json
import os
import tomllib

import pytest

from softf1.cli.main import main
from tests.pages import ROOT, read_blocks

KINDS = ("losses", "tasks", "formats", "encoders")


@pytest.fixture
def extra(tmp_path, monkeypatch):
    """The page's files in the current folder, with the entry points that an installer writes."""
    for block in read_blocks((ROOT / "CONTRIBUTING.md").read_text("utf-8")):
        if name := dict(block.marks).get("file:"):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.code, "utf-8")
    groups = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))
    groups = groups["project"]["entry-points"]
    folder = tmp_path / "extra-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
        for group, points in groups.items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return {group.removeprefix("softf1."): next(iter(points)) for group, points in groups.items()}


def test_each_walk_has_its_entry_point_and_is_listed(extra, capsys):
    assert sorted(extra) == sorted(KINDS)
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    for kind, name in extra.items():
        summary = next(one["summary"] for one in listed[kind] if one["name"] == name)
        assert not summary.startswith("of another package")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "task.reader.marks=3",
            'option marks of format transcript: wanted a string in quotes ("3"), got 3',
        ),
        ("task.reader.mark=x", "did you mean marks?"),
        ("encoder.size=0", "encoder.size: wanted a number from 1, got 0"),
        ("encoder.siz=3", "did you mean size?"),
        ("loss.name=logcoshh", "did you mean logcosh?"),
        ("task.kind=punctuatio", "did you mean punctuation?"),
    ],
)
@pytest.mark.usefixtures("extra")
def test_their_options_are_checked_as_our_own(change, said, capsys):
    assert main(["train", "recipe.toml", change]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.usefixtures("extra")
def test_from_reading_to_compare_and_the_report(tmp_path, monkeypatch, capsys):
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    monkeypatch.setenv("PYTHONPATH", path)  # for the process that trains
    words = ["--losses", "logcosh", "--seeds", "2", "--tune", "none", "--no-controls", "--quiet"]
    assert main(["compare", "recipe.toml", *words, "--jobs", "1", "--out", "grid"]) == 0
    printed = capsys.readouterr().out
    assert [line.split("\t")[0] for line in printed.splitlines()[1:4]] == ["loss", "ce", "logcosh"]
    result = json.loads((tmp_path / "grid/cells/logcosh-s0/result.json").read_text("utf-8"))
    assert "macro_f1" in result["scores"]["test"]
    assert main(["report", "grid", "--out", "report.html"]) == 0
    assert "logcosh" in (tmp_path / "report.html").read_text("utf-8")
