"""Runs: every task trains, the seed decides, folders are finished, begun or another's."""

import fcntl
import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file

from softf1.errors import InputError, RunError
from softf1.recipe import hash_recipe, read_recipe, with_values
from softf1.training import progress
from softf1.training.build import is_deterministic
from softf1.training.graphs import GraphStepper
from softf1.training.publish import load_model
from softf1.training.run import train_run
from softf1.training.run_folder import read_result
from softf1.training.step import Stepper
from tests.training.toys import (
    make_data,
    make_recipe,
    read_files,
    read_lines,
    read_metrics,
    write_recipe,
)

CASES = {
    "tagging": ({"kind": "tagging"}, "bilstm", {"name": "ce"}),
    "tagging-batch": (
        {"kind": "tagging"},
        "bert",
        {"name": "ce+dice", "dice": {"over": "batch", "exclude": ["O"]}},
    ),
    "joint": ({"kind": "tagging", "unit": "joint"}, "bilstm", {"name": "dsc"}),
    "classification": ({"kind": "classification"}, "textcnn", {"name": "wfocal"}),
    "multi-label": (
        {"kind": "classification", "multi_label": True},
        "textcnn",
        {"name": "tversky", "over": "batch", "average": "micro"},
    ),
    "pairs": ({"kind": "pairs"}, "bert", {"name": "dice", "over": "batch", "ohem_ratio": 1.0}),
    "qa": ({"kind": "qa"}, "bert", {"name": "ce+dice"}),
    "qa-sigmoid": (
        {"kind": "qa", "positions": "sigmoid"},
        "bert",
        {"name": "dice", "over": "batch", "keys": {"end": 0.5}},
    ),
    "mrc_ner": ({"kind": "mrc_ner"}, "bert", {"name": "wce"}),
    "mrc_ner-alone": ({"kind": "mrc_ner", "match": "none"}, "bert", {"name": "focal"}),
    "span_ner": (
        {"kind": "span_ner", "nested": True, "max_span": 3},
        "bert",
        {"name": "ce+dice", "dice": {"over": "batch"}},
    ),
}
SMALL = {
    "bilstm": {"hidden_size": 16, "word_size": 8, "char_size": 4, "char_filters": 4},
    "textcnn": {},
}
TWO_STEPS = {"max_steps": 2, "batch_size": 8}


def case(name, bert, **train):
    """The recipe and the data of a case."""
    task, encoder, loss = CASES[name]
    where = {"name": str(bert) if encoder == "bert" else encoder} | SMALL.get(encoder, {})
    data = make_data(task["kind"], several="multi_label" in task)
    return make_recipe(task, encoder=where, loss=loss, train=TWO_STEPS | train), data


@pytest.mark.parametrize("name", CASES)
def test_every_task_trains_and_the_seed_decides_every_bit(name, bert, tmp_path):
    recipe, data = case(name, bert)
    result = train_run(recipe, tmp_path / "a", data=data, quiet=True)
    again = train_run(recipe, tmp_path / "b", data=data, quiet=True)
    other = train_run(with_values(recipe, {"train.seed": 1}), tmp_path / "c", data=data, quiet=True)
    assert result["steps"] == 2
    assert 8 < result["examples"] <= 16
    for part in ("dev", "test"):
        lines = read_lines(tmp_path / f"a/predictions.{part}.jsonl")
        assert len(lines) == len(data[part])
        assert 0 <= result["scores"][part][result["headline"]] <= 1
    files = read_files(tmp_path / "a")
    assert files == read_files(tmp_path / "b")
    assert result["scores"] == again["scores"]
    weights = (tmp_path / "c/model/model.safetensors").read_bytes()
    assert weights != files["model/model.safetensors"]
    assert other["best"]["step"] == 2
    assert load_model(tmp_path / "a").task.kind == recipe.task.kind


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of some epochs, its recipe, its data and its result."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train = {"epochs": 10, "eval_every": 2.0, "lr": 3e-2}
    recipe = make_recipe(train=train, evaluate={"tune": True})
    return folder, recipe, train_run(recipe, folder, data=make_data(), quiet=True)


