"""The benchmark of prediction runs, and both sides tag every sentence."""

import csv
import gc
import importlib
import subprocess
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
        *tokens[:1] * (1 + torch.backends.mkldnn.is_available()),  # the matrix products alone
        *(f"{size} sentences" for size in predict.BATCHES["cpu"]),
    ]
    assert {row["sentences"] for row in rows} == {"40"}
    assert all(float(row["sentences_per_s"]) > 0 for row in rows)
    assert "times the pipeline at its best" in capsys.readouterr().out


def test_the_host_is_timed_part_by_part_beside_other_sources(tmp_path):
    """In a process of its own: an operator that is registered again is gone where it was in use."""
    path, script = tmp_path / "host.csv", Path(predict.__file__)
    given = ["--quick", "--host", "--before", str(script.parents[1] / "src"), "--output", str(path)]
    run = subprocess.run(
        [sys.executable, script, *given], capture_output=True, text=True, check=True
    )
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    parts = [*predict.PARTS, predict.COLLECTOR, predict.ALL]
    assert [(row["code"], row["part"]) for row in rows] == [
        (code, part) for code in ("now", "before") for part in parts
    ]
    rows = [row for row in rows if row["part"] != predict.COLLECTOR]  # which may have had no work
    assert all(float(row["microseconds_per_sentence"]) > 0 for row in rows)
    assert {row["times_before"] for row in rows if row["code"] == "before"} == {"1.0"}
    assert "us a sentence" in run.stdout


def test_garbage_collections_are_timed():
    spent = {predict.COLLECTOR: 0.0}
    with predict.time_collections(spent):
        gc.collect()
    assert spent[predict.COLLECTOR] > 0
    known = dict(spent)
    gc.collect()
    assert spent == known


def test_other_sources_are_used_inside_their_context_only(tmp_path):
    (tmp_path / "softf1").mkdir()
    (tmp_path / "softf1" / "__init__.py").write_text("older = True\n")
    used, modules = dict(sys.modules), {}
    for _ in range(2):
        with predict.other_softf1(tmp_path, modules):
            assert importlib.import_module("softf1") is modules.get("softf1", sys.modules["softf1"])
            assert sys.modules["softf1"].older
            assert "softf1.tasks" not in sys.modules
        assert list(modules) == ["softf1"]
        assert sys.modules == used
        assert str(tmp_path) not in sys.path


def test_sources_that_write_other_lines_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(predict, "WORDS", 50)
    answers = iter([(dict.fromkeys(predict.PARTS, 1.0), line) for line in (b"a", b"a", b"b")])
    monkeypatch.setattr(predict, "time_parts", lambda *_: next(answers))
    with pytest.raises(RuntimeError, match="wanted the same lines in every round"):
        predict.main(["--host", "--sentences", "3", "--rounds", "2", "--output", str(tmp_path)])


def test_packed_weights_give_the_same_product():
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch has no oneDNN here")
    layer, x = torch.nn.Linear(24, 40), torch.randn(7, 24)
    with torch.inference_mode():
        torch.testing.assert_close(predict.pack(layer, 7)(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_model_and_its_exports_are_scored_on_the_same_file(tmp_path, capsys):
    for name in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(name, reason=f"wants {name} (softf1[onnx])")
    words = predict.make_words(50)
    model = predict.make_model(tmp_path, words, "tiny")
    file, path = tmp_path / "test.conll", tmp_path / "exports.csv"
    rows = (f"{word} {predict.TAGS[i % 9]}" for i, word in enumerate(words))
    file.write_text("\n\n".join(rows) + "\n", "utf-8")
    given = ["--run", str(model), "--data", str(file), "--sentences", "20", "--rounds", "1"]
    predict.main([*given, "--output", str(path), "--threads", str(torch.get_num_threads())])
    with path.open(encoding="utf-8", newline="") as lines:
        torch_, onnx, int8 = csv.DictReader(lines)
    assert [one["model"] for one in (torch_, onnx, int8)] == ["torch", "onnx", "onnx int8"]
    assert {one["examples"] for one in (torch_, onnx, int8)} == {"50"}
    assert torch_["score"] == onnx["score"]  # their logits are within 1e-4
    assert float(int8["mebibytes"]) < float(onnx["mebibytes"])
    assert "sentences/s" in capsys.readouterr().out


def test_a_side_that_loses_sentences_is_refused():
    with pytest.raises(RuntimeError, match="wanted 3 sentences, got 2"):
        predict.measure({("half", 1): lambda: 2}, sentences=3, rounds=1)


def test_sentences_are_the_same_every_time_and_not_too_long():
    words = predict.make_words(30)
    assert len(set(words)) == 30
    first = predict.make_sentences(words, 20, seed=1)
    assert first == predict.make_sentences(words, 20, seed=1)
    assert all(1 <= len(one.split()) <= 60 for one in first)
