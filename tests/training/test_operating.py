"""Targets from a recipe to the saved model, its card, predictions, evaluation and the report."""

import json

import pytest

from softf1.cli.main import main
from softf1.cli.show import format_result
from softf1.errors import InputError
from softf1.experiments.compare import make_runs
from softf1.experiments.grid import Grid
from softf1.recipe import (
    OptionError,
    build_recipe,
    check_recipe,
    describe_recipe,
    hash_recipe,
    with_values,
)
from softf1.recipe.loading import parse_override, split_values
from softf1.training.publish import load_model
from softf1.training.run import train_run
from tests.training.test_decisions import labels_of_lines, labels_of_pipeline
from tests.training.toys import make_data, make_recipe, read_lines, write_files

SIZES = {"train": 40, "dev": 60, "test": 20}


def train(folder, target, kind="tagging", **how):
    recipe = make_recipe({"kind": kind}, evaluate={"target": target}, **how)
    return train_run(recipe, folder, data=make_data(kind, sizes=SIZES), quiet=True)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """A tagger with bars, the files of its data and its result."""
    folder = tmp_path_factory.mktemp("tagger")
    words = dict(word.removeprefix("task.").split("=", 1) for word in write_files(folder, SIZES))
    files = {name: json.loads(path) for name, path in words.items()}
    target = {"PER": "recall>=0.3", "LOC": "precision>=0.99"}
    recipe = make_recipe(files, train={"epochs": 12.0, "lr": 2e-2}, evaluate={"target": target})
    return folder / "run", files, train_run(recipe, folder / "run", quiet=True)


def test_the_result_has_the_points_and_says_what_is_not_reached(tagger):
    folder, _, result = tagger
    points = {one["label"]: one for one in result["operating_points"]}
    assert set(points) == {"PER", "LOC"}
    assert points["LOC"]["reached"] is False  # 99% want 299 right ones, of which there are few
    assert any("LOC: precision>=0.99 is not reached" in said for said in result["warnings"])
    assert load_model(folder).task.bars["LOC"] == points["LOC"]["threshold"]
    own = points["PER"]
    assert own["reached"]
    assert result["tuned"]["dev"]["labels"]["PER"]["recall"] == pytest.approx(own["recall"])
    config = json.loads((folder / "model/config.json").read_text("utf-8"))
    assert config["softf1_decision"]["bars"] == load_model(folder).task.bars
    card = (folder / "model/README.md").read_text("utf-8")
    assert "| `LOC` | `precision>=0.99` (not reached) |" in card
    assert "`softf1 predict --abstain` leaves out predictions below these confidences" in card
    said = format_result(result, folder)
    assert "PER: recall>=0.3 is reached from a threshold of 0." in said
    assert "LOC: precision>=0.99 is reached" not in said
    assert json.loads((folder / "result.json").read_text("utf-8"))["operating_points"]


def test_predict_and_evaluate_abstain_where_they_are_told(tagger, capsys, tmp_path):
    folder, files, result = tagger
    plain, left = tmp_path / "plain.jsonl", tmp_path / "left.jsonl"
    assert main(["predict", str(folder), files["test"], "--out", str(plain)]) == 0
    assert "note: this model has confidence thresholds" in capsys.readouterr().err
    assert main(["predict", str(folder), files["test"], "--out", str(left), "--abstain"]) == 0
    assert "has bars" not in capsys.readouterr().err
    bars = load_model(folder).task.bars
    dropped = 0
    for before, after in zip(read_lines(plain), read_lines(left), strict=True):
        kept = [x for x in before["entities"] if x["confidence"] >= bars[x["label"]]]
        assert after["entities"] == kept
        dropped += len(before["entities"]) - len(kept)
    assert dropped
    scores = {}
    for words in ([], ["--abstain"]):
        assert main(["evaluate", str(folder), "--json", *words]) == 0
        scores[bool(words)] = json.loads(capsys.readouterr().out)
    assert scores[False]["scores"] == result["scores"]["test"]
    assert scores[True]["scores"] == result["tuned"]["test"]
    assert any("--abstain" in note for note in scores[False]["notes"])
    assert not any("--abstain" in note for note in scores[True]["notes"])