def test_training_learns(finished):
    _, _, result = finished
    assert result["scores"]["test"]["f1"] > 0.9


def test_a_run_folder_has_what_it_should(finished):
    folder, recipe, result = finished
    assert sorted(path.name for path in folder.iterdir()) == [
        "headroom.json",
        "metrics.jsonl",
        "model",
        "predictions.dev.jsonl",
        "predictions.dev.tuned.jsonl",
        "predictions.test.jsonl",
        "predictions.test.tuned.jsonl",
        "recipe.toml",
        "result.json",
    ]
    assert json.loads((folder / "result.json").read_text()) == result
    assert hash_recipe(read_recipe(folder / "recipe.toml")) == result["hash"] == hash_recipe(recipe)


def test_the_result_says_what_was_done(finished):
    _, _, result = finished
    assert result["steps"] == 40  # 60 sentences in steps of 16, 10 times
    assert result["epochs"] == 10.0
    assert result["examples"] == 600
    assert result["best"]["score"] == result["scores"]["dev"]["f1"]
    assert result["class_counts"]["tags"].keys() == {"O", "B-PER", "B-LOC"}
    tags = [tag for example in make_data()["train"] for tag in example.tags]
    assert result["class_counts"]["tags"]["B-PER"] == tags.count("B-PER")
    words = 10 * len(tags)
    assert result["tokens_per_second"] == pytest.approx(words / result["seconds"]["train"], rel=0.1)
    assert result["data"]["train"]["examples"] == 60


@pytest.mark.parametrize(
    ("device", "asked", "fused", "encoder", "kind", "found"),
    [
        ("cuda", None, False, "bert", GraphStepper, False),
        ("cuda", None, True, "bert", GraphStepper, True),
        ("cuda", None, False, "bilstm", GraphStepper, False),
        ("cuda", None, False, "textcnn", GraphStepper, True),
        ("cuda", None, False, "textcnn", Stepper, False),
        ("cuda", True, False, "bilstm", Stepper, True),
        ("cuda", False, True, "textcnn", GraphStepper, False),
        ("cpu", None, False, "bert", Stepper, True),
        ("cpu", False, False, "bert", Stepper, True),
    ],
)
def test_operations_are_deterministic_where_that_costs_nothing(
    device, asked, fused, encoder, kind, found
):
    stepper = object.__new__(kind)
    stepper.repeats, stepper.device = fused, torch.device(device)
    recipe = make_recipe(encoder={"name": encoder}, train={"deterministic": asked})
    assert is_deterministic(recipe, stepper) is found
    compiled = with_values(recipe, {"train.compile": "inductor"})  # it keeps operations of its own
    assert is_deterministic(compiled, stepper) is (device == "cpu")


def test_the_result_says_that_runs_on_a_cpu_repeat(finished):
    assert finished[-1]["deterministic"] is True


def test_metrics_hold_steps_evaluations_and_the_end(finished):
    folder, _, result = finished
    lines = read_lines(folder / "metrics.jsonl")
    steps = [line for line in lines if line["event"] == "step"]
    assert [line["step"] for line in steps] == [10, 20, 30, 40]
    assert [line["epoch"] for line in steps] == [2.5, 5.0, 7.5, 10.0]
    assert steps[0]["loss"] > steps[-1]["loss"] > 0
    assert steps[0].keys() == {"event", "step", "epoch", "loss", "norm", "lr", "seconds"}
    # 4 of 40 steps rise, 36 fall: the rate of step 20, the 16th of those, is 1 − 15/36 of 0.03
    assert steps[1]["lr"] == pytest.approx(0.03 * (1 - 15 / 36))
    found = [line for line in lines if line["event"] == "eval"]
    assert [line["step"] for line in found] == [8, 16, 24, 32, 40]
    assert "labels" not in found[0]["scores"]
    best = max(found, key=lambda line: (line["scores"]["f1"], line["step"]))
    assert best["step"] == result["best"]["step"]
    assert lines[-1] == {
        "event": "end",
        "step": 40,
        "best": result["best"]["score"],
        "best_step": result["best"]["step"],
    }


