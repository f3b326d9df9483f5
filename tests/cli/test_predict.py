import gzip
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

import softf1
from softf1.cli.main import main
from softf1.cli.options import choose_places
from tests.cli.conftest import SENTENCES, TAGS, as_columns


def told(text):
    return [json.loads(line) for line in text.splitlines()]


def shell(command, **how):
    environment = {**os.environ, "PYTHONPATH": str(Path(softf1.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-m", "softf1", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment | {"OMP_NUM_THREADS": "1"},
        **how,
    )


def without_confidence(line):
    """The line, once its confidences were looked at: one a word, and one a span."""
    assert len(line["confidence"]) == len(line["tags"])
    named = [tag for tag in line["tags"] if tag != "O"]
    assert [f"B-{one['label']}" for one in line["entities"]] == named
    every = [*line["confidence"], *(one["confidence"] for one in line["entities"])]
    assert all(0 < one <= 1 for one in every)
    return {key: value for key, value in line.items() if key not in ("confidence", "entities")}


def test_a_line_an_example_in_the_order_of_the_file(run, capsysbinary):
    assert main(["predict", str(run), str(run.parent / "test.txt")]) == 0
    out, err = capsysbinary.readouterr()
    assert err == b""
    for number, line in enumerate(map(without_confidence, told(out))):
        words = SENTENCES[1:3][number].split()
        tags = [TAGS[word] for word in words]
        place = ("1", "7")[number]
        assert line == {"schema": 1, "id": place, "words": words, "gold": tags, "tags": tags}


def test_text_without_labels(run, tmp_path, capsysbinary):
    path = tmp_path / "input"
    path.write_bytes(gzip.compress(b"Ann ran .\n\nOslo ran\n"))
    assert main(["predict", str(run / "model"), str(path), "--format", "plain"]) == 0
    assert list(map(without_confidence, told(capsysbinary.readouterr().out))) == [
        {"schema": 1, "id": "1", "words": ["Ann", "ran", "."], "tags": ["B-PER", "O", "O"]},
        {"schema": 1, "id": "3", "words": ["Oslo", "ran"], "tags": ["B-LOC", "O"]},
    ]


def test_the_file_is_there_as_a_whole_or_not_at_all(run, tmp_path, capsys):
    path, out = tmp_path / "input", tmp_path / "out.jsonl"
    path.write_text(as_columns(SENTENCES) + "alone\n")
    command = ["predict", str(run), str(path), "--out", str(out)]
    assert main(command) == 2
    assert f"{path}:22: wanted 2 columns" in capsys.readouterr().err
    assert not list(tmp_path.glob("*out*"))
    assert main([*command, "--on-error", "skip"]) == 0
    stdout, err = capsys.readouterr()
    assert stdout == ""
    assert f"{out}: 4 predictions" in err
    assert "skipped 1: ragged row" in err
    assert len(told(out.read_text())) == 4


def test_the_standard_input_is_a_stream(run):
    process = shell(["predict", str(run), "-", "--format", "plain"], stdin=subprocess.PIPE)
    out, err = process.communicate("".join(f"{text}\n" for text in SENTENCES).encode())
    assert (process.returncode, err) == (0, b"")
    assert [line["words"] for line in told(out)] == [text.split() for text in SENTENCES]


def test_a_reader_that_has_seen_enough_is_no_error(run, tmp_path):
    path = tmp_path / "input"
    path.write_text("Ann ran to Oslo .\n" * 20_000)
    process = shell(["predict", str(run), str(path), "--format", "plain"])
    assert json.loads(process.stdout.readline())["tags"][0] == "B-PER"
    process.stdout.close()
    assert (process.wait(120), process.stderr.read()) == (0, b"")
    process.stderr.close()


BAD = {
    "no run": (["nowhere", "x"], "nowhere: wanted a run or a model folder"),
    "no file": (["RUN", "nowhere.txt"], "nowhere.txt: wanted a file to read"),
    "no format": (["RUN", "DATA", "--format", "morse"], "unknown format 'morse'"),
    "no setting": (["RUN", "DATA", "--set", "x"], "wanted --set KEY=VALUE, got 'x'"),
    "no such setting": (["RUN", "DATA", "--set", "hue=1"], "unknown option of format conll 'hue'"),
    "other task": (["RUN", "DATA", "--format", "mrpc"], "format mrpc serves the tasks pairs"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_2(run, capsys, name):
    options, message = BAD[name]
    places = {"RUN": str(run), "DATA": str(run.parent / "test.txt")}
    assert main(["predict", *(places.get(word, word) for word in options)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"softf1 predict: {message}")
    assert err.count("\n") == 1


def test_batches_are_small_on_a_cpu():
    given = {"device": "cpu", "precision": "auto"}
    assert choose_places(Namespace(**given, batch_tokens=None))["batch_tokens"] == 1024
    assert choose_places(Namespace(**given, batch_tokens=5))["batch_tokens"] == 5
