"""Shapes, labels and options: what is taken, and one sentence for what is not."""

import inspect

import pytest
import torch

from softf1.losses import (
    cross_entropy_loss,
    dice_loss,
    focal_loss,
    logit_adjusted_loss,
    make_loss,
    self_adjusting_dice_loss,
    tversky_loss,
)
from softf1.losses._core import column_sums, pick, prepare

FUNCTIONS = [
    cross_entropy_loss,
    focal_loss,
    logit_adjusted_loss,
    dice_loss,
    tversky_loss,
    self_adjusting_dice_loss,
]
every_loss = pytest.mark.parametrize("loss", FUNCTIONS)
FAMILY = [dice_loss, tversky_loss, self_adjusting_dice_loss]
every_ratio = pytest.mark.parametrize("loss", FAMILY)


@every_loss
@pytest.mark.parametrize(
    ("logits", "target"),
    [
        ((5, 3), (5,)),
        ((2, 5, 3), (2, 5)),
        ((2, 5, 3), (2, 5, 3)),
        ((5, 1), (5,)),
        ((5, 1), (5, 1)),
        ((2, 4, 1), (2, 4)),
        ((3,), ()),
        ((1,), ()),
        ((1,), (1,)),
        ((0, 3), (0,)),
        ((2, 2, 2, 2), (2, 2, 2)),
    ],
)
def test_shapes_that_are_taken(loss, logits, target):
    x = torch.randn(logits, requires_grad=True)
    values = loss(x, torch.ones(target, dtype=torch.long), reduction="none")
    assert values.shape == logits[:-1]
    values.sum().backward()
    assert x.grad.shape == logits


@every_loss
@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        ((5,), (5,), r"use logits.unsqueeze\(-1\)"),
        ((), (), r"classes last, got logits \(\) and target \(\)"),
        ((5, 3), (4,), r"wanted target \(5,\) with class indices or \(5, 3\).*got.*target \(4,\)"),
        ((2, 5, 3), (10,), r"wanted target \(2, 5\)"),
        ((5, 3), (5, 1), r"wanted target \(5,\)"),
        ((5, 0), (5,), "at least one class"),
    ],
)
def test_shapes_that_do_not_fit(loss, logits, target, message):
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(logits), torch.zeros(target, dtype=torch.long))


@every_loss
def test_types_that_do_not_fit(loss):
    for dtype in (torch.long, torch.complex64, torch.bool):
        for target in (torch.zeros(2, dtype=torch.long), torch.zeros(2, 2)):
            with pytest.raises(TypeError, match=f"wanted floating-point logits, got {dtype}"):
                loss(torch.zeros(2, 2, dtype=dtype), target, weight=[1.0, 2.0])
    with pytest.raises(TypeError, match="wanted integer class indices in target, got"):
        loss(torch.zeros(2, 2), torch.zeros(2))


@pytest.mark.parametrize("backend", [None, "torch", "triton"])
@every_loss
def test_what_is_no_tensor_is_named(loss, backend):
    options = {"backend": backend} if "backend" in inspect.signature(loss).parameters else {}
    logits, target = torch.zeros(2, 2), torch.tensor([0, 1])
    for given in (logits.tolist(), logits.numpy(), None):
        with pytest.raises(
            TypeError, match=f"wanted logits as a tensor, got {type(given).__name__}"
        ):
            loss(given, target.tolist(), weight=[1.0, 2.0], **options)
    with pytest.raises(TypeError, match="wanted target as a tensor, got list"):
        loss(logits, target.tolist(), **options)


@every_loss
def test_labels_out_of_range_are_named(loss):
    with pytest.raises(ValueError, match=r"labels from 0 to 2 \(or ignore_index\), got 7 \(2 such"):
        loss(torch.zeros(4, 3), torch.tensor([0, 7, 7, -100]))
    with pytest.raises(ValueError, match="got -1"):
        loss(torch.zeros(2, 3), torch.tensor([0, -1]))
    with pytest.raises(ValueError, match=r"labels from 0 to 1 .*got 2"):
        loss(torch.zeros(2, 1), torch.tensor([0, 2]))
    with pytest.raises(ValueError, match=r"labels from 0 to 1 .*got 1\.5"):
        loss(torch.zeros(1, 2), torch.tensor([[0.5, 1.5]]))


@every_loss
def test_a_masked_label_may_be_anything(loss):
    mask = torch.tensor([True, False])
    assert torch.isfinite(loss(torch.zeros(2, 3), torch.tensor([0, 99]), mask=mask))