def test_the_model_is_that_of_the_best_evaluation(tmp_path, monkeypatch):
    """The second of three is said to be best: the model is that of a training of two epochs."""
    steady = {"schedule": "constant", "warmup": 0.0}
    two = make_recipe(train={"epochs": 2, **steady})
    scores = iter([0.2, 0.6, 0.2, 0.6, 0.4])
    monkeypatch.setattr("softf1.training.trainer.read_score", lambda *_: next(scores))
    train_run(two, tmp_path / "two", data=make_data(), quiet=True)
    three = make_recipe(train={"epochs": 3, **steady})
    result = train_run(three, tmp_path / "three", data=make_data(), quiet=True)
    assert result["steps"] == 12
    assert result["best"] == {"epoch": 2.0, "step": 8, "score": 0.6}
    wanted, found = read_files(tmp_path / "two"), read_files(tmp_path / "three")
    del wanted["metrics"], found["metrics"]
    assert found == wanted


@pytest.mark.parametrize("several", [False, True])
def test_a_ranking_loss_learns_and_average_precision_chooses_the_checkpoint(several, tmp_path):
    recipe = make_recipe(
        {"kind": "classification", "multi_label": several},
        encoder={"name": "textcnn"},
        loss={"name": "ce+smooth_ap"},
        train={"epochs": 4, "lr": 0.01, "accumulate": 2, "sampler": "balanced"},
        evaluate={"metric": "average_precision"},
    )
    data = make_data("classification", several=several)
    result = train_run(recipe, tmp_path / "run", data=data, quiet=True)
    lines = [x for x in read_lines(tmp_path / "run" / "metrics.jsonl") if x["event"] == "eval"]
    found = [line["scores"]["average_precision"] for line in lines]
    assert result["headline"] == "average_precision"
    assert result["best"]["score"] == max(found)
    assert result["scores"]["dev"]["average_precision"] == max(found) > 0.5


def test_another_metric_chooses_another_checkpoint(tmp_path):
    train = {"epochs": 2.5, "schedule": "constant", "lr": 0.1, "warmup": 0.0, "eval_every": 0.5}
    chosen = {}
    for metric in ("recall", "precision"):
        recipe = make_recipe(train=train, evaluate={"metric": metric})
        result = train_run(recipe, tmp_path / metric, data=make_data(), quiet=True)
        found = [
            line["scores"][metric]
            for line in read_lines(tmp_path / metric / "metrics.jsonl")
            if line["event"] == "eval"
        ]
        assert result["headline"] == metric
        assert result["best"]["score"] == max(found) == result["scores"]["dev"][metric]
        chosen[metric] = result["best"]["step"]
    assert chosen["recall"] != chosen["precision"]


def test_an_unknown_metric_is_refused_before_training(tmp_path):
    recipe = make_recipe(evaluate={"metric": "f2"})
    with pytest.raises(InputError, match=r"eval\.metric: wanted one of .* f1, .*, got 'f2'"):
        train_run(recipe, tmp_path / "run", data=make_data(), quiet=True)
    assert not (tmp_path / "run").exists()


def test_patience_ends_a_training_without_gain(tmp_path):
    """Scores of a rate of next to nothing never change."""
    train = {"epochs": 30, "lr": 1e-12, "patience": 3}
    result = train_run(make_recipe(train=train), tmp_path, data=make_data(), quiet=True)
    assert result["epochs"] == 4.0  # the first is the best, then three without gain
    assert result["best"]["epoch"] == 4.0  # of equals the last
    assert read_lines(tmp_path / "metrics.jsonl")[-1]["step"] == 16


def test_what_was_tuned_is_in_the_model_and_used(tmp_path):
    """A head that starts at 0.5 for all: thresholds must move."""
    task = {"kind": "classification", "multi_label": True}
    recipe = make_recipe(
        task,
        encoder={"name": "textcnn"},
        train={"max_steps": 3, "head_bias": "zero"},
        evaluate={"tune": True},
    )
    data = make_data("classification", several=True)
    result = train_run(recipe, tmp_path, data=data, quiet=True)
    tuned = load_model(tmp_path).task
    assert tuned.thresholds
    assert any(threshold != 0.5 for threshold in tuned.thresholds)
    plain, other = (
        read_lines(tmp_path / f"predictions.dev{kind}.jsonl") for kind in ("", ".tuned")
    )
    assert [line["labels"] for line in plain] != [line["labels"] for line in other]
    assert result["tuned"]["dev"]["f1"] > result["scores"]["dev"]["f1"]


