import pytest

from softf1.errors import InputError
from softf1.experiments.search import (
    DEFAULT,
    add_noise,
    check_losses,
    default_losses,
    list_settings,
    same_start,
    stretch,
)
from softf1.losses import make_loss
from softf1.recipe import build_recipe, with_values
from tests.experiments.fake import make_recipe

TRAINED = [name for name in DEFAULT if name != "ce+tuned"]
QA = build_recipe(
    {"name": "qa", "task": {"kind": "qa", "train": "a.json"}, "encoder": {"name": "minilm"}}
)


@pytest.mark.parametrize("level", ["none", "small", "full"])
@pytest.mark.parametrize("loss", [*TRAINED, "focal+dice"])
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
    with pytest.raises(InputError, match="positions in a text, which have no class: la"):
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
    with pytest.raises(InputError, match="unknown loss 'dise'"):
        check_losses(["dise"], make_recipe())
    assert check_losses(default_losses(make_recipe()), make_recipe()) == DEFAULT


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
    assert add_noise(rows)[5:] == (
        "ce[train.adversarial=0.5,train.adversarial_direction=random]",
        "dice[train.adversarial=1,train.adversarial_direction=random]",
    )
    assert add_noise(("ce", "ce[train.adversarial=0]")) == ("ce", "ce[train.adversarial=0]")
    assert add_noise(add_noise(rows)) == add_noise(rows)


def test_twice_the_epochs_keep_the_learning_rate():
    recipe = with_values(make_recipe(), {"train.max_steps": 100})
    assert stretch(recipe, 2.0) == {"train.epochs": 18.0, "train.max_steps": 200}


def test_rows_are_checked_with_their_settings():
    rows = ['tversky[average=micro,exclude=["B"]]']  # micro is for batches, as the settings are
    assert check_losses(rows, make_recipe())[1:] == tuple(rows)
    rows = [f'dice[over=batch,exclude=["{label}"]]' for label in "*#"]
    with pytest.raises(InputError, match="wanted rows whose folders differ in name"):
        check_losses(rows, make_recipe())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("dsc[decay=papper]", "decay"),
        ("dsc[gamma=2]", "gamma"),
        ("dsc[decay=paper", r"wanted a loss, or LOSS\[key=value,…\], got 'dsc\[decay=paper'"),
        ("dsc[decay]", "wanted key=value"),
        ("dsc[name=ce]", "wanted a key in which rows may differ, got loss.name"),
    ],
)
def test_rows_that_cannot_be_are_refused(row, message):
    with pytest.raises(InputError, match=message):
        check_losses([row], make_recipe())
