import json
import shutil

import pytest

from softf1.cli.main import main
from softf1.experiments.grid import drop_weights
from tests.cli.conftest import SENTENCES, as_columns


def test_headline_first_then_every_label(run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["evaluate", str(run)]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == [f"{run.parent}/test.txt:", "2", "examples"]
    assert lines[2][0] == "f1"
    assert lines[3][:2] == ["test", "100.00"]
    assert lines[5] == ["label", "precision", "recall", "f1", "support"]
    assert lines[6:] == [
        ["PER", "100.00", "100.00", "100.00", "3"],
        ["LOC", "100.00", "100.00", "100.00", "1"],
    ]
    assert err == ""
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after == before


def test_dev_is_the_part_that_training_held_out(run, capsys):
    assert main(["evaluate", str(run), "--split", "dev", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["examples"] == 2  # dev_share 0.5 of four
    assert (found["split"], found["headline"], found["schema"]) == ("dev", "f1", 1)
    assert found["scores"]["f1"] == 1.0


def test_a_label_that_training_never_saw_is_told(run, tmp_path, capsys):
    other = tmp_path / "other.txt"
    other.write_text(as_columns(SENTENCES).replace("LOC", "CITY"))
    assert main(["evaluate", str(run), "--data", str(other)]) == 0
    out, err = capsys.readouterr()
    assert err == "note: B-CITY not in the training data: scored, never predicted\n"
    assert ["CITY", "0.00", "0.00", "0.00", "2"] in [line.split() for line in out.splitlines()]


def test_another_format_can_be_named(run, tmp_path, capsys):
    other = tmp_path / "other"
    other.write_text("Ann/B-PER ran/O\n")
    command = ["evaluate", str(run), "--data", str(other), "--json"]
    assert main([*command, "--format", "tagged", "--set", "separator=/"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["labels"]["PER"]["support"] == 1


def test_the_file_is_where_predict_has_it(run, tmp_path, capsys):
    other = tmp_path / "other.txt"
    other.write_text("Ann B-PER\nran O\n")
    found = []
    for words in ([str(other)], ["--data", str(other)]):
        assert main(["evaluate", str(run), *words, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[0]["data"] == str(other)


def test_a_run_of_a_grid_that_kept_no_weights(run, capsys):
    drop_weights(run)
    assert main(["evaluate", str(run)]) == 2
    said = "wanted a model, got a run that kept no weights (--no-models, or a tuning trial)"
    assert f"{run}/model: {said}; softf1 train {run}/recipe.toml" in capsys.readouterr().err


BAD = {
    "twice": (["x", "--data", "x"], "wanted FILE or --data, got both"),
    "both": (["--data", "x", "--split", "dev"], "wanted FILE or --split, got both"),
    "no file": (["--data", "nowhere.txt"], "nowhere.txt: wanted a file to read"),
    "device": (["--device", "toaster"], "wanted --device of this machine, got toaster"),
    "meta": (["--device", "meta"], "wanted --device of this machine, got meta"),
    "tokens": (["--batch-tokens", "0"], "wanted --batch-tokens from 1 up, got 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_2(run, capsys, name):
    options, message = BAD[name]
    assert main(["evaluate", str(run), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"softf1 evaluate: {message}")
    assert err.count("\n") == 1


def test_without_labels_there_is_nothing_to_score(run, tmp_path, capsys):
    other = tmp_path / "other.txt"
    other.write_text("Ann ran\n")
    assert main(["evaluate", str(run), "--data", str(other), "--format", "plain"]) == 2
    assert (
        "other.txt:1: wanted tags to score against, got a sentence without"
        in capsys.readouterr().err
    )


def test_the_recipes_file_has_gone(run, capsys):
    (run.parent / "test.txt").unlink()
    assert main(["evaluate", str(run)]) == 2
    assert "the test file of the recipe does not exist: use --data" in capsys.readouterr().err


def test_a_model_folder_needs_data(run, capsys):
    assert main(["evaluate", str(run / "model")]) == 2
    assert "wanted --data" in capsys.readouterr().err
    assert main(["evaluate", str(run / "model"), "--data", str(run.parent / "test.txt")]) == 0


def test_a_run_that_has_not_finished_has_no_model(run, capsys):
    shutil.rmtree(run / "model")
    assert main(["evaluate", str(run)]) == 2
    assert "wanted a run that has finished or a model folder" in capsys.readouterr().err