@pytest.mark.parametrize(
    ("train", "steps"),
    [
        ({"epochs": 0.5}, 2),  # half of 4
        ({"epochs": 1.75}, 7),
        ({"epochs": 5, "max_steps": 3}, 3),
        ({"epochs": 0.01}, 1),
        ({"epochs": 1, "batch_size": 25}, 3),
        ({"epochs": 1, "batch_size": 100}, 1),
    ],
)
def test_epochs_may_be_fractions_and_steps_limited(train, steps, tmp_path):
    result = train_run(make_recipe(train=train), tmp_path, data=make_data(), quiet=True)
    assert result["steps"] == steps
    # There is always an evaluation at the end.
    assert [line["step"] for line in read_lines(tmp_path / "metrics.jsonl")][-2] == steps


def test_steps_may_be_cut_by_tokens(tmp_path):
    train = {"epochs": 1, "batch_tokens": 64}
    result = train_run(make_recipe(train=train), tmp_path, data=make_data(), quiet=True)
    words = sum(len(example.words) for example in make_data()["train"])
    assert words / 64 < result["steps"] < 2 * words / 64
    assert result["examples"] == 60


@pytest.mark.parametrize("sampler", ["balanced", "oversample", "undersample"])
def test_samplers_change_what_is_seen(sampler, tmp_path):
    """Texts with a label of the rarer kind are as many as the others, however that is reached."""
    data = make_data("classification")
    counts = [sum(e.labels == (name,) for e in data["train"]) for name in ("person", "none")]
    wanted = {"balanced": 60, "oversample": 2 * max(counts), "undersample": 2 * min(counts)}
    recipe = make_recipe(
        {"kind": "classification"},
        encoder={"name": "textcnn"},
        train={"sampler": sampler, "epochs": 1},
    )
    result = train_run(recipe, tmp_path, data=data, quiet=True)
    assert counts[0] != counts[1]
    assert result["examples"] == wanted[sampler]


def test_a_finished_folder_gives_its_result_at_once(finished, monkeypatch):
    folder, recipe, result = finished
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    monkeypatch.setattr("softf1.training.run.make_trainer", None)  # nothing is built
    assert train_run(recipe, folder, quiet=True) == result
    assert train_run(recipe, folder, resume=True, quiet=True) == result
    cheaper = with_values(recipe, {"train.checkpoint_seconds": 1.0})  # changes no result
    assert train_run(cheaper, folder, quiet=True) == result
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_the_folder_of_another_recipe_is_refused(finished):
    folder, recipe, _ = finished
    for resume in (False, True):
        with pytest.raises(InputError, match=r"train\.seed was 0 and is 1: use --out for"):
            train_run(with_values(recipe, {"train.seed": 1}), folder, resume=resume, quiet=True)


def test_a_result_that_is_no_json_is_an_error_of_input(tmp_path):
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(InputError, match="wanted a result in JSON"):
        read_result(tmp_path)


class StoppedError(Exception):
    """Raised in the middle of a training."""


def begin(recipe, folder):
    """A run that stopped after some steps."""

    def step(self, batches, old=Stepper.step):
        old(self, batches)
        step.left -= 1
        if not step.left:
            raise StoppedError

    step.left = 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stepper, "step", step)
        with pytest.raises(StoppedError):
            train_run(recipe, folder, data=make_data(), quiet=True)


EACH_STEP = {"checkpoint_seconds": 0.0}