def test_a_model_without_bars_cannot_abstain(tmp_path, capsys):
    train_run(make_recipe(train={"max_steps": 1}), tmp_path, data=make_data(), quiet=True)
    (tmp_path / "in.txt").write_text("Ann\nruns\n", "utf-8")
    assert main(["predict", str(tmp_path), str(tmp_path / "in.txt"), "--abstain"]) == 2
    assert "eval.target" in capsys.readouterr().err


def test_the_report_has_the_curve_and_the_point(tagger, tmp_path):
    pytest.importorskip("plotly")
    from softf1.reports import write_report

    folder, _, _ = tagger
    page = write_report([folder], tmp_path / "page.html").read_text("utf-8")
    assert 'id="operating"' in page
    assert "plot-operating" in page
    assert "not reached" in page
    assert "1 of 2 operating points reach" in page


@pytest.mark.parametrize("target", ["precision>=0.6", "cost:fp=1,fn=20", "recall>=0.6"])
def test_transformers_decides_the_same(target, tmp_path, bert):
    task = {"kind": "classification", "positive": "none"}
    data = make_data("classification", sizes={"train": 60, "dev": 80, "test": 20})
    recipe = make_recipe(
        task, encoder={"name": str(bert)}, train={"epochs": 4.0}, evaluate={"target": target}
    )
    result = train_run(recipe, tmp_path / "run", data=data, quiet=True)
    task = load_model(tmp_path / "run").task
    assert result["operating_points"][0]["label"] == "none"
    assert task.shifts()["labels"].any()
    wanted = list(labels_of_lines(tmp_path / "run/predictions.test.tuned.jsonl"))
    assert labels_of_pipeline(tmp_path / "run/model", task, data["test"]) == wanted


def test_a_threshold_is_scored_without_abstaining(tmp_path, capsys):
    """With bars it is scored with it, which is tested above."""
    files = {}
    for name, own in make_data("classification", sizes=SIZES).items():
        path = tmp_path / f"{name}.tsv"
        path.write_text("".join(f"{x.labels[0]}\t{x.text}\n" for x in own), "utf-8")
        files[name] = str(path)
    target = {"target": "precision>=0.6"}
    cnn = {"name": "textcnn"}
    recipe = make_recipe({"kind": "classification", **files}, encoder=cnn, evaluate=target)
    result = train_run(recipe, tmp_path / "run", quiet=True)
    assert load_model(tmp_path / "run").task.thresholds
    scores = {}
    for words in ([], ["--abstain"]):
        assert main(["evaluate", str(tmp_path / "run"), "--json", *words]) == 0
        scores[bool(words)] = json.loads(capsys.readouterr().out)["scores"]
    assert result["tuned"]["test"] == scores[False] != scores[True]


@pytest.mark.parametrize("kind", ["qa", "mrc_ner", "span_ner", "pairs"])
def test_every_other_task_gets_there(kind, tmp_path, bert):
    result = train(
        tmp_path, "precision>=0.5", kind, encoder={"name": str(bert)}, train={"max_steps": 2}
    )
    assert len(result["operating_points"]) == 1
    assert result["operating_points"][0]["confidence"] == 0.95
    assert set(result["tuned"]) == {"dev", "test"}


def test_a_bias_is_printed_and_on_the_card_and_in_the_report(tmp_path):
    result = train(tmp_path / "run", "cost:fp=1,fn=5", train={"epochs": 4.0})
    (point,) = result["operating_points"]
    assert (point["what"], point["reached"]) == ("bias of O", None)
    said = f"for cost:fp=1,fn=5, a bias of O of {point['threshold']:.6g} is best on dev: precision"
    assert said in format_result(result, tmp_path)
    card = (tmp_path / "run/model/README.md").read_text("utf-8")
    assert f"| all | `cost:fp=1,fn=5` | bias of O {point['threshold']:.6g} |" in card
    pytest.importorskip("plotly")
    from softf1.reports import write_report

    page = write_report([tmp_path / "run"], tmp_path / "page.html").read_text("utf-8")
    assert "cost:fp=1,fn=5 (bias of O)" in page