@every_loss
def test_the_label_check_can_be_turned_off(loss):
    target = torch.tensor([[0.0, 1.5]])
    assert torch.isfinite(loss(torch.zeros(1, 2), target, check_labels=False))


@every_loss
def test_any_integer_type_and_any_ignored_index(loss):
    logits = torch.randn(4, 3)
    expected = loss(logits, torch.tensor([0, -100, 2, 1]))
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        assert torch.equal(loss(logits, torch.tensor([0, -100, 2, 1], dtype=dtype)), expected)
    target = torch.tensor([1, 0, 2, 1])  # ignore class 0, as with padding labelled 0
    mask = target != 0
    expected = loss(logits, target, mask=mask)
    assert torch.equal(loss(logits, target, ignore_index=0), expected)


INTEGER_TYPES = [
    torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64
]  # fmt: skip


@every_loss
@pytest.mark.parametrize("dtype", INTEGER_TYPES)
@pytest.mark.parametrize("ignore_index", [-100, 70_000, 156, 2, 2**40])
def test_no_integer_type_turns_the_ignored_index_into_a_class(loss, dtype, ignore_index):
    # −100 is 156 in uint8 and 65436 in uint16, 70,000 is 4464 in int16 and uint16.
    logits = torch.randn(6, 200, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 100, 2, 112, 1, 2])
    if dtype != torch.int8:
        target[0] = 156
    expected = loss(logits, target, ignore_index=ignore_index)
    assert torch.equal(loss(logits, target.to(dtype), ignore_index=ignore_index), expected)
    terms = (target.unsqueeze(1) == torch.arange(200)).long()
    terms[0, 3] = 1
    expected = loss(logits, terms, ignore_index=ignore_index)
    assert torch.equal(loss(logits, terms.to(dtype), ignore_index=ignore_index), expected)


@every_loss
def test_types_that_may_wrap_are_refused(loss):
    with pytest.raises(TypeError, match=r"integer class indices in target, got torch\.uint64"):
        loss(torch.zeros(2, 3), torch.zeros(2, dtype=torch.uint64))
    for dtype in (torch.uint64, torch.complex64):
        with pytest.raises(TypeError, match="wanted integers, floats or bools in target, got"):
            loss(torch.zeros(2, 3), torch.zeros(2, 3, dtype=dtype))


@every_loss
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, -0.5, 2.0], "finite class weights from 0 up, got .*-0.5"),
        ([1.0, float("nan"), 2.0], "finite class weights from 0 up, got .*nan"),
        ([1.0, float("inf"), 2.0], "finite class weights from 0 up, got .*inf"),
        ([0.0, 0.0, 0.0], "a class weight above 0, got"),
    ],
)
@pytest.mark.parametrize("mode", ["softmax", "sigmoid"])
def test_weights_that_mean_nothing_are_named(loss, weight, message, mode):
    target = torch.tensor([0, 1]) if mode == "softmax" else torch.eye(3)[:2]
    for given in (weight, torch.tensor(weight)):
        with pytest.raises(ValueError, match=message):
            loss(torch.zeros(2, 3), target, weight=given)


@pytest.mark.parametrize("name", ["ce", "wce", "focal", "wfocal", "la", "dice", "tversky", "dsc"])
def test_a_module_looks_at_its_weights_when_it_is_made(name):
    for weight in ([1.0, -1.0], [0.0, 0.0], torch.tensor([1.0, torch.nan])):
        with pytest.raises(ValueError, match="class weight"):
            make_loss(name, weight=weight)
    with pytest.raises(TypeError, match="wanted real class weights"):
        make_loss(name, weight=torch.ones(2, dtype=torch.complex64))


@every_ratio
@pytest.mark.parametrize("over", ["example", "batch"])
def test_weights_on_excluded_classes_only_are_refused(loss, over):
    with pytest.raises(ValueError, match=r"a class weight above 0 outside of exclude \[0\]"):
        loss(torch.zeros(2, 3), torch.tensor([0, 1]), weight=[1, 0, 0], exclude=[0], over=over)


@every_ratio
@pytest.mark.parametrize("over", ["example", "batch"])
def test_soft_targets_have_no_gradient_and_say_so(loss, over):
    target = torch.full((2, 3), 0.5, requires_grad=True)
    with pytest.raises(ValueError, match=r"has no gradient with .* pass target.detach\(\)"):
        loss(torch.zeros(2, 3), target, over=over)
    with torch.no_grad():
        assert torch.isfinite(loss(torch.zeros(2, 3), target, over=over))


