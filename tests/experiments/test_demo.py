"""The demonstration, cut short: the corpus as published, a table, a verdict and a page."""

import importlib.util
import json
from collections import Counter
from functools import partial

import pytest

from softf1.cli.main import main
from softf1.experiments import demo
from softf1.training.run import train_run
from tests.experiments.fake import run_inline

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pycantonese") is None, reason="pycantonese is not installed"
)


def test_the_corpus_has_the_published_size():
    sentences = [s for path in demo.find_recordings() for s in demo.read_recording(path)]
    assert len(sentences) == 16_162
    assert sum(map(len, sentences)) == 153_654
    tags = Counter(tag for sentence in sentences for _, tag in sentence)
    names = sum(count for tag, count in tags.items() if tag != "O")
    assert 0.012 < names / 153_654 < 0.013


def test_no_dialogue_is_on_two_sides(tmp_path):
    recordings = [path.name for path in demo.find_recordings()]
    parts = demo.split_dialogues(sorted(set(map(demo.name_dialogue, recordings))))
    of_part = {name: part for part, names in parts.items() for name in names}
    assert sum(map(len, parts.values())) == len(of_part)  # each in one part only
    two = {of_part[demo.name_dialogue(n)] for n in recordings if n.startswith("FC-005")}
    assert len(two) == 1
    paths = demo.write_corpus(tmp_path)
    sizes = {name: path.read_text("utf-8").count("\n\n") for name, path in paths.items()}
    assert sum(sizes.values()) == 16_162
    assert 0.1 < sizes["test"] / 16_162 < 0.3


def test_names_of_one_kind_side_by_side_are_one():
    tagged = demo.tag_names(["a", "b", "c", "d"], ["nr|a", "ns|b", "ns|c", "."])
    assert [tag for _, tag in tagged] == ["B-PER", "B-LOC", "I-LOC", "O"]


def test_the_table_has_a_row_a_way_and_judges_against_cross_entropy(tmp_path):
    found = demo.run_demo(
        tmp_path,
        execute=partial(run_inline, train_run),
        seeds=1,
        rows=("ce", "ce, adversarial", "dice"),
        quiet=True,
        max_steps=3,
    )
    assert [row["loss"] for row in found["rows"]] == ["ce", "ce, adversarial", "dice"]
    assert found["failed"] == {}
    assert found["baseline"] == "ce"
    starts = {
        name: json.loads((tmp_path / f"cells/{name}-s0/result.json").read_text("utf-8"))["recipe"]
        for name in ("ce", "ce__adversarial", "dice")
    }
    assert [own["train"]["head_bias"] for own in starts.values()] == ["prior"] * 3
    steps = [own["train"].get("adversarial_relative") for own in starts.values()]
    assert steps == [None, demo.ADVERSARIAL, None]
    assert starts["dice"]["loss"]["exclude"] == ["O"]


def test_without_its_corpus_it_says_what_is_wanted(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # noqa: ARG005
    assert main(["demo", "--out", str(tmp_path), "--jobs", "1"]) == 2
    assert "softf1[demo]" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_writes_a_page_with_the_notice(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "ROWS", {k: demo.ROWS[k] for k in ("ce", "dice")})
    monkeypatch.setattr(
        demo.run_demo, "__kwdefaults__", {**demo.run_demo.__kwdefaults__, "rows": ("ce", "dice")}
    )
    assert main(["demo", "--seeds", "2", "--out", str(tmp_path), "--quiet"]) == 0
    assert "report.html" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "CC BY 4.0" in page
    assert "HKCanCor" in page
