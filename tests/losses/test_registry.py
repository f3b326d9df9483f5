import inspect

import pytest
import torch

from softf1 import losses
from softf1.losses import (
    compared_losses,
    loss_facts,
    loss_names,
    make_loss,
    register_loss,
    registry,
)
from softf1.losses._family import Shared
from tests.losses.cases import SIGMOID_ONLY, WEIGHT, batch


def test_our_losses_are_known():
    ours = "asymmetric ce dice dsc focal la pauc smooth_ap tversky wce wfocal zlpr"
    assert loss_names() == ours.split()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ce", losses.cross_entropy_loss),
        ("focal", losses.focal_loss),
        ("la", losses.logit_adjusted_loss),
        ("dice", losses.dice_loss),
        ("tversky", losses.tversky_loss),
        ("dsc", losses.self_adjusting_dice_loss),
        ("smooth_ap", losses.smooth_ap_loss),
        ("pauc", losses.partial_auc_loss),
    ],
)
def test_module_and_function_are_the_same(name, function):
    logits, target = batch("softmax")
    mask = torch.arange(len(logits)) != 3
    options = {"weight": WEIGHT, "reduction": "none", "ignore_index": 1}
    target = target.clamp_min(0)
    expected = function(logits, target, mask=mask, **options)
    assert torch.equal(make_loss(name, **options)(logits, target, mask), expected)
    options_only = list(inspect.signature(function).parameters.values())[2:]
    assert all(option.kind is option.KEYWORD_ONLY for option in options_only)


def test_weighted_losses_are_the_plain_ones_with_weights():
    for name, plain in (("wce", "ce"), ("wfocal", "focal")):
        logits, target = batch("softmax")
        weighted = make_loss(name, weight=WEIGHT)(logits, target)
        assert torch.equal(weighted, make_loss(plain, weight=WEIGHT)(logits, target))


@pytest.mark.parametrize("name", [*loss_names(), "ce+dice"])
def test_every_loss_says_what_commands_need_to_know(name):
    facts = loss_facts(name)
    assert facts.summary
    assert "\n" not in facts.summary
    needed = {"weight": [1.0, 2.0, 3.0]} if facts.needs_counts else {}
    for settings in (facts.tunes, facts.tunes_positions):
        assert len(settings) == 3
        for setting in settings:
            options = dict(needed)
            for key, value in setting.items():
                part, _, option = key.rpartition(".")
                if part:
                    options[part] = {option: value}
                elif key != "weights":  # a scheme that makes `weight` of counts
                    options[key] = value
            target = torch.tensor([0, 1])
            if name in SIGMOID_ONLY:
                target = torch.nn.functional.one_hot(target, 3)
            assert make_loss(name, **options)(torch.zeros(2, 3), target) > 0
    assert not any("over" in setting for setting in facts.tunes_positions)


def test_losses_that_need_counts_are_refused_without_them():
    for name in loss_names():
        if loss_facts(name).needs_counts:
            with pytest.raises(ValueError, match=f"{name} needs class weights"):
                make_loss(name)
        else:
            assert make_loss(name)
    assert loss_facts("ce+wfocal").needs_counts
    assert [name for name in loss_names() if loss_facts(name).adds_prior] == ["la"]


def test_a_loss_of_another_package_may_say_nothing_about_itself(monkeypatch):
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    register_loss("mine", torch.nn.CrossEntropyLoss)
    facts = loss_facts("mine")
    assert facts.summary == "of another package: torch.nn.modules.loss:CrossEntropyLoss"
    assert (facts.needs_counts, facts.compared, facts.tunes) == (False, False, ({},))
    assert "mine" not in compared_losses()


FAMILY = ["dice_loss", "tversky_loss", "self_adjusting_dice_loss"]


@pytest.mark.parametrize("name", FAMILY)
def test_shared_options_stand_once_and_show_everywhere(name):
    function = getattr(losses, name)
    parameters = inspect.signature(function).parameters
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for option in Shared._fields:
        assert parameters[option].default == Shared._field_defaults[option]
        assert f"        {option}: " in function.__doc__
    assert set(losses.DiceFamilyOptions.__annotations__) == set(Shared._fields)
    with pytest.raises(TypeError, match=r"dice family has no option 'gamma'; it has average, "):
        function(torch.zeros(1, 2), torch.tensor([0]), gamma=2.0)


def test_a_module_shows_the_options_of_its_function():
    parameters = inspect.signature(losses.TverskyLoss).parameters
    assert parameters["beta"].default == 0.5
    assert parameters["exclude"].default == ()
    assert not {"logits", "target", "mask"} & set(parameters)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown loss 'dise'; known are asymmetric, ce, dice, dsc"
    ):
        make_loss("dise")
    with pytest.raises(ValueError, match="each part once"):
        make_loss("ce+ce")


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(TypeError, match=r"dice_loss has no option 'gamma'; it has average, "):
        make_loss("dice", gamma=2.0)
    with pytest.raises(TypeError, match=r"has no option 'weights'; it has .*, weight"):
        make_loss("wce", weights=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"'auto' \(auto is for recipes, where it chooses"):
        make_loss("auto")
    with pytest.raises(TypeError, match=r"ce\+dice has no option 'smooth'; it has ce, "):
        make_loss("ce+dice", smooth=2.0)
    with pytest.raises(ValueError, match=r"wanted over to be one of \['example', 'batch'\]"):
        make_loss("dice", over="set")


def test_a_loss_can_be_registered_once(monkeypatch):
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    register_loss("mine", losses.DiceLoss)
    assert isinstance(make_loss("ce+mine").parts[1], losses.DiceLoss)
    with pytest.raises(ValueError, match="registered already"):
        register_loss("mine", losses.DiceLoss)
    with pytest.raises(ValueError, match="without '\\+'"):
        register_loss("a+b", losses.DiceLoss)


def test_another_package_adds_a_loss_by_entry_point(tmp_path, monkeypatch):
    assert "theirs" not in loss_names()
    folder = tmp_path / "theirs-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", "utf-8")
    (folder / "entry_points.txt").write_text(
        "[softf1.losses]\ntheirs = softf1.losses:TverskyLoss\n", "utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "theirs" in loss_names()
    assert isinstance(make_loss("theirs", alpha=0.3), losses.TverskyLoss)


def test_options_show_in_the_representation():
    assert repr(make_loss("dsc", alpha=0.01)) == "SelfAdjustingDiceLoss(alpha=0.01)"
