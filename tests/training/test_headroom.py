"""The headroom of a run of every task: written by training, found by the command."""

import json
import os
import shutil
from itertools import pairwise

import pytest

from softf1.cli.main import main
from softf1.training.run import train_run
from softf1.training.run_folder import _empty as empty_folder
from tests.reports.test_damage import damages
from tests.training.test_run import case
from tests.training.toys import make_data, make_recipe, write_recipe

KINDS = {
    "tagging": {"right labels", "right boundaries", "a better decision", "a better ranking"},
    "classification": {"a better decision", "a better ranking"},
    "multi-label": {"a better decision", "a better ranking"},
    "pairs": {"a better decision", "a better ranking"},
    "qa": {"a better ranking", "right boundaries"},
    "mrc_ner": {"right labels", "right boundaries"},  # refused spans are not kept
    "span_ner": {"right labels", "right boundaries", "a better decision", "a better ranking"},
}


def check(found):
    """What holds of any headroom."""
    decided = found["decided"]
    steps = [step["score"] for step in found["steps"]]
    assert steps[0] == pytest.approx(decided)
    assert steps[-1] == 1
    assert all(a <= b + 1e-12 for a, b in pairwise(steps))
    for part in found["parts"]:
        assert 0 <= part["score"] <= 1
        if part["wins"]:
            assert part["gain"] >= -1e-12  # the decision itself is one of the ways


