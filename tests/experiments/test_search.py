import dataclasses

import numpy as np
import pytest
import torch

from softf1.errors import InputError
from softf1.experiments.search import (
    Trial,
    add_noise,
    check_losses,
    default_losses,
    halve,
    is_shared,
    list_settings,
    list_trials,
    raise_equals,
    read_trial,
    same_start,
    stretch,
)
from softf1.losses import compared_losses, make_loss, register_loss, registry
from softf1.recipe import build_recipe, with_values
from softf1.tasks.registry import find_task, list_tasks
from tests.experiments.fake import make_recipe

QA = build_recipe(
    {"name": "qa", "task": {"kind": "qa", "train": "a.json"}, "encoder": {"name": "minilm"}}
)


@pytest.mark.parametrize("level", ["none", "small", "full"])
@pytest.mark.parametrize("loss", [*compared_losses(), "focal+dice", "auto"])
def test_every_loss_has_as_many_settings(loss, level):
    settings = list_settings(loss, make_recipe(), level)
    assert len(settings) == {"none": 1, "small": 4, "full": 9}[level]
    assert len({str(sorted(own.items())) for own in settings}) == len(settings)
    assert {"train.lr", "train.head_lr"}.isdisjoint(settings[0])  # the recipe's own comes first


@pytest.mark.parametrize("recipe", [make_recipe(), QA], ids=["classes", "positions"])
def test_every_setting_can_be_built(recipe):
    for loss in default_losses(recipe):
        for values in list_settings(loss.removesuffix("+tuned"), recipe, "full"):
            section = with_values(recipe, values).loss
            weight = {} if section.scheme is None else {"weight": [1.0, 1.0]}
            make_loss(section.name, **section.options, **weight)


def test_losses_over_a_batch_are_not_for_positions():
    for loss in default_losses(QA):
        for values in list_settings(loss, QA, "full"):
            assert "batch" not in values.values()
    assert not {"wce", "wfocal", "la"} & set(default_losses(QA))
    with pytest.raises(InputError, match="la needs classes, but a softmax over positions has none"):
        check_losses(["la"], QA)


def test_what_a_recipe_says_of_its_own_loss_comes_first():
    recipe = with_values(make_recipe(), {"loss.name": "focal", "loss.gamma": 3.0})
    settings = list_settings("focal", recipe, "small")
    gammas = [with_values(recipe, values).loss.options["gamma"] for values in settings]
    assert gammas == [3.0, 2.0, 3.0, 2.0]
    same = with_values(make_recipe(), {"loss.name": "focal", "loss.gamma": 2.0})
    gammas = [
        with_values(same, values).loss.options["gamma"]
        for values in list_settings("focal", same, "small")
    ]
    assert gammas == [2.0, 1.0, 2.0, 1.0]


def test_head_learning_rate_moves_along():
    recipe = with_values(make_recipe(), {"train.head_lr": 0.01})
    assert list_settings("ce", recipe, "small")[-1]["train.head_lr"] == 0.025


def test_cross_entropy_is_always_there_and_first():
    assert check_losses(["dice", "ce", "dice"], make_recipe()) == ("ce", "dice")
    assert check_losses(["auto"], make_recipe()) == ("ce", "auto")
    with pytest.raises(InputError, match="unknown loss 'dise'"):
        check_losses(["dise"], make_recipe())
    default = default_losses(make_recipe())
    assert check_losses(default, make_recipe()) == default
    assert default[:2] == ("ce", "ce+tuned")
    assert [name for name in default if name != "ce+tuned"] == compared_losses()
    of_auto = default_losses(with_values(make_recipe(), {"loss.name": "auto"}))
    assert of_auto == ("ce", "ce+tuned", "auto", *default[2:])


