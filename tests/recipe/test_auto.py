"""What `auto` chooses, by task, share of positives and metric; a key that is set stays."""

import numpy as np
import pytest

from softf1.losses import loss_names
from softf1.options import OptionError
from softf1.recipe import check_recipe, read_recipe, with_values
from softf1.recipe.auto import HARDENING, choose_values, positive_share, read_rules
from softf1.training.run import train_or_find, train_run
from tests.training.toys import make_data, make_recipe

BINARY = {"labels": np.array([630, 370])}
RARE = {"labels": np.array([900, 100])}
SEVERAL = {"labels": np.array([50, 40, 30])}


@pytest.mark.parametrize(
    ("kind", "metric", "counts", "loss", "consistency"),
    [
        ("tagging", "f1", {"tags": np.array([9_000, 500, 500])}, "ce+dice", 1.0),
        ("mrc_ner", "f1", {"start": np.array([[99, 1]])}, "dsc", 1.0),
        ("qa", "f1", {}, "ce+dice", 1.0),
        ("pairs", "f1", BINARY, "ce", 1.0),
        ("pairs", "f1", RARE, "wce", None),
        ("pairs", "accuracy", RARE, "ce", 1.0),
        ("pairs", "f1", {"labels": np.array([100, 900])}, "ce", 1.0),  # F1 of the frequent class
        ("classification", "subset_accuracy", {"labels": np.array([[90, 10]])}, "ce", 1.0),
        ("classification", "f1", {"labels": np.array([[90, 10], [99, 1]])}, "ce+dice", 1.0),
        ("classification", "macro_f1", {"labels": np.array([[90, 10]])}, "ce+dice", 1.0),
        ("classification", "accuracy", SEVERAL, "ce", 1.0),
        ("classification", "macro_f1", SEVERAL, "wce", None),
        ("of another package", "f1", SEVERAL, "ce", 1.0),
    ],
)
def test_the_task_its_classes_and_the_metric_decide(kind, metric, counts, loss, consistency):
    choice = choose_values(kind, metric=metric, counts=counts, given={})
    assert choice.values["loss.name"] == loss
    assert choice.values["train.adversarial_relative"] == 0.5
    assert choice.values.get("train.consistency") == consistency
    assert choice.line.startswith(f"auto: loss.name={loss}")


@pytest.mark.parametrize("key", HARDENING)
def test_a_key_that_is_set_stays_even_at_0(key):
    values = choose_values("tagging", metric="f1", counts={}, given={f"train.{key}": 0.0}).values
    assert f"train.{key}" not in values
    if key == "adversarial":  # the same thing in another unit
        assert "train.adversarial_relative" not in values


@pytest.mark.parametrize(
    ("how", "decoder"),
    [
        ({"spans": 4}, "crf"),
        ({"spans": None}, None),  # parts of speech
        ({"spans": 60}, None),  # a CRF of so many tags is slow
        ({"spans": 4, "target": "f2"}, None),  # a CRF has no bias to tune
        ({"spans": 4, "given": {"task.decoder": "argmax"}}, None),
    ],
)
def test_spans_of_a_few_kinds_get_a_crf(how, decoder):
    values = choose_values("tagging", metric="f1", counts={}, **{"given": {}, **how}).values
    assert values.get("task.decoder") == decoder


def test_every_rule_says_why_and_on_what_evidence():
    rules, recipe = read_rules(), read_recipe("conll03-tagger")
    assert rules[-1].when == {}
    for rule in rules:
        assert set(rule.values["loss.name"].split("+")) <= set(loss_names())
        options = {key for key in rule.values if key.startswith("loss.")}
        sizes = {f"train.{key}" for key in HARDENING}
        assert rule.values.keys() - options <= {"task.decoder"} | sizes
        check_recipe(with_values(recipe, {key: rule.values[key] for key in options}))
        assert rule.why
        assert any(character.isdigit() for character in rule.evidence)


def test_the_share_is_that_of_the_positive_class():
    assert positive_share({"labels": np.array([30, 70])}) == 0.7
    assert positive_share({"labels": np.array([30, 70])}, positive=0) == 0.3
    assert positive_share({}) is None


def test_the_line_says_what_is_in_effect_and_what_you_set():
    given = {"task.decoder": "argmax", "train.adversarial": 0.0, "task.max_length": 99}
    choice = choose_values("tagging", metric="f1", counts={}, given=given, spans=4)
    assert choice.line == (
        "auto: loss.name=ce, train.consistency=1.0 (the tags mark spans, with few labels; "
        "you set task.decoder=argmax, train.adversarial=0.0)"
    )


@pytest.mark.parametrize("counts", [(900, 50, 50), (50, 900, 50)])
def test_a_reason_holds_also_where_a_class_is_rare(counts):
    of_accuracy = {"metric": "accuracy", "given": {}, "counts": {"labels": np.array(counts)}}
    assert choose_values("classification", **of_accuracy).why == (
        "the metric asks for no class weights: cross entropy"
    )


def test_auto_trains_says_what_it_chose_and_writes_it_down(tmp_path, capsys):
    recipe = make_recipe(loss={"name": "auto"}, train={"max_steps": 2})
    result = train_run(recipe, tmp_path / "run", data=make_data())
    shown = capsys.readouterr()
    assert "auto: loss.name=ce, train.adversarial_relative=0.5" in shown.out + shown.err
    assert result["loss"] == "ce"
    effective = read_recipe(tmp_path / "run/recipe.toml")
    assert (effective.loss.name, effective.task.options["decoder"]) == ("ce", "crf")
    assert (effective.train.adversarial_relative, effective.train.consistency) == (0.5, 1.0)
    again = train_or_find(recipe, tmp_path / "run", data=make_data(), quiet=True)
    assert not again.trained


def test_a_decoder_in_the_recipe_wins_over_auto(tmp_path):
    recipe = make_recipe(loss={"name": "auto"}, train={"max_steps": 1})
    recipe = with_values(recipe, {"task.decoder": "argmax"})
    result = train_run(recipe, tmp_path / "run", data=make_data(), quiet=True)
    assert result["recipe"]["task"]["decoder"] == "argmax"
    assert not list(tmp_path.rglob("*crf*"))


def test_a_size_of_0_in_the_recipe_wins_over_auto(tmp_path):
    train = {"max_steps": 1, "adversarial": 0.0, "consistency": 0.0}
    recipe = make_recipe(loss={"name": "auto"}, train=train)
    result = train_run(recipe, tmp_path / "run", data=make_data(), quiet=True)
    chosen = result["recipe"]["train"]
    assert (chosen["adversarial"], chosen["consistency"]) == (0.0, 0.0)
    assert not chosen.get("adversarial_relative")


def test_auto_takes_no_options_of_a_loss():
    with pytest.raises(OptionError, match="auto"):
        check_recipe(make_recipe(loss={"name": "auto", "over": "batch"}))
