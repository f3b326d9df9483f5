import json

import pytest

from softf1.cli.main import main
from softf1.training.export import check_target

onnxruntime = pytest.importorskip("onnxruntime", reason="wants onnxruntime (softf1[onnx])")


def test_what_was_written_is_told(run, capsys):
    assert main(["export", str(run)]) == 0  # --onnx is the only format
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{run}/model.onnx: 0.")
    assert first.endswith("input_ids, attention_mask, char_ids → logits")
    assert "differs from torch by at most" in second
    session = onnxruntime.InferenceSession(run / "model.onnx")
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    assert labels == ["O", "B-LOC", "B-PER"]
    check_target(run / "model.onnx")  # an export may be replaced by the next one


def test_int8_is_scored_beside_the_model(run, capsys):
    assert main(["export", str(run), "--onnx", "--int8"]) == 0
    first, _, plain, small = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{run}/model.int8.onnx: ")
    test = run.parent / "test.txt"
    assert plain == f"float32: f1 100.00 on {test}"
    assert small == f"int8: f1 100.00 on {test}"
    check_target(run / "model.int8.onnx")
    assert main(["evaluate", str(run), "--onnx", str(run / "model.int8.onnx"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["f1"] == 1.0


def test_int8_of_a_model_folder_says_how_to_score_it(run, capsys):
    file = run.parent / "small.onnx"
    assert main(["export", str(run / "model"), "--onnx", "--int8", "--out", str(file)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith(f"softf1 evaluate {run / 'model'} --onnx {file} --data FILE")


def test_evaluate_refuses_what_is_no_export(run, capsys):
    file = run.parent / "no.onnx"
    for more, message in ([[], "wanted an ONNX file"], [["--abstain"], "--onnx or --abstain"]):
        file.write_text("nothing")
        assert main(["evaluate", str(run), "--onnx", str(file), *more]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_a_folder_is_no_place_for_an_export(run, capsys):
    assert main(["export", str(run), "--onnx", "--out", "."]) == 2
    error = capsys.readouterr().err
    assert error == "softf1 export: .: wanted a file to write to, got a folder\n"


def test_no_run_is_one_line_and_exit_2(tmp_path, capsys):
    assert main(["export", str(tmp_path), "--onnx", "--out", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