def test_a_loss_of_another_package_says_what_compare_tunes(monkeypatch):
    class Mine(torch.nn.CrossEntropyLoss):
        compared = True
        needs_counts = True
        adds_prior = True
        tunes = ({"sharp": 1.0}, {"sharp": 2.0}, {"sharp": 3.0})

    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    register_loss("mine", Mine)
    recipe = make_recipe()
    assert "mine" in default_losses(recipe)
    assert "mine" not in default_losses(QA)
    assert [own["loss.sharp"] for own in list_settings("mine", recipe, "small")] == [1, 2, 1, 2]
    assert same_start("mine", recipe)["train.head_bias"] == "zero"


def test_every_loss_starts_at_the_prior_once():
    recipe = make_recipe()
    assert same_start("la", recipe) == {"train.patience": 0, "train.head_bias": "zero"}
    assert same_start("dice", recipe) == {"train.patience": 0}


def test_a_shorter_run_is_evaluated_too():
    recipe = with_values(make_recipe(), {"train.max_steps": 100, "train.eval_every": 4.0})
    short = with_values(recipe, stretch(recipe, 1 / 9)).train
    assert (short.epochs, short.eval_every, short.max_steps) == (1.0, 1.0, 11)
    assert short.lr == pytest.approx(3 * recipe.train.lr)  # the best falls with √steps
    assert stretch(recipe, 1.0) == {}


AUTHORS = "dsc[alpha=0.01,decay=paper,squared=true,over=batch]"


def test_a_row_may_fix_options():
    recipe = make_recipe()
    assert check_losses(["dsc", AUTHORS], recipe) == ("ce", "dsc", AUTHORS)
    assert list_settings(AUTHORS, recipe, "none") == [
        {
            "loss.name": "dsc",
            "loss.alpha": 0.01,
            "loss.decay": "paper",
            "loss.squared": True,
            "loss.over": "batch",
        }
    ]
    small = list_settings(AUTHORS, recipe, "small")
    assert len({values.get("train.lr", recipe.train.lr) for values in small}) == len(small) == 4
    settings = list_settings("dsc[decay=paper]", recipe, "small")
    assert [values.get("loss.over") for values in settings] == [None, "batch", None, "batch"]
    assert {values["loss.decay"] for values in settings} == {"paper"}


def test_a_row_may_fix_any_key_of_the_recipe():
    row = "ce+dice[dice.over=batch, train.epochs=6, encoder.dropout=0.2]"
    recipe = make_recipe()
    assert check_losses([row], recipe) == ("ce", row)
    (values,) = list_settings(row, recipe, "none")
    own = with_values(recipe, values)
    assert (own.train.epochs, own.encoder.dropout) == (6.0, 0.2)
    assert own.loss.options["dice"] == {"over": "batch"}
    settings = list_settings("focal[train.lr=0.01]", recipe, "small")
    assert {values["train.lr"] for values in settings} == {0.01}  # what is fixed is not tuned
    assert [values["loss.gamma"] for values in settings] == [2.0, 1.0]


def test_noise_is_added_once_for_every_size_of_the_step():
    half, both = "ce[train.adversarial=0.5]", "dice[train.adversarial=0.5,train.consistency=1]"
    rows = ("ce", half, f"{half}+tuned", both, "dice[train.adversarial=1]")
    recipe = make_recipe()
    assert add_noise(rows, recipe)[5:] == (
        "ce[train.adversarial=0.5], random step",
        "dice[train.adversarial=1], random step",
    )
    off = ("ce", "ce[train.adversarial=0]")
    assert add_noise(off, recipe) == off
    assert add_noise(add_noise(rows, recipe), recipe) == add_noise(rows, recipe)


