"""The benchmark of prediction runs, and both sides tag every sentence."""

import csv
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from benchmarks import predict


def test_the_quick_form_writes_a_line_for_every_batch_size(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(predict, "WORDS", 50)
    path = tmp_path / "new" / "predict.csv"
    threads = str(torch.get_num_threads())
    predict.main(["--quick", "--output", str(path), "--threads", threads])
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    tokens = [f"{size} tokens" for size in predict.TOKENS]
    assert [row["batch"] for row in rows] == [
        *tokens,
        tokens[0],  # the matrix products alone
        *(f"{size} sentences" for size in predict.BATCHES),
    ]
    assert {row["sentences"] for row in rows} == {"40"}
    assert all(float(row["sentences_per_s"]) > 0 for row in rows)
    assert "times the pipeline at its best" in capsys.readouterr().out


def test_a_side_that_loses_sentences_is_refused():
    with pytest.raises(RuntimeError, match="wanted 3 sentences, got 2"):
        predict.measure({("half", 1): lambda: 2}, sentences=3, rounds=1)


def test_sentences_are_the_same_every_time_and_not_too_long():
    words = predict.make_words(30)
    assert len(set(words)) == 30
    first = predict.make_sentences(words, 20, seed=1)
    assert first == predict.make_sentences(words, 20, seed=1)
    assert all(1 <= len(one.split()) <= 60 for one in first)