@pytest.mark.parametrize("name", KINDS)
def test_training_leaves_it_in_the_run(name, bert, tmp_path, capsys):
    recipe, data = case(name, bert)
    result = train_run(recipe, tmp_path / "run", data=data, quiet=True)
    found = json.loads((tmp_path / "run/headroom.json").read_text("utf-8"))
    check(found)
    assert (found["schema"], found["split"]) == (1, "test")
    assert found["examples"] == len(data["test"])
    assert found["decided"] == pytest.approx(result["scores"]["test"][found["metric"]])
    assert {part["wins"] for part in found["parts"]} - {""} == KINDS[name]
    capsys.readouterr()
    assert main(["headroom", str(tmp_path / "run"), "--examples"]) == 0
    out = capsys.readouterr().out
    assert f"{found['metric']} on test, {len(data['test'])} examples" in out
    assert found["summary"][1:] in out


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run whose files are beside it."""
    folder = tmp_path_factory.mktemp("headroom")
    recipe = write_recipe(folder)
    assert main(["train", str(recipe), "--out", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


@pytest.fixture
def run(done, tmp_path):
    """A copy of it to change."""
    return shutil.copytree(done, tmp_path / "run")


def ask(run, capsys, *options):
    """What the command prints as JSON."""
    capsys.readouterr()
    assert main(["headroom", str(run), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_without_the_file_it_comes_from_model_and_data_and_is_kept(run, capsys):
    before = json.loads((run / "headroom.json").read_text("utf-8"))
    (run / "headroom.json").unlink()
    found = ask(run, capsys)
    assert found["decided"] == pytest.approx(before["decided"])
    assert [part["title"] for part in found["parts"]] == [x["title"] for x in before["parts"]]
    assert json.loads((run / "headroom.json").read_text("utf-8")) == found


def test_a_run_that_you_may_not_change_can_be_looked_at(run, monkeypatch, capsys):
    (run / "headroom.json").unlink()
    monkeypatch.setattr("os.access", lambda path, mode: not (path == run and mode == os.W_OK))
    check(ask(run, capsys))
    assert not (run / "headroom.json").exists()


def test_another_part_or_file_is_computed_and_leaves_the_run_alone(run, capsys):
    kept = (run / "headroom.json").read_bytes()
    dev = ask(run, capsys, "--split", "dev")
    assert (dev["split"], dev["examples"]) == ("dev", 18)
    check(dev)
    path = json.loads((run / "result.json").read_text("utf-8"))["recipe"]["task"]["test"]
    other = ask(run, capsys, "--data", path)
    assert (other["split"], other["examples"]) == (None, 12)
    assert (run / "headroom.json").read_bytes() == kept


def test_without_weights_predictions_say_what_they_can(run, capsys):
    before = json.loads((run / "headroom.json").read_text("utf-8"))
    (run / "headroom.json").unlink()
    (run / "model/model.safetensors").unlink()
    found = ask(run, capsys)
    assert found["decided"] == pytest.approx(before["decided"])
    wins = {part["wins"]: part["gain"] for part in found["parts"] if part["wins"]}
    known = {part["wins"]: part["gain"] for part in before["parts"]}
    assert wins == pytest.approx({name: known[name] for name in wins})
    assert set(wins) == {"right labels", "right boundaries"}
    assert "logits" in found["unknown"]
    assert "what a better decision or ranking wins is not known" in found["summary"]
    assert found["missing"][0].startswith("from predictions.test.jsonl alone, since ")
    assert not (run / "headroom.json").exists()  # less than the model would say


def test_starting_afresh_removes_it(run):
    """A run that ends early must not keep the figures of the one before."""
    assert (run / "headroom.json").is_file()
    empty_folder(run)
    assert not (run / "headroom.json").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (shutil.rmtree, "found no such folder"),
        (lambda run: [shutil.rmtree(run), run.mkdir()], "wanted a run that has finished"),
        (lambda run: (run / "headroom.json").write_text("{"), "wanted the headroom of a run"),
        (lambda run: (run / "headroom.json").write_text("[]"), '"schema": 1'),
        (
            lambda run: [
                (run / name).unlink()
                for name in ("headroom.json", "model/model.safetensors", "predictions.test.jsonl")
            ],
            "there is no predictions.test.jsonl to use instead",
        ),
        (
            lambda run: [
                (run / "headroom.json").unlink(),
                (run / "model/model.safetensors").unlink(),
                (run / "predictions.test.jsonl").write_text(""),
            ],
            "predictions.test.jsonl has no predictions",
        ),
        (
            lambda run: [
                (run / "headroom.json").unlink(),
                (run / "model/model.safetensors").unlink(),
                (run / "predictions.test.jsonl").write_text("{}\n"),
            ],
            "wanted predictions of task tagging, got KeyError",
        ),
        (
            lambda run: [
                (run / "headroom.json").unlink(),
                (run / "model/model.safetensors").unlink(),
                (run / "predictions.test.jsonl").write_text("no\n"),
            ],
            "predictions.test.jsonl:1: wanted JSON",
        ),
    ],
)
def test_bad_input_is_one_line(run, damage, said, capsys):
    damage(run)
    capsys.readouterr()
    assert main(["headroom", str(run)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("softf1 headroom: ")
    assert said in err


def test_a_value_of_another_form_is_one_line_or_shown(run, capsys):
    path, refused = run / "headroom.json", 0
    changed = list(damages(json.loads(path.read_text("utf-8"))))[::9]
    for content in changed:
        path.write_text(json.dumps(content), "utf-8")
        code = main(["headroom", str(run), "--examples"])
        err = capsys.readouterr().err
        assert (code, err.count("\n")) in [(0, 0), (2, 1)]
        assert code == 0 or "headroom.json: wanted the headroom of a run, " in err
        refused += code == 2
    assert 0 < refused < len(changed)


def test_a_file_and_a_part_are_not_asked_for_at_once(run, capsys):
    assert main(["headroom", str(run), "--data", "x", "--split", "dev"]) == 2
    assert "FILE or --split" in capsys.readouterr().err


def test_a_file_with_nothing_to_find_is_said_to_be_one(run, tmp_path, capsys):
    (tmp_path / "plain.txt").write_text("so O\nit O\nis O\n", "utf-8")
    assert main(["headroom", str(run), "--data", str(tmp_path / "plain.txt")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("f1 on this file, 1 example\n")
    assert out.endswith("\nThere is nothing to find in these examples.\n")


def test_a_file_that_is_not_there_is_an_error(run, capsys):
    assert main(["headroom", str(run), "--data", "none.txt"]) == 2
    assert "none.txt" in capsys.readouterr().err


def test_a_crf_has_all_parts_of_spans(tmp_path):
    task, encoder = {"kind": "tagging", "decoder": "crf"}, {"name": "bilstm", "hidden_size": 8}
    recipe = make_recipe(task, encoder=encoder)
    result = train_run(recipe, tmp_path / "run", data=make_data("tagging"), quiet=True)
    found = json.loads((tmp_path / "run/headroom.json").read_text("utf-8"))
    check(found)
    assert found["decided"] == pytest.approx(result["scores"]["test"]["f1"])
    assert {part["wins"] for part in found["parts"]} - {""} == KINDS["tagging"]
    assert found["summary"].startswith("a better decision wins at most ")
    assert (found["missing"], found["unknown"]) == ([], "")


def test_without_the_memory_to_measure_it_the_run_is_complete(tmp_path, monkeypatch):
    made = []

    def measure(*_, **__):
        made.extend((tmp_path / "run/model").glob("*.safetensors"))
        raise MemoryError

    monkeypatch.setattr("softf1.training.run.measure_headroom", measure)
    recipe = make_recipe({"kind": "classification"}, encoder={"name": "textcnn"})
    result = train_run(recipe, tmp_path / "run", data=make_data("classification"), quiet=True)
    assert len(made) == 1  # the model was there before
    said = "there was not enough memory to measure the headroom; softf1 headroom tries again"
    assert said in result["warnings"]
    assert said in json.loads((tmp_path / "run/result.json").read_text("utf-8"))["warnings"]
    assert not (tmp_path / "run/headroom.json").exists()


def test_labels_that_were_left_out_are_read_from_predictions(tmp_path, capsys):
    target = {"target": {"person": "precision>=0.6"}}
    recipe = make_recipe({"kind": "classification"}, encoder={"name": "textcnn"}, evaluate=target)
    result = train_run(recipe, tmp_path / "run", data=make_data("classification"), quiet=True)
    (tmp_path / "run/headroom.json").unlink()
    path = tmp_path / "run/predictions.dev.tuned.jsonl"  # of files only dev is known
    lines = [json.loads(line) | {"label": None} for line in path.read_text("utf-8").splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (tmp_path / "run/model/model.safetensors").unlink()
    assert result["tuned"]
    assert ask(tmp_path / "run", capsys)["decided"] == 0


def test_the_line_says_that_the_run_has_another_metric(tmp_path, capsys):
    evaluate = {"metric": "accuracy"}
    recipe = make_recipe({"kind": "classification"}, encoder={"name": "textcnn"}, evaluate=evaluate)
    train_run(recipe, tmp_path / "run", data=make_data("classification"), quiet=True)
    found = json.loads((tmp_path / "run/headroom.json").read_text("utf-8"))
    assert (found["metric"], found["primary_metric"]) == ("f1", "accuracy")
    said = "examples; the primary metric of the run is accuracy\n"
    assert main(["headroom", str(tmp_path / "run")]) == 0
    assert said in capsys.readouterr().out
    (tmp_path / "run/headroom.json").unlink()  # again, from predictions
    assert main(["headroom", str(tmp_path / "run")]) == 0
    assert said in capsys.readouterr().out


def test_what_the_saved_model_decides_is_what_counts(tmp_path):
    """With thresholds tuned on dev, the score as decided is the tuned one."""
    recipe = make_recipe(
        {"kind": "classification"}, encoder={"name": "textcnn"}, evaluate={"tune": True}
    )
    result = train_run(recipe, tmp_path / "run", data=make_data("classification"), quiet=True)
    found = json.loads((tmp_path / "run/headroom.json").read_text("utf-8"))
    assert found["decided"] == pytest.approx(result["tuned"]["test"]["f1"])