def test_a_run_that_was_begun_wants_resume_and_goes_on_with_it(tmp_path):
    recipe = make_recipe(train=EACH_STEP, encoder=None)
    whole = train_run(recipe, tmp_path / "whole", data=make_data(), quiet=True)
    begin(recipe, tmp_path / "run")
    with pytest.raises(InputError, match="holds an unfinished run: use --resume to continue"):
        train_run(recipe, tmp_path / "run", data=make_data(), quiet=True)
    other = with_values(recipe, {"train.lr": 0.02})
    with pytest.raises(InputError, match=r"unfinished run, but train\.lr was 0\.01 and is 0\.02"):
        train_run(other, tmp_path / "run", data=make_data(), resume=True, quiet=True)
    result = train_run(recipe, tmp_path / "run", data=make_data(), resume=True, quiet=True)
    assert read_files(tmp_path / "run") == read_files(tmp_path / "whole")
    assert result["examples"] == whole["examples"] == 120


def test_going_on_with_other_data_is_refused(tmp_path):
    recipe = make_recipe(train=EACH_STEP)
    begin(recipe, tmp_path)
    data = make_data()
    data["train"] = data["train"][:-1]
    with pytest.raises(InputError, match="but the train file in memory has changed"):
        train_run(recipe, tmp_path, data=data, resume=True, quiet=True)


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    recipe = make_recipe()
    (tmp_path / "checkpoints").mkdir()
    with (tmp_path / "checkpoints/lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process trains in this folder"):
            train_run(recipe, tmp_path, data=make_data(), resume=True, quiet=True)
    train_run(recipe, tmp_path, data=make_data(), quiet=True)


def test_what_a_kill_after_the_result_left_is_cleared(finished, tmp_path):
    folder, recipe, result = finished
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run/checkpoints/step-00000040").mkdir(parents=True)
    assert train_run(recipe, tmp_path / "run", quiet=True) == result
    assert not (tmp_path / "run/checkpoints").exists()


def test_bad_data_leave_the_folder_to_whoever_mends_them(tmp_path):
    path = write_recipe(tmp_path)
    recipe = read_recipe(path)
    good = (tmp_path / "train.txt").read_text()
    (tmp_path / "train.txt").write_text(good + "\nword\n")
    with pytest.raises(InputError, match=r"train\.txt:\d+: "):
        train_run(recipe, tmp_path / "run", quiet=True)
    (tmp_path / "train.txt").write_text(good)
    assert train_run(recipe, tmp_path / "run", quiet=True)["steps"] == 40


def test_the_data_of_a_result_are_known_by_their_hash(tmp_path):
    recipe = with_values(read_recipe(write_recipe(tmp_path)), {"train.max_steps": 1})
    result = train_run(recipe, tmp_path / "run", quiet=True)
    assert len(result["data"]["train"]["sha256"]) > 30
    assert result["data"]["train"]["path"] == str(tmp_path / "train.txt")


def break_steps(monkeypatch, which):
    """The gradient of these steps, counted from 1, is not finite."""

    def gradient(self, batches, old=Stepper.gradient):
        gradient.step += 1
        loss = old(self, batches)
        if gradient.step in which:
            self.parameters[0].grad.view(-1)[0] = math.nan
        return loss

    gradient.step = 0
    monkeypatch.setattr(Stepper, "gradient", gradient)


def test_a_step_without_a_finite_gradient_is_left_out_and_reported(tmp_path, monkeypatch):
    break_steps(monkeypatch, {2, 5})
    result = train_run(make_recipe(), tmp_path, data=make_data(), quiet=True)
    (warning,) = (w for w in read_metrics(tmp_path) if "not finite" in w.get("message", ""))
    assert warning["step"] == 8
    assert warning["message"].startswith("gradient not finite: such steps are skipped")
    assert warning["message"] in result["warnings"]
    weights = load_file(tmp_path / "model/model.safetensors")
    assert all(torch.isfinite(weight).all() for weight in weights.values())
    (step,) = (line for line in read_metrics(tmp_path) if line["event"] == "step")
    assert 0 < step["loss"] < 5
    assert step["norm"] > 0  # of the steps that were made


def test_many_such_steps_in_a_row_end_the_run(tmp_path, monkeypatch):
    break_steps(monkeypatch, range(5, 1000))
    monkeypatch.setattr(progress, "MOST_SKIPPED", 12)
    recipe = make_recipe(train={"epochs": 20})
    with pytest.raises(RunError, match="the gradient was not finite in 16 steps in a row"):
        train_run(recipe, tmp_path, data=make_data(), quiet=True)