def test_noise_is_added_for_the_step_that_the_recipe_or_auto_sets():
    recipe = make_recipe()
    noise = "auto, random step"
    assert add_noise(("ce", "auto", "auto+tuned"), recipe)[3:] == (noise,)
    longer = "auto[train.epochs=6]"
    assert add_noise(("ce", longer), recipe)[2:] == (f"{longer}, random step",)
    assert check_losses([noise], recipe) == ("ce", noise)
    asked = ("ce", "auto", "auto[train.adversarial_direction=random]")
    assert add_noise(asked, recipe) == asked
    off = with_values(recipe, {"train.adversarial": 0.0})
    assert add_noise(("ce", "auto"), off) == ("ce", "auto")
    step = with_values(recipe, {"train.adversarial_relative": 0.5})
    rows = ("ce", "dice", "auto", "dice[train.adversarial_relative=0.2]")
    assert add_noise(rows, step)[4:] == (
        "ce, random step",
        "dice[train.adversarial_relative=0.2], random step",
    )
    random = with_values(step, {"train.adversarial_direction": "random"})
    assert add_noise(rows, random) == rows


def test_twice_the_epochs_keep_the_learning_rate():
    recipe = with_values(make_recipe(), {"train.max_steps": 100})
    assert stretch(recipe, 2.0) == {"train.epochs": 18.0, "train.max_steps": 200}


def test_rows_are_checked_with_their_settings():
    rows = ['tversky[average=micro,exclude=["B"]]']  # micro is for batches, as the settings are
    assert check_losses(rows, make_recipe())[1:] == tuple(rows)
    rows = [f'dice[over=batch,exclude=["{label}"]]' for label in "*#"]
    with pytest.raises(InputError, match="wanted rows whose folders differ in name"):
        check_losses(rows, make_recipe())


TAGS = build_recipe(
    {
        "name": "tags",
        "task": {"kind": "tagging", "train": "a.conll", "dev": "b.conll"},
        "encoder": {"name": "bilstm"},
    }
)


@pytest.mark.parametrize(
    ("recipe", "fixed"),
    [
        (TAGS, {"task.decoder": "crf", "task.max_length": 99, "task.overlap": 9}),
        (TAGS, {"task.drop_leaks": True, "task.train": "more.conll"}),
        (QA, {"task.positions": "sigmoid", "task.max_answer": 9}),
        (make_recipe(), {"task.max_length": 9, "encoder.dropout": 0.2, "train.lr": 0.1}),
    ],
)
def test_rows_may_differ_in_what_the_model_is_and_what_it_learns_from(recipe, fixed):
    assert not [key for key in fixed if is_shared(key, recipe)]
    row = f"ce[{','.join(f'{key}={str(value).lower()}' for key, value in fixed.items())}]"
    assert check_losses([row], recipe) == ("ce", row)


@pytest.mark.parametrize(
    ("recipe", "keys"),
    [
        (make_recipe(), ["kind", "dev", "test", "dev_share", "train"]),  # dev is a share of train
        (make_recipe(), ["fold", "folds", "positive", "metric", "multi_label", "format"]),
        (with_values(make_recipe(), {"task.dev": "dev.tsv"}), ["dev", "reader.text", "reader"]),
        (with_values(TAGS, {"task.folds": 5, "task.fold": 0}), ["train", "unit", "scheme"]),
        (QA, ["rules", "no_answer", "several", "listed"]),
    ],
)
def test_rows_are_scored_alike_on_the_same_examples(recipe, keys):
    for key in keys:
        with pytest.raises(InputError, match=f"wanted a key in which rows may differ.*task.{key} "):
            check_losses([f"ce[task.{key}=1]"], recipe)


@pytest.mark.parametrize("kind", list_tasks())
def test_a_task_names_options_that_it_has(kind):
    task = find_task(kind)
    assert set(task.model_options) <= {field.name for field in dataclasses.fields(task)}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("dsc[decay=papper]", "decay"),
        ("dsc[gamma=2]", "gamma"),
        ("dsc[decay=paper", r"wanted a loss, or LOSS\[key=value,…\], got 'dsc\[decay=paper'"),
        ("dsc[decay]", "wanted key=value"),
        ("ce[trian.adversarial=1]", r"got 'trian' in .* \(did you mean train\?\)"),
        ("dsc[name=ce]", "wanted a key in which rows may differ, got loss.name"),
    ],
)
def test_rows_that_cannot_be_are_refused(row, message):
    with pytest.raises(InputError, match=message):
        check_losses([row], make_recipe())