@every_ratio
def test_weights_have_a_gradient_at_batch_level_and_are_refused_at_example_level(loss):
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    weight = torch.tensor([1.0, 2.0, 0.5], requires_grad=True)
    with pytest.raises(ValueError, match=r"pass weight.detach\(\)"):
        loss(logits, target, weight=weight)
    loss(logits, target, weight=weight, over="batch").backward()
    assert weight.grad.abs().sum() > 0


@pytest.mark.parametrize("loss", [cross_entropy_loss, focal_loss, logit_adjusted_loss])
def test_targets_and_weights_of_the_entropies_have_gradients(loss):
    logits = torch.randn(4, 3, dtype=torch.float64)
    target = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0])
    assert torch.autograd.gradcheck(lambda w: loss(logits, labels, weight=w), (weight,))
    if loss is focal_loss:
        assert torch.autograd.gradcheck(lambda w: loss(logits, target, weight=w), (weight,))
    if loss is cross_entropy_loss:  # torch's own function has no gradient of this weight
        with pytest.raises(ValueError, match=r"pass weight.detach\(\)"):
            loss(logits, target, weight=weight)
    assert torch.autograd.gradcheck(lambda y: loss(logits, y), (target,))


@every_loss
def test_wrong_sizes_are_named(loss):
    logits, target = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"wanted a mask of shape \(2,\), got \(3,\)"):
        loss(logits, target, mask=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"one weight per class, \(3,\), got \(2,\)"):
        loss(logits, target, weight=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"wanted reduction to be one of .* got 'avg'"):
        loss(logits, target, reduction="avg")
    with pytest.raises(TypeError, match="positional"):
        loss(logits, target, torch.ones(3))


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (focal_loss, {"gamma": -1.0}, "wanted gamma >= 0, got -1.0"),
        (focal_loss, {"gamma": float("nan")}, "wanted gamma >= 0, got nan"),
        (cross_entropy_loss, {"label_smoothing": 1.0}, "0 <= label_smoothing < 1, got 1.0"),
        (dice_loss, {"smooth": -0.1}, "wanted smooth >= 0, got -0.1"),
        (tversky_loss, {"alpha": -0.1}, "wanted alpha >= 0"),
        (tversky_loss, {"beta": -0.1}, "wanted beta >= 0"),
        (self_adjusting_dice_loss, {"alpha": -0.1}, "wanted alpha >= 0"),
        (self_adjusting_dice_loss, {"decay": "none"}, "wanted decay to be one of"),
        (dice_loss, {"average": "micro"}, 'needs over="batch"'),
        (dice_loss, {"exclude": (0, 1, 2)}, "leaves none of the 3 classes"),
        (dice_loss, {"exclude": (3,)}, r"classes from 0 to 2 in exclude, got \[3\]"),
        (dice_loss, {"exclude": (-1,)}, r"classes from 0 to 2 in exclude, got \[-1\]"),
        (dice_loss, {"over": "batch", "ohem_ratio": -1.0}, "wanted ohem_ratio >= 0"),
        (dice_loss, {"over": "batch", "ohem_ratio": 1.0, "min_kept": -1}, "wanted min_kept >= 0"),
    ],
)
def test_degenerate_options_are_named(loss, options, message):
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(2, 3), torch.tensor([0, 1]), **options)


