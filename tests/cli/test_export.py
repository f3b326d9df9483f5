import json

import pytest

from softf1.cli.main import main
from softf1.training.export import check_target

onnxruntime = pytest.importorskip("onnxruntime", reason="wants onnxruntime (softf1[onnx])")


def test_what_was_written_is_told(run, capsys):
    assert main(["export", str(run), "--onnx"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{run}/model.onnx: 0.")
    assert first.endswith("input_ids, attention_mask, char_ids → logits")
    assert "from torch over 4 shapes in onnxruntime" in second
    session = onnxruntime.InferenceSession(run / "model.onnx")
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    assert labels == ["O", "B-LOC", "B-PER"]
    check_target(run / "model.onnx")  # an export may be replaced by the next one


def test_no_run_is_one_line_and_exit_2(tmp_path, capsys):
    assert main(["export", str(tmp_path), "--onnx", "--out", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
