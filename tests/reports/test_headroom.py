"""What there is to win, as the page says it."""

import json
import shutil

import pytest

from softf1.cli.main import main
from softf1.reports.headroom import draw_headroom, make_examples, read_run_headroom, say_summary
from softf1.reports.page import make_context
from softf1.reports.study import group_runs, read_study
from softf1.tasks import make_task


def content(decided, bias, *, split="test"):
    example = {"id": "7", "found": "<b>Oslo</b> (PER)", "gold": "Oslo (LOC)", "text": "in Oslo"}
    titles = {"As decided": decided, "One bias, for O": bias, "A perfect ranking": 1.0}
    parts = [
        {"title": "As decided", "score": decided, "gain": 0.0, "wins": ""},
        {
            "title": "One bias",
            "score": bias,
            "gain": bias - decided,
            "wins": "a better decision",
            "examples": [example],
        },
        {"title": "Ranking", "score": 1.0, "gain": 1 - bias, "wins": "a better ranking"},
    ]
    steps = [{"title": title, "score": score} for title, score in titles.items()]
    return {"schema": 1, "split": split, "metric": "f1", "parts": parts, "steps": steps}


@pytest.fixture
def runs(texts, tmp_path):
    """Two runs of ce and one of dice, which may be changed."""
    copies = [shutil.copytree(path, tmp_path / path.name) for path in texts]
    numbers = [(0.5, 0.6), (0.7, 0.7), (0.8, 0.9)]
    for path, (decided, bias) in zip(copies, numbers, strict=True):
        (path / "headroom.json").write_text(json.dumps(content(decided, bias)))
    return copies


def read(runs):
    study = read_study(runs)
    return study, read_run_headroom(study, group_runs(study))


def test_bars_stand_one_on_the_other_and_are_means_over_seeds(runs):
    study, found = read(runs)
    figure = draw_headroom(study, found)
    assert [name for name, _ in figure.views] == ["ce", "dice"]
    bars = figure.views[0][1][0]
    assert bars["base"] == pytest.approx([0, 60, 65])
    assert bars["x"] == pytest.approx([60, 5, 35])
    assert bars["text"] == ["60.0", "+5.0", "+35.0"]
    assert ["ce", "One bias", pytest.approx(0.65), pytest.approx(0.05)] in figure.table.rows
    assert "As decided 60.0" in figure.summary


def test_the_sentence_is_that_of_the_baseline(runs):
    _, found = read(runs)
    said = "a better decision wins at most 5.0, a better ranking 35.0"
    assert say_summary(found) == f"With ce, in points of a hundred, {said}."


def test_the_sentence_says_what_nobody_knows(runs):
    for path in runs:
        known = content(0.5, 0.6) | {"unknown": "spans that a head refuses are not kept"}
        (path / "headroom.json").write_text(json.dumps(known))
    said = "not known: spans that a head refuses are not kept."
    assert say_summary(read(runs)[1]).endswith(said)


def test_the_sentence_says_that_it_is_about_another_score(runs):
    for path in runs:
        other = content(0.5, 0.6) | {"primary_metric": "accuracy"}
        (path / "headroom.json").write_text(json.dumps(other))
    said = "With ce, in points of a hundred of F1, not of accuracy, a better decision wins"
    assert say_summary(read(runs)[1]).startswith(said)


def test_the_sentence_says_that_there_is_nothing_to_find(runs):
    empty = make_task("classification", labels=("no", "yes")).headroom([]).to_json()
    for path in runs:
        (path / "headroom.json").write_text(json.dumps(empty | {"split": "test"}))
    study, found = read(runs)
    assert say_summary(found) == "With ce, there is nothing to find in these examples."
    assert draw_headroom(study, found).views[0][1][0]["text"] == ["0.0"]


def test_examples_are_in_a_table_and_their_text_is_text(runs, tmp_path):
    _, found = read(runs)
    assert make_examples(found).rows == [
        ["One bias", "7", "<b>Oslo</b> (PER)", "Oslo (LOC)", "in Oslo"]
    ]
    out = tmp_path / "page.html"
    assert main(["report", *map(str, runs), "--out", str(out)]) == 0
    page = out.read_text("utf-8")
    assert 'id="headroom"' in page
    assert "&lt;b&gt;Oslo&lt;/b&gt; (PER)" in page
    assert "<b>Oslo</b> (PER)" not in page


def test_without_files_the_page_says_why(texts):
    absent = {part.id: part.missing for part in make_context(read_study(texts))["absent"]}
    assert absent["headroom"] == "no run has a headroom.json; softf1 headroom RUN writes it"


def test_another_part_of_the_data_is_not_shown(runs):
    for path in runs:
        (path / "headroom.json").write_text(json.dumps(content(0.5, 0.6, split="dev")))
    assert read(runs)[1] == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 9}'])
def test_a_damaged_file_is_one_line(runs, text, capsys):
    (runs[0] / "headroom.json").write_text(text)
    assert main(["report", *map(str, runs)]) == 2
    assert "headroom.json: wanted" in capsys.readouterr().err


def test_a_changed_file_without_what_is_wanted_is_left_out(runs):
    for path in runs:
        (path / "headroom.json").write_text('{"schema": 1, "split": "test", "steps": 5}')
    assert read(runs)[1] == {}