def search(settings, shares, score, **options):
    asked = []

    def measure(trials):
        asked.append([trial[1:] for trial in trials])
        return [score(setting) for _, setting, _ in trials]

    return halve({"one": settings}, shares, measure, **options)["one"], asked


def test_the_best_of_the_last_round_is_chosen():
    score = {"a": 0.1, "b": 0.4, "c": 0.3, "d": 0.2}.get
    best, asked = search(["a", "b", "c", "d"], [0.1, 0.3], score)
    assert best == "b"
    assert asked[1] == [("b", 0.3), ("c", 0.3)]


def test_of_equals_the_first_wins_and_failures_lose():
    assert search(["a", "b"], [1.0], lambda _: 0.5)[0] == "a"
    scores = {"a": None, "b": float("nan"), "c": -5.0}
    assert search(["a", "b", "c"], [1.0], scores.get)[0] == "c"
    assert search(["a", "b"], [1.0], lambda _: None)[0] == "a"


def test_one_setting_needs_no_trial():
    assert search(["only"], [0.1, 0.3], float) == ("only", [])


def test_several_searches_share_their_rounds():
    rounds = []

    def measure(trials):
        rounds.append([(key, setting) for key, setting, _ in trials])
        return [-abs(setting - {"x": 3, "y": 1}[key]) for key, setting, _ in trials]

    chosen = halve({"x": range(4), "y": range(4), "z": [7]}, [0.1, 0.3], measure)
    assert chosen == {"x": 3, "y": 1, "z": 7}
    assert [len(one) for one in rounds] == [8, 4]


def test_cost_is_that_of_the_trials():
    _, asked = search(list(range(9)), [1 / 3, 1.0], float, keep=3)
    costs = list_trials(9, [1 / 3, 1.0], keep=3)
    assert costs == [share for one in asked for _, share in one]
    assert sum(costs) == pytest.approx(6)
    assert list_trials(1, [1 / 3]) == []


def test_the_order_of_settings_decides_between_equals_in_every_round():
    scores = iter([0.80, 0.85, 0.1, 0.1, 0.9, 0.9])
    best, asked = search(["usual", "a", "b", "c"], [0.3, 1.0], lambda _: next(scores))
    assert asked[1] == [("usual", 1.0), ("a", 1.0)]
    assert best == "usual"


def trial(right):
    """An accuracy: the pseudo-values of a mean are its terms."""
    values = np.array(right, float)
    return Trial(float(values.mean()), values)


def test_the_usual_setting_stays_where_another_is_ahead_by_luck():
    usual = [1, 0, 1, 1, 0, 1, 1, 0, 1, 1] * 10
    lucky = list(usual)
    lucky[1], lucky[2], lucky[4] = 1, 0, 1  # two gained, one lost: +0.01, standard error 0.017
    assert raise_equals([trial(usual), trial(lucky)]) == [0.71, 0.71]


def test_a_setting_that_is_surely_better_is_taken():
    usual = [1, 0, 1, 1, 0, 1, 1, 0, 1, 1] * 10
    better = [1, 1, 1, 1, 0, 1, 1, 0, 1, 1] * 10  # ten gained, none lost: +0.1, error 0.03
    assert raise_equals([trial(usual), trial(better)]) == [0.7, 0.8]


def test_trials_that_failed_or_cannot_be_counted_keep_their_scores():
    other = Trial(0.5, np.ones(3))
    assert raise_equals([Trial(None), Trial(0.69), trial([1, 1, 0]), other]) == [
        None,
        0.69,
        2 / 3,
        0.5,
    ]
    assert raise_equals([Trial(None), Trial(None)]) == [None, None]


def test_files_that_are_gone_leave_the_score(tmp_path):
    result = {"headline": "f1", "scores": {"dev": {"f1": 0.25}}}
    assert read_trial(tmp_path, result) == Trial(0.25)
    assert read_trial(tmp_path, None) == Trial(None)