def test_as_many_apart_do_not(tmp_path, monkeypatch):
    break_steps(monkeypatch, range(1, 1000, 2))
    monkeypatch.setattr(progress, "MOST_SKIPPED", 12)
    train_run(make_recipe(train={"epochs": 8}), tmp_path, data=make_data(), quiet=True)


def test_a_collapse_is_told_in_words(tmp_path):
    """Next to no training, from the prior: nothing but O."""
    result = train_run(make_recipe(train={"lr": 1e-9}), tmp_path, data=make_data(), quiet=True)
    (warning,) = result["warnings"]
    assert warning.startswith("no label is predicted after 2 epochs: try ")
    assert warning.endswith("try more train.epochs or another train.lr")
    assert result["collapsed"] is True
    assert warning in (tmp_path / "model" / "README.md").read_text("utf-8")
    assert [line["event"] for line in read_metrics(tmp_path)] == [
        *("eval", "step", "eval", "warning", "end"),
    ]


def test_dev_f1_of_0_in_all_epochs_keeps_the_last_checkpoint(tmp_path):
    recipe = make_recipe(train={"lr": 1e-9, "epochs": 3.0})
    result = train_run(recipe, tmp_path, data=make_data(), quiet=True)
    assert result["best"] == {"epoch": 3.0, "step": 12, "score": 0.0}


def test_a_run_that_is_fine_at_the_end_has_no_warning_of_a_collapse(tmp_path):
    """After two of twenty epochs nothing is found; the card does not say so of the last."""
    train = {"lr": 6e-3, "epochs": 20.0}
    result = train_run(make_recipe(train=train), tmp_path, data=make_data(), quiet=True)
    journal = [line for line in read_metrics(tmp_path) if line["event"] == "warning"]
    assert [line["message"].partition(" after ")[0] for line in journal] == [
        "no label is predicted"
    ]
    assert result["best"]["score"] > 0
    assert result["warnings"] == []
    assert "collapsed" not in result


def test_tensorboard_is_given_the_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    recipe = make_recipe(train={"trackers": ["tensorboard"], "max_steps": 2})
    train_run(recipe, tmp_path, data=make_data(), quiet=True)
    (events,) = tmp_path.rglob("events.out.tfevents.*.0")
    content = events.read_bytes()
    assert b"loss" in content
    assert b"dev/f1" in content


@pytest.mark.parametrize(
    ("tracker", "message"),
    [
        ("paper", "train.trackers: .*paper"),
        ("comet_ml", "the package of comet_ml is not installed"),
    ],
)
def test_an_unknown_tracker_is_one_line(tracker, message, tmp_path):
    recipe = make_recipe(train={"trackers": [tracker]})
    with pytest.raises(InputError, match=message) as found:
        train_run(recipe, tmp_path / "run", data=make_data(), quiet=True)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "run").exists()


def test_half_precision_of_the_other_kind_wants_a_gpu(tmp_path):
    with pytest.raises(InputError, match="needs a GPU"):
        train_run(make_recipe(train={"precision": "fp16"}), tmp_path, data=make_data(), quiet=True)


def test_graphs_want_a_gpu(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(InputError, match="needs one process with a CUDA"):
        train_run(make_recipe(train={"compile": "graphs"}), tmp_path, data=make_data(), quiet=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch by torch
def test_inductor_changes_no_more_than_rounding(bert, tmp_path):
    losses = {}
    for way in ("off", "inductor"):
        recipe, data = case("tagging-batch", bert, compile=way, max_steps=10, lr=1e-3)
        recipe = with_values(recipe, {"encoder.dropout": 0.0})  # it draws other random numbers
        train_run(recipe, tmp_path / way, data=data, quiet=True)
        (losses[way],) = (x["loss"] for x in read_metrics(tmp_path / way) if x["event"] == "step")
    assert losses["inductor"] == pytest.approx(losses["off"], rel=1e-4)