def test_a_second_derivative_is_refused_instead_of_wrong():
    logits = torch.randn(4, 3, requires_grad=True)
    for over in ("example", "batch"):
        loss = dice_loss(logits, torch.tensor([0, 1, 2, 0]), over=over)
        (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
        with pytest.raises(RuntimeError, match="hand-written first derivatives only"):
            gradient.pow(2).sum().backward()


def test_backward_twice_through_a_kept_graph_adds_up():
    logits = torch.randn(4, 3, requires_grad=True)
    loss = dice_loss(logits, torch.tensor([0, 1, 2, 0]))
    loss.backward(retain_graph=True)
    once = logits.grad.clone()
    loss.backward()
    torch.testing.assert_close(logits.grad, 2 * once)


def is_complete(logits, target, **options):
    given = {"mask": None, "ignore_index": -100, "check_labels": None} | options
    return prepare(logits, target, **given).complete


def test_rows_are_complete_where_every_term_counts():
    logits, target = torch.zeros(3, 4), torch.tensor([0, 3, 2])
    assert is_complete(logits, target)
    assert is_complete(logits, target.to(torch.uint8))
    assert not is_complete(logits, target, mask=torch.ones(3, dtype=torch.bool))
    assert not is_complete(logits, target, ignore_index=2)
    assert not is_complete(logits, torch.tensor([0, 3, -100]))
    assert not is_complete(logits, torch.zeros(3, 4))
    assert not is_complete(logits[:0], target[:0])
    for value in (-torch.inf, torch.inf, torch.nan):
        assert not is_complete(logits.index_fill(0, torch.tensor([1]), value), target)


@pytest.mark.parametrize("classes", [2, 3, 20])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (cross_entropy_loss, {}),
        (cross_entropy_loss, {"label_smoothing": 0.1}),
        (focal_loss, {}),
        (focal_loss, {"gamma": 0.0}),
        (dice_loss, {}),
        (dice_loss, {"over": "batch"}),
        (dice_loss, {"exclude": (0,), "smooth": 0.0}),
        (tversky_loss, {"alpha": 0.3, "beta": 0.7, "squared": True}),
        (tversky_loss, {"alpha": 0.3, "beta": 0.7, "over": "batch"}),
        (self_adjusting_dice_loss, {"alpha": 0.01, "decay": "paper"}),
        (self_adjusting_dice_loss, {"squared": True}),
        (self_adjusting_dice_loss, {"alpha": 2.0, "over": "batch"}),
    ],
)
def test_complete_rows_are_as_rows_under_a_mask_of_ones(loss, options, reduction, classes):
    generator = torch.Generator().manual_seed(classes)
    x = 3 * torch.randn(40, classes, generator=generator, dtype=torch.float64)
    target = torch.randint(0, classes, (40,), generator=generator)
    x[0], x[1, 0] = 0.0, 90.0  # equal logits; one so large that p rounds to 1
    weight = torch.linspace(0.5, 2.0, classes)
    for given in (options, options | {"weight": weight}):
        found, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
        values = loss(found, target, reduction=reduction, **given)
        mask = torch.ones(40, dtype=torch.bool)
        others = loss(wanted, target, reduction=reduction, mask=mask, **given)
        torch.testing.assert_close(values, others)
        towards = torch.rand(values.shape, generator=generator, dtype=torch.float64)
        (values * towards).sum().backward()
        (others * towards).sum().backward()
        torch.testing.assert_close(found.grad, wanted.grad)


@every_loss
def test_an_infinite_logit_is_seen_in_value_and_gradient(loss):
    x = torch.zeros(3, 2)
    x[1, 0] = torch.inf
    x.requires_grad_()
    value = loss(x, torch.tensor([0, 1, 0]))
    assert value.isnan()
    value.backward()
    assert x.grad[1].isnan().all()


# From 32,768 numbers on, both take the way of several threads; 77 rows more are no full block.
@pytest.mark.parametrize(("rows", "classes"), [(32_768 // 2 + 77, 2), (1_060, 50), (30, 2_000)])
def test_rows_that_threads_share_have_the_same_sums_and_gold_values(rows, classes):
    torch.manual_seed(0)
    values = torch.randn(rows, classes, dtype=torch.float64, requires_grad=True)
    gold = torch.randint(classes, (rows, 1))
    torch.testing.assert_close(column_sums(values), values.sum(0))
    expected, picked = values.gather(1, gold), pick(values, gold)
    assert torch.equal(picked, expected)
    weight = torch.randn(rows, 1, dtype=torch.float64)
    gradients = [
        torch.autograd.grad((own.square() * weight).sum(), values, create_graph=True)[0]
        for own in (picked, expected)
    ]
    assert torch.equal(*gradients)
    assert torch.equal(*[torch.autograd.grad(own.square().sum(), values)[0] for own in gradients])


def test_a_gold_value_that_is_not_finite_is_picked_as_it_is():
    values = torch.zeros(20_000, 2)
    values[:3, 0] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    picked = pick(values, torch.zeros(20_000, 1, dtype=torch.long))
    torch.testing.assert_close(picked, values[:, :1], equal_nan=True)


@pytest.mark.parametrize("label", [-100, -1, 2])
@pytest.mark.parametrize("rows", [3, 20_000])
def test_a_class_that_does_not_exist_is_not_picked(rows, label):
    gold = torch.zeros(rows, 1, dtype=torch.long)
    gold[1] = label
    with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
        pick(torch.zeros(rows, 2), gold)
