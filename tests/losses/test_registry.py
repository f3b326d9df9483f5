import inspect
from importlib.metadata import EntryPoint, EntryPoints

import pytest
import torch

from softf1 import losses
from softf1.losses import loss_names, make_loss, register_loss, registry
from tests.losses.cases import WEIGHT, batch


def test_our_losses_are_known():
    assert loss_names() == ["ce", "dice", "dsc", "focal", "la", "tversky", "wce", "wfocal"]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ce", losses.cross_entropy_loss),
        ("focal", losses.focal_loss),
        ("la", losses.logit_adjusted_loss),
        ("dice", losses.dice_loss),
        ("tversky", losses.tversky_loss),
        ("dsc", losses.self_adjusting_dice_loss),
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


def test_weighted_losses_need_weights():
    for name, plain in (("wce", "ce"), ("wfocal", "focal")):
        with pytest.raises(ValueError, match="needs class weights"):
            make_loss(name)
        logits, target = batch("softmax")
        weighted = make_loss(name, weight=WEIGHT)(logits, target)
        assert torch.equal(weighted, make_loss(plain, weight=WEIGHT)(logits, target))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown loss 'dise'; known are ce, dice, dsc"):
        make_loss("dise")
    with pytest.raises(ValueError, match="each part once"):
        make_loss("ce+ce")


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(TypeError, match=r"dice_loss has no option 'gamma'; it has average, "):
        make_loss("dice", gamma=2.0)
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


def test_another_package_adds_a_loss_by_entry_point(monkeypatch):
    point = EntryPoint("theirs", "softf1.losses:TverskyLoss", "softf1.losses")
    monkeypatch.setattr(registry, "entry_points", EntryPoints([point]).select)
    assert "theirs" in loss_names()
    assert isinstance(make_loss("theirs", alpha=0.3), losses.TverskyLoss)


def test_options_show_in_the_representation():
    assert repr(make_loss("dsc", alpha=0.01)) == "SelfAdjustingDiceLoss(alpha=0.01)"