def test_f1_is_the_tuning_of_today(tmp_path):
    data = make_data(sizes=SIZES)
    for name, own in (("a", {"tune": True}), ("b", {"target": "f1"})):
        train_run(make_recipe(evaluate=own), tmp_path / name, data=data, quiet=True)
    for name in ("predictions.dev.tuned.jsonl", "model/model.safetensors", "model/softf1.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("kind", ["tagging", "span_ner", "mrc_ner", "qa", "pairs"])
def test_equal_targets_choose_the_same(kind, tmp_path, bert):
    """Also where there is nothing to tune: spans have a minimum confidence, with a point."""
    tasks = {}
    for target in ("f1", "f1.0"):
        encoder = {} if kind == "tagging" else {"encoder": {"name": str(bert)}}
        result = train(tmp_path / target, target, kind, train={"max_steps": 2}, **encoder)
        tasks[target] = load_model(tmp_path / target).task
        spans = kind in ("span_ner", "mrc_ner")
        assert bool(tasks[target].bars) == spans
        assert ("operating_points" in result) == (kind != "qa")
    assert tasks["f1"] == tasks["f1.0"]


@pytest.mark.parametrize("target", ["f1", "f1.0"])
def test_a_crf_has_nothing_to_tune_for_equal_targets(target, tmp_path):
    task = {"kind": "tagging", "decoder": "crf"}
    recipe = make_recipe(task, train={"max_steps": 1}, evaluate={"target": target})
    check_recipe(recipe)
    result = train_run(recipe, tmp_path, data=make_data(sizes=SIZES), quiet=True)
    assert "tuned" not in result


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("precision>=1.5", "a precision above 0 and below 1"),
        ("recall", '"recall>=0.9"'),
        ("cost:fp=-1,fn=1", "costs of 0 or more"),
        ({"PER": "precision"}, '"precision>=0.95"'),
        ({}, "an empty table"),
        (0.95, "wanted a string or a table"),
    ],
)
def test_bad_targets_are_refused_when_a_recipe_is_read(target, wanted):
    with pytest.raises(OptionError, match=r"^eval.target: ") as error:
        make_recipe(evaluate={"target": target})
    assert wanted in str(error.value)


def test_what_a_task_cannot_do_is_refused_before_training(tmp_path):
    qa = make_recipe({"kind": "qa"}, encoder={"name": "x"}, evaluate={"target": "f2"})
    with pytest.raises(OptionError, match=r"^eval.target: .* for answers, got f2"):
        check_recipe(qa)
    with pytest.raises(InputError, match=r"^eval.target: wanted labels of .*LOC, PER; got ORG"):
        train(tmp_path, {"ORG": "precision>=0.9"})
    assert not (tmp_path / "model").exists()


def test_a_recipe_without_a_target_has_the_hash_that_it_had():
    recipe = make_recipe()
    assert "target" not in describe_recipe(recipe)["eval"]
    wanted = with_values(recipe, {"eval.target": "precision>=0.9"})
    assert hash_recipe(wanted) != hash_recipe(recipe)
    assert hash_recipe(with_values(wanted, {"eval.target": None})) == hash_recipe(recipe)
    assert describe_recipe(build_recipe(describe_recipe(wanted)))["eval"]["target"]


def test_compare_and_sweep_take_targets(tmp_path):
    recipe = make_recipe(evaluate={"target": "precision>=0.9"})
    for tuned, wanted in ((True, "precision>=0.9"), (False, None)):
        grid = Grid(tmp_path, recipe, iter)
        grid.content = {"losses": ["ce", *(["ce+tuned"] if tuned else [])]}
        (run,) = make_runs("ce", {"loss.name": "ce"}, grid, [0])
        own = with_values(recipe, run.values)
        assert (own.eval.target, own.eval.tune) == (wanted, tuned)
    words = [f"eval.target={word}" for word in split_values("f2,precision>=0.9")]
    assert [parse_override(word)[1] for word in words] == ["f2", "precision>=0.9"]
