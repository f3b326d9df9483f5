"""The fused kernels against the PyTorch form: on a GPU where there is one, else interpreted."""

import copy
import importlib.util
import os
import pickle
import subprocess
import sys
from contextlib import nullcontext
from itertools import product
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch.autograd import forward_ad

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from softf1.kernels._numbers import Numbers  # noqa: E402
from softf1.losses import loss_facts, make_loss, tversky_loss  # noqa: E402
from tests.losses.cases import every_case, every_mode  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
pytestmark = [
    pytest.mark.needs_tool,
    pytest.mark.filterwarnings("ignore:.*:RuntimeWarning"),  # the interpreter's numpy
]
on_gpu = pytest.mark.skipif(not CUDA, reason="needs a GPU")


def inputs(mode, n, c, *, dtype=torch.float32, seed=0, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, c, generator=generator) * scale
    if c > 3 and n > 3:
        logits[1, 2] = -torch.inf
        logits[2] *= 20
    if mode == "softmax":
        target = torch.randint(0, c, (n,), generator=generator)
    else:
        target = torch.randint(0, 2, (n, c), generator=generator)
    if n > 4:
        target[3] = -100
    mask = torch.rand(n, generator=generator) < 0.8
    return logits.to(dtype).to(DEVICE), target.to(DEVICE), mask.to(DEVICE)


def compare(name, options, logits, target, mask=None, *, gradient_of=None):
    """Runs both forms and compares value and gradient; returns the gradient of the kernel."""
    results = []
    generator = torch.Generator().manual_seed(1)
    for backend in ("torch", "triton"):
        x = logits.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        value = make_loss(name, backend=backend, **options).to(x.device)(x, target, mask)
        if gradient_of is None:
            gradient_of = torch.randn(value.shape, generator=generator).to(x.device) + 3
            if options.get("reduction") == "sums" and value.shape[1] == 1:
                gradient_of[1] = 0  # a count has no derivative
        (value * gradient_of).sum().backward()
        results.append((value.detach(), x.grad))
    (expected, dx), (got, fused_dx) = results
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-6)
    tolerance = TOLERANCE[logits.dtype]
    largest = max(dx.abs().max().item(), 1e-3) if dx.numel() else 1.0
    torch.testing.assert_close(
        fused_dx.float(), dx.float(), rtol=tolerance, atol=tolerance * largest
    )
    assert fused_dx.dtype == logits.dtype
    return fused_dx


def kernels_lack(name, options):
    if "+" in name or "backend" not in loss_facts(name).options:
        return True
    return "ohem_ratio" in options or "label_smoothing" in options


def fit(options, c):
    """Adapts the options' classes to c classes."""
    options = dict(options)
    if "weight" in options:
        options["weight"] = [0.5 + 0.37 * (k % 5) for k in range(c)]
    return options


@every_mode
@every_case(but=kernels_lack)
def test_every_loss_equals_its_pytorch_form(name, options, mode):
    for reduction in ("mean", "sum", "none"):
        logits, target, mask = inputs(mode, 9, 5)
        compare(name, fit(options, 5) | {"reduction": reduction}, logits, target, mask)


@every_mode
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ce", {}),
        ("la", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
        ("focal", {}),
        ("zlpr", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
        ("dsc", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
        ("dice", {"over": "batch", "exclude": [0]}),
        ("tversky", {"over": "batch", "alpha": 0.2, "squared": True}),
    ],
)
def test_sums_that_add_up_over_batches(name, options, mode):
    logits, target, mask = inputs(mode, 9, 5)
    compare(name, options | {"reduction": "sums"}, logits, target, mask)


@every_mode
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.uint32])
@pytest.mark.parametrize("over", ["example", "batch"])
def test_no_integer_type_turns_the_ignored_index_into_a_class(over, dtype, mode):
    logits, target, _ = inputs(mode, 4, 160)
    target[0] = 156 if mode == "softmax" else 1
    for ignore_index in (-100, 70_000, 1):
        losses = [
            make_loss("dice", over=over, ignore_index=ignore_index, backend=backend)
            for backend in ("torch", "triton")
        ]
        expected = losses[0](logits, target)
        for loss in losses:
            torch.testing.assert_close(loss(logits, target.to(dtype)), expected)


def test_gradients_of_targets_and_weights_have_the_pytorch_form():
    logits = torch.randn(3, 4, device=DEVICE)
    target = torch.rand(3, 4, device=DEVICE, requires_grad=True)
    with pytest.raises(ValueError, match="that require a gradient have the PyTorch form only"):
        make_loss("ce", backend="triton")(logits, target)
    with pytest.raises(ValueError, match=r"torch\.func have the PyTorch form only"):
        torch.func.grad(lambda x: make_loss("dice", backend="triton")(x, target.detach()))(logits)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [("ce", {}), ("zlpr", {}), ("dice", {"over": "example"}), ("dice", {"over": "batch"})],
)
def test_forward_mode_is_refused(name, options, trained):
    logits, target, _ = inputs("softmax", 4, 3)
    loss = make_loss(name, **options, backend="triton")
    for _ in range(2):  # the second call takes the shortcut
        with forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward mode"):
            loss(forward_ad.make_dual(logits.requires_grad_(trained), logits.detach()), target)
        loss(logits.detach(), target)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "c"), [(1, 2), (3, 17), (70, 3), (2, 300), (0, 4)])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("focal", {"gamma": 0.5}),
        ("la", {"weight": []}),
        ("zlpr", {"margin": 0.5, "weight": []}),
        ("dice", {"over": "batch"}),
        ("dsc", {"alpha": 0.3, "decay": "paper"}),
        ("tversky", {"over": "batch", "alpha": 0.2, "squared": True}),
    ],
)
@every_mode
def test_odd_shapes_and_types(name, options, n, c, dtype, mode):
    logits, target, mask = inputs(mode, n, c, dtype=dtype)
    options = fit(options, c)
    compare(name, options, logits, target)
    compare(name, options, logits, target, mask)


@pytest.mark.parametrize("name", ["ce", "la", "focal", "zlpr", "dice", "tversky", "dsc"])
def test_one_logit(name):
    logits, target, mask = inputs("sigmoid", 37, 1)
    compare(name, {"weight": [9.0]} if name == "la" else {}, logits, target.squeeze(1), mask)
    if name in {"dice", "tversky", "dsc"}:
        compare(name, {"over": "batch"}, logits, target.squeeze(1), mask)


@pytest.mark.parametrize("name", ["ce", "la", "focal", "zlpr", "dice", "tversky", "dsc"])
@pytest.mark.parametrize("leading", [(3, 4), (2, 3, 2)], ids=str)
def test_one_logit_of_each_token(name, leading):
    logits, target, mask = inputs("sigmoid", 12, 1)
    options = {"weight": [9.0]} if name == "la" else {}
    given = logits.view(*leading, 1), target.view(leading), mask.view(leading)
    compare(name, options, *given)
    compare(name, options | {"reduction": "none"}, *given)


@every_mode
@pytest.mark.parametrize("scale", [1e4, 1e-4])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ce", {}),
        ("la", {"weight": [0.5, 1.0, 0.0, 1e-3, 100.0], "tau": 2.0}),
        ("focal", {"gamma": 0.3}),
        ("zlpr", {"weight": [0.5, 1.0, 0.0, 1e-3, 100.0], "margin": 2.0}),
        ("dsc", {"alpha": 0.01, "decay": "paper"}),
        ("dsc", {"alpha": 0.01, "over": "batch"}),
        ("dsc", {"alpha": 4.0, "decay": "paper"}),
        ("dice", {"smooth": 0.0, "over": "batch"}),
    ],
)
def test_extreme_logits(name, options, scale, mode):
    logits, target, _ = inputs(mode, 11, 5, scale=scale)
    dx = compare(name, options, logits, target)
    assert torch.isfinite(dx).all()


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(
    ("name", "low", "options"),
    [
        ("dice", -43.6, {}),  # p² is 1e-38, 1 / p² nearly the largest number of float32
        ("dice", -87.0, {"squared": False}),
        ("dsc", -87.0, {"weight": []}),
        ("dsc", -43.6, {"alpha": 0.01, "decay": "paper", "squared": True}),
    ],
)
def test_without_smooth_gradients_are_finite_however_small_probabilities_are(
    name, low, options, reduction
):
    logits = torch.full((2, 9), low, device=DEVICE)
    logits[:, 0] = 0
    options = fit(options, 9) | {"smooth": 0.0, "reduction": reduction}
    compare(name, options, logits, torch.tensor([0, 1], device=DEVICE))


@every_mode
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dsc", {"over": "example"}),
        ("dsc", {"over": "batch"}),
        ("la", {"weight": []}),
        ("zlpr", {}),
    ],
)
def test_strides_are_respected(name, options, mode):
    logits, target, _ = inputs(mode, 12, 6)
    options = fit(options, 6)
    strided = logits.t().contiguous().t()
    assert not strided.is_contiguous()
    compare(name, options, strided, target)
    compare(name, options, logits.repeat(1, 2)[:, :6], target)
    if mode == "softmax":
        compare(name, options, logits, target.repeat_interleave(2)[::2])


@every_mode
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ce", {}),
        ("focal", {}),
        ("la", {}),
        ("zlpr", {}),
        ("dsc", {}),
        ("dice", {"over": "batch"}),
    ],
)
def test_class_weights_may_have_strides(name, options, mode):
    logits, target, _ = inputs(mode, 9, 5)
    column = torch.tensor([[0.5, 9.0], [1.0, 9.0], [2.0, 9.0], [0.25, 9.0], [1.0, 9.0]])[:, 0]
    for weight in (column, torch.tensor(2.0).expand(5)):
        expected, found = (
            make_loss(name, weight=given, backend="triton", **options).to(DEVICE)
            for given in (weight.tolist(), weight)
        )
        assert torch.equal(found(logits, target), expected(logits, target))
        function = type(found).function
        value = function(logits, target, weight=weight, backend="triton", **options)
        assert torch.equal(value, expected(logits, target))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["la", "zlpr"])
def test_soft_targets_of_weighted_classes(name, dtype):
    logits, _, mask = inputs("sigmoid", 9, 5, dtype=dtype)
    target = torch.rand(9, 5, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    compare(name, fit({"weight": []}, 5), logits, target, mask)


@every_mode
def test_zlpr_of_rows_longer_than_a_tile(mode):
    logits, target, mask = inputs(mode, 5, 9_001)
    compare("zlpr", {}, logits, target)
    compare("zlpr", {"margin": 1.0, "reduction": "none"}, logits, target, mask)


def test_zlpr_without_anything_to_count_is_zero_with_zero_gradient():
    logits = torch.randn(5, 4, device=DEVICE, requires_grad=True)
    loss = make_loss("zlpr", backend="triton")
    value = loss(logits, torch.full((5,), -100, device=DEVICE))
    value.backward()
    assert value == 0
    assert (logits.grad == 0).all()
    blocked = torch.full((2, 3), -torch.inf, device=DEVICE)
    assert loss(blocked, torch.zeros(2, dtype=torch.long, device=DEVICE)) == 0


def test_adjusted_logits_are_not_rounded_to_half_precision():
    # 100 + 0.01 is 100 in bfloat16, whose neighbours are 99.5 and 100.5; log 2 = 0.6931
    logits = torch.full((1, 2), 100.0, dtype=torch.bfloat16, device=DEVICE)
    weight = torch.tensor([0.01, 0.0]).exp().tolist()
    loss = make_loss("la", weight=weight, backend="triton").to(DEVICE)
    value = loss(logits, torch.tensor([0], device=DEVICE)).item()
    assert value == pytest.approx(0.6931 + 0.005, abs=1e-4)


def forget_plans():
    from softf1.kernels import batch_level, example_level

    for function in (*vars(example_level).values(), *vars(batch_level).values()):
        if hasattr(function, "cache_clear"):
            function.cache_clear()


@pytest.fixture
def short_tiles(monkeypatch):
    """Cuts rows into parts of 8 classes, so that a row of 21 is a long one."""
    from softf1.kernels import _launch

    forget_plans()
    tile = _launch.Tile(s=2, n=2, w=4, warps=1, programs=3)
    monkeypatch.setattr(_launch, "LONGEST_TILE", 8)
    monkeypatch.setattr(_launch, "long_lanes", lambda *_: _launch.Lanes(2, 4, 1, 3))
    for name in ("backward_tile", "statistics_tile", "batch_backward_tile"):
        monkeypatch.setattr(_launch, name, lambda *_: tile)
    yield
    forget_plans()


@pytest.mark.parametrize("over", ["example", "batch"])
@pytest.mark.parametrize(
    ("name", "options", "c"),
    [
        ("dice", {}, 24),  # a whole number of parts
        ("dsc", {"alpha": 0.3, "decay": "paper"}, 21),
        ("tversky", {"alpha": 0.2, "weight": [0.5 + 0.1 * k for k in range(13)]}, 13),
    ],
)
@pytest.mark.usefixtures("short_tiles")
def test_rows_longer_than_a_tile(name, options, c, over):
    logits, target, mask = inputs("softmax", 5, c)
    compare(name, options | {"over": over}, logits, target, mask)
    if "decay" not in options:
        return
    logits, target, mask = inputs("sigmoid", 5, c)
    compare(name, options | {"over": over}, logits, target, mask)
    compare("ce", {}, *inputs("softmax", 5, c))


@every_mode
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("c", [24, 21])
@pytest.mark.usefixtures("short_tiles")
def test_adjusted_rows_longer_than_a_tile(c, dtype, mode):
    logits, target, mask = inputs(mode, 5, c, dtype=dtype)
    options = fit({"weight": []}, c)
    options["weight"][4] = 0.0
    compare("la", options, logits, target)
    compare("la", options | {"reduction": "none"}, logits, target, mask)


@pytest.mark.parametrize(
    ("name", "options", "c"),
    [
        ("dice", {"weight": [0.5 + 0.1 * k for k in range(13)], "reduction": "none"}, 13),
        ("dsc", {"decay": "paper", "squared": True}, 21),
        ("tversky", {"alpha": 0.2, "smooth": 0.1, "squared": True}, 32),
    ],
)
@pytest.mark.usefixtures("short_tiles")
def test_long_rows_of_a_batch_read_once(name, options, c, monkeypatch):
    from softf1.kernels import _launch

    monkeypatch.setattr(_launch, "wide_lanes", lambda *_: _launch.Lanes(2, 4, 1, 3))
    logits, target, mask = inputs("softmax", 5, c)
    logits[3] = torch.nan  # a row that does not count
    compare(name, options | {"over": "batch"}, logits, target, mask)


def test_nothing_to_count_is_zero_with_zero_gradient():
    for name in ("ce", "dice", "dsc"):
        for over in ({}, {"over": "batch"}) if name != "ce" else ({},):
            logits = torch.randn(5, 4, device=DEVICE, requires_grad=True)
            target = torch.full((5,), -100, device=DEVICE)
            loss = make_loss(name, backend="triton", **over)(logits, target)
            loss.backward()
            assert loss == 0
            assert (logits.grad == 0).all()


def test_a_second_derivative_is_refused():
    logits = torch.randn(4, 3, device=DEVICE, requires_grad=True)
    target = torch.tensor([0, 1, 2, 0], device=DEVICE)
    for over in ("example", "batch"):
        loss = make_loss("dice", backend="triton", over=over)(logits, target)
        (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
        with pytest.raises(RuntimeError, match="hand-written first derivatives only"):
            gradient.pow(2).sum().backward()


FORESEEN = [
    ("ce", {}),
    ("la", {"weight": [0.5, 1.0, 0.0, 0.25, 1.0]}),
    ("focal", {"reduction": "sum"}),
    ("tversky", {"alpha": 0.2, "weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
    ("dsc", {"alpha": 0.3, "decay": "paper"}),
    ("dsc", {"decay": "paper", "squared": True}),
]


@pytest.mark.parametrize(("name", "options"), FORESEEN)
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_a_gradient_that_forward_wrote_is_made_again_where_it_was_for_another_factor(
    name, options, ignored, factor
):
    logits, target, _ = inputs("softmax", 33, 5)
    if not ignored:
        target[3] = 1
    compare(name, options, logits, target, gradient_of=torch.tensor(factor, device=DEVICE))


def test_forward_writes_the_gradient_and_backward_leaves_it_if_it_fits():
    from softf1.kernels._numbers import Numbers
    from softf1.kernels.example_level import lay_out_example
    from softf1.kernels.fused import DICE, NO_DECAY

    logits, target, _ = inputs("softmax", 33, 5)
    target[3] = 1
    numbers = Numbers(DICE, 1, NO_DECAY, 0.0, 1.0, 1.0, 1.0, -100)
    for ignored, factor, left in ((0, 1.0, True), (0, 2.0, False), (1, 1.0, False)):
        target[:ignored] = -100
        given = (logits, target, None, None)
        kernels = lay_out_example(*given, numbers, "mean")
        _, aux, foreseen = kernels.value_and_gradient(*given)
        foreseen.fill_(7.0)
        incoming = torch.tensor(factor, device=DEVICE)
        again = kernels.gradient(incoming, *given, aux, foreseen)
        assert again is foreseen
        assert (again == 7.0).all() == left
        expected = kernels.gradient(incoming, *given, aux)
        assert torch.equal(again, expected) != left


@pytest.mark.parametrize(("name", "over"), [("ce", {}), ("dsc", {}), ("dsc", {"over": "batch"})])
def test_backward_twice_through_a_kept_graph_adds_up(name, over):
    logits, target, _ = inputs("softmax", 9, 5)
    target[3] = 0
    logits.requires_grad_()
    loss = make_loss(name, backend="triton", **over)(logits, target)
    loss.backward(retain_graph=True)
    once = logits.grad.clone()
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(logits.grad, 3 * once)


def test_a_scaled_loss_keeps_gradients_that_float16_could_not_hold():
    logits, target, _ = inputs("softmax", 512, 9, dtype=torch.float16, scale=6.0)
    target[3] = 1
    scale = torch.tensor(2.0**14, device=DEVICE)
    dx = compare("ce", {}, logits, target, gradient_of=scale).float() / scale
    small = (dx != 0) & (dx.abs() < 2.0**-25)  # which float16 rounds to 0
    assert small.float().mean() > 0.05


@pytest.mark.parametrize("c", [9_001, 16_384])
def test_long_rows_are_read_once_where_the_gradient_is_foreseen(c):
    logits, target, _ = inputs("softmax", 3, c)
    one = torch.tensor(1.0, device=DEVICE)
    for name, options in (("ce", {}), ("la", fit({"weight": []}, c)), ("dsc", {})):
        compare(name, options, logits, target, gradient_of=one)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"over": "batch", "ohem_ratio": 1.0}, "ohem_ratio has the PyTorch form only"),
        ({}, "float64"),
    ],
)
def test_forced_and_impossible_says_why(options, reason):
    logits = torch.zeros(2, 2, device=DEVICE, dtype=torch.float64 if not options else torch.float32)
    with pytest.raises(ValueError, match=f'backend="triton" cannot run here: .*{reason}'):
        make_loss("dice", backend="triton", **options)(logits, torch.tensor([0, 1], device=DEVICE))


KERNELS = {
    ("softmax", "example"): {"softmax_example_forward_kernel", "softmax_example_backward_kernel"},
    ("sigmoid", "example"): {"sigmoid_example_forward_kernel", "sigmoid_example_backward_kernel"},
    ("softmax", "batch"): {"softmax_batch_statistics_kernel", "softmax_batch_backward_kernel"},
    ("sigmoid", "batch"): {"sigmoid_batch_statistics_kernel", "sigmoid_batch_backward_kernel"},
}


@every_mode
@pytest.mark.parametrize(
    ("name", "over"),
    [
        *product(("ce", "la", "focal", "zlpr"), [None]),
        *product(("dice", "tversky", "dsc"), ("example", "batch")),
    ],
)
def test_kernels_are_named_after_mode_and_level(name, over, mode, monkeypatch):
    from softf1.kernels import batch_level, example_level
    from softf1.kernels._launch import launch

    started = []

    def recorded(plan, *tensors):
        if not tensors[0].is_meta:  # otherwise it is only compiled
            started.append(plan.kernel.__name__)
        launch(plan, *tensors)

    for module in (example_level, batch_level):
        monkeypatch.setattr(module, "launch", recorded)
    logits, target, _ = inputs(mode, 5, 4)
    options = {} if over is None else {"over": over}
    if name == "la":
        options["weight"] = [1.0, 2.0, 3.0, 4.0]
    loss = make_loss(name, backend="triton", **options).to(DEVICE)
    value = loss(logits.requires_grad_(), target)
    ((before, _), *_) = value.grad_fn.next_functions
    assert before.variable is logits  # the kernels read the logits themselves
    value.backward()
    assert len(started) == 2  # one for the value, one for the gradient
    own = {"zlpr_forward_kernel", "zlpr_backward_kernel"}
    assert set(started) == (own if name == "zlpr" else KERNELS[mode, over or "example"])


@every_mode
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ce", {}),
        ("wce", {"weight": [1.0, 2.0, 3.0]}),
        ("la", {"weight": [1.0, 2.0, 3.0]}),
        ("focal", {"reduction": "none"}),
        ("zlpr", {}),
        ("zlpr", {"reduction": "none", "weight": [1.0, 2.0, 3.0]}),
        ("dsc", {}),
        ("dsc", {"over": "batch"}),
        ("dice", {"over": "batch", "reduction": "sums"}),
        ("dice", {"reduction": "sums"}),
    ],
)
def test_a_rehearsal_compiles_what_forward_and_backward_start(name, options, mode, monkeypatch):
    from softf1.kernels import _launch, autograd, batch_level, example_level

    forget_plans()
    started = {True: set(), False: set()}

    def recorded(plan, *tensors):
        types = tuple((tensor.dtype, tensor.data_ptr() % 16) for tensor in tensors)
        key = (plan.kernel.fn.__name__, types, plan.arguments, plan.grid, plan.warps)
        started[tensors[0].is_meta].add(key)
        _launch.launch(plan, *tensors)

    for module in (example_level, batch_level):
        monkeypatch.setattr(module, "launch", recorded)
    run = autograd.run

    def with_rehearsal(kernels, *given):
        autograd.rehearse(kernels, *given)
        return run(kernels, *given)

    monkeypatch.setattr(autograd, "run", with_rehearsal)
    logits, target, _ = inputs(mode, 40, 3)
    value = make_loss(name, backend="triton", **options).to(DEVICE)(logits.requires_grad_(), target)
    value.sum().backward()
    assert len(started[True]) >= 2
    assert started[True] == started[False]


def test_shapes_that_share_their_kernels_are_rehearsed_once(monkeypatch):
    from softf1.kernels import autograd

    forget_plans()
    rehearsed = []
    monkeypatch.setattr(autograd, "_rehearsed", set())
    monkeypatch.setattr(autograd, "compiling", lambda _: nullcontext())
    monkeypatch.setattr(autograd, "rehearse", lambda _, x, *__: rehearsed.append(x.shape))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for over, rows in product(("example", "batch"), (300, 301, 300, 302)):
        x, target, _ = inputs("softmax", rows, 9)
        lay_out = autograd.lay_out_example if over == "example" else autograd.lay_out_batch
        how = {} if over == "example" else {"micro": False}
        numbers = Numbers(1, 1, 1, 1.0, 1.0, 1.0, 1.0, -100)
        kernels = lay_out(x, target, None, None, numbers, "mean", **how)
        autograd.compile_both(kernels, OnGpu(x), target, None, None)
    assert rehearsed == [(300, 9), (300, 9)]


class OnGpu:
    """A tensor that says it is on a GPU."""

    is_cuda = True

    def __init__(self, x):
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device


COMPILED_AT_FIRST_USE = """
from threading import current_thread

import torch
from triton import knobs
from softf1.losses import make_loss

compiled = []

def note(*, src, **_):
    compiled.append(current_thread().name.startswith("ThreadPool"))

knobs.compilation.listener = note
for options in ({}, {"over": "batch"}):
    x = torch.randn(512, 9, device="cuda", requires_grad=True)
    make_loss("dsc", **options)(x, torch.zeros(512, dtype=torch.long, device="cuda")).backward()
    print(compiled)
    compiled.clear()
"""


@on_gpu
def test_threads_compile_forward_and_backward_at_the_first_step(tmp_path):
    """In a process of its own, which has compiled nothing yet."""
    said = subprocess.run(
        [sys.executable, "-c", COMPILED_AT_FIRST_USE],
        env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.splitlines() == ["[True, True]", "[True, True]"]


def test_a_linear_loss_at_batch_level_keeps_what_the_kernels_found_of_the_rows(monkeypatch):
    from softf1.kernels import _launch, batch_level, linear_loss

    if not CUDA:  # large tiles: the interpreter's time goes by their number
        tile = _launch.Tile(s=16, n=64, w=128, warps=4, programs=1)
        for name in ("statistics_tile", "batch_backward_tile"):
            monkeypatch.setattr(_launch, name, lambda *_: tile)
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        torch.randn(size, generator=generator).to(DEVICE).requires_grad_()
        for size in ((128, 4), (1_100, 4))
    )
    target = torch.randint(0, 1_100, (128,), generator=generator).to(DEVICE)
    started, partial_sums = [], batch_level.BatchLevel._partial_sums

    def recorded(self, x, *rest):
        if not x.is_meta:  # otherwise the kernels are only compiled
            started.append(len(x))
        return partial_sums(self, x, *rest)

    monkeypatch.setattr(batch_level.BatchLevel, "_partial_sums", recorded)
    loss = make_loss("dsc", over="batch", backend="triton")
    value = linear_loss(hidden, weight, target, loss, chunk_rows=64)
    assert started == [64, 64]  # a second pass over the chunks did not sum them up again
    got = torch.autograd.grad(value, (hidden, weight))
    expected = make_loss("dsc", over="batch", backend="torch")(hidden @ weight.T, target)
    torch.testing.assert_close(value, expected)
    for ours, theirs in zip(got, torch.autograd.grad(expected, (hidden, weight)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def calls_of(loss, monkeypatch):
    """Counts the calls of the loss's function, which a shortcut saves."""
    calls = []
    function = type(loss).function

    def counted(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(type(loss), "function", staticmethod(counted))
    return calls


@every_mode
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ce", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
        ("la", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
        ("focal", {"reduction": "sum"}),
        ("zlpr", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
        ("dsc", {"weight": [0.5, 1.0, 2.0, 0.25, 1.0], "exclude": []}),
        ("dice", {"over": "batch", "reduction": "none"}),
        ("tversky", {"over": "batch", "alpha": 0.2, "weight": [0.5, 1.0, 2.0, 0.25, 1.0]}),
    ],
)
def test_a_loss_goes_straight_to_its_kernels_where_it_has_been_before(
    name, options, mode, monkeypatch
):
    loss = make_loss(name, backend="triton", check_labels=False, **options).to(DEVICE)
    reference = make_loss(name, backend="torch", **options).to(DEVICE)
    calls = calls_of(loss, monkeypatch)
    kinds = [(9, torch.float32), (9, torch.bfloat16), (12, torch.float32)]
    for again in range(2):
        for seed, (n, dtype) in enumerate(kinds):
            logits, target, _ = inputs(mode, n, 5, dtype=dtype, seed=3 * again + seed)
            x, y = logits.clone().requires_grad_(), logits.clone().requires_grad_()
            value, expected = loss(x, target), reference(y, target)
            torch.testing.assert_close(value, expected, rtol=2e-5, atol=2e-6)
            value.sum().backward()
            expected.sum().backward()
            torch.testing.assert_close(x.grad, y.grad, rtol=TOLERANCE[dtype], atol=1e-5)
            with torch.no_grad():
                torch.testing.assert_close(loss(logits, target), expected, rtol=2e-5, atol=2e-6)
        ours = len([one for one in calls if one[0].requires_grad])
        assert ours == len(kinds) + (again + 1) * len(kinds)  # the reference has no shortcut


@every_mode
@pytest.mark.parametrize(
    ("name", "options"),
    [("ce", {}), ("zlpr", {"reduction": "sum"}), ("dice", {"over": "batch"})],
)
@pytest.mark.parametrize("leading", [(3, 4), (2, 3, 2)], ids=str)
def test_rows_of_several_axes_go_straight_to_the_kernels_too(
    name, options, leading, mode, monkeypatch
):
    loss = make_loss(name, backend="triton", check_labels=False, **options)
    reference = make_loss(name, backend="torch", **options)
    calls = calls_of(loss, monkeypatch)
    for seed in range(3):
        logits, target, _ = inputs(mode, 12, 5, seed=seed)
        x, y = (logits.view(*leading, 5).clone().requires_grad_() for _ in range(2))
        target = target.view(*leading, *target.shape[1:])
        value, expected = loss(x, target), reference(y, target)
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=2e-5, atol=2e-6)
        torch.testing.assert_close(x.grad, y.grad, rtol=2e-5, atol=1e-5)
    assert len(calls) == 1 + 3  # the reference has no shortcut


def test_shapes_that_do_not_fit_are_named_as_they_were_given():
    logits, target = torch.zeros(2, 3, 5, device=DEVICE), torch.zeros(2, 4, device=DEVICE)
    loss = make_loss("ce", backend="triton", check_labels=False)
    with pytest.raises(ValueError, match=r"got logits \(2, 3, 5\) and target \(2, 4\)"):
        loss(logits, target.long())
    for given, name in (((logits.tolist(), target), "logits"), ((logits, [0, 1]), "target")):
        with pytest.raises(TypeError, match=f"wanted {name} as a tensor, got list"):
            loss(*given)


@every_mode
@pytest.mark.parametrize("name", ["wce", "la"])
def test_weights_that_change_count_from_the_next_call_on(name, mode):
    logits, target, _ = inputs(mode, 9, 5)
    loss = make_loss(name, weight=[1.0] * 5, backend="triton", check_labels=False).to(DEVICE)
    x = logits.requires_grad_()
    for change in (lambda w: w[1].mul_(4.0), lambda w: w.data.mul_(w.data), lambda w: w[0].zero_()):
        loss(x, target)
        change(loss.weight)
        reference = make_loss(name, weight=loss.weight, backend="torch").to(DEVICE)
        torch.testing.assert_close(loss(x, target), reference(x, target), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("data", [False, True])
def test_new_weights_of_another_layout_are_read_as_they_are(data):
    logits, target, _ = inputs("softmax", 9, 5)
    loss = make_loss("wce", weight=[1.0] * 5, backend="triton", check_labels=False).to(DEVICE)

    def change(weight):
        if data:
            loss.weight.data = weight
        else:
            loss.weight = weight

    x, column = logits.requires_grad_(), torch.rand(5, 2, device=DEVICE)[:, 0] + 0.5
    loss(x, target)
    change(column)
    expected = make_loss("wce", weight=column, backend="torch")(x, target)
    torch.testing.assert_close(loss(x, target), expected, rtol=2e-5, atol=2e-6)
    change(torch.ones(4, device=DEVICE))
    with pytest.raises(ValueError, match="wanted one weight per class"):
        loss(x, target)


def test_no_shortcut_where_values_matter(monkeypatch):
    logits, target, mask = inputs("softmax", 9, 5)
    target[3] = 0
    cases = [
        ("ce", {"check_labels": True}, target, None),
        ("dice", {"check_labels": False}, target, mask),
        ("dice", {"check_labels": False, "reduction": "none"}, target, None),
    ]
    for name, options, labels, kept in cases:
        with monkeypatch.context() as patched:
            loss = make_loss(name, backend="triton", **options).to(DEVICE)
            calls = calls_of(loss, patched)
            for _ in range(3):
                loss(logits.requires_grad_(), labels, kept)
            assert len(calls) == 3
    loss = make_loss("ce", backend="triton", check_labels=True).to(DEVICE)
    loss(logits, target)
    if not CUDA:  # there it is an assertion of the device, which ends the process
        with pytest.raises(ValueError, match="wanted labels from 0 to 4"):
            loss(logits, target + 3)
    loss = make_loss("ce", backend="triton", check_labels=False)
    soft = torch.rand(9, 5, device=DEVICE)
    loss(logits, soft)
    with pytest.raises(ValueError, match="that require a gradient have the PyTorch form only"):
        loss(logits, soft.requires_grad_())


def test_a_loss_that_knows_its_kernels_is_copied_and_pickled_without_them():
    logits, target, _ = inputs("softmax", 9, 5)
    loss = make_loss("dsc", backend="triton", check_labels=False)
    expected = loss(logits.requires_grad_(), target)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert other.options == loss.options
        assert torch.equal(other(logits, target), expected)
    assert torch.equal(loss(logits, target), expected)


def test_ever_new_shapes_do_not_fill_the_memory(monkeypatch):
    from softf1.losses._dispatch import Shortcuts

    monkeypatch.setattr(Shortcuts, "MOST", 2)
    loss = make_loss("dice", backend="triton", check_labels=False)
    for n in (3, 4, 5, 6, 3):
        logits, target, _ = inputs("softmax", n, 3)
        expected = make_loss("dice", backend="torch")(logits, target)
        torch.testing.assert_close(loss(logits.requires_grad_(), target), expected)
        assert len(loss._shortcuts.known) <= 2


class Jaccard(NamedTuple):
    """A formula of another package, `q·y` over `q + y − q·y`."""

    false_positives: float = 1.0
    power: int = 1

    def overlap(self, q, y):
        return q * y

    def overlap_growth(self, q, y):
        return q * y

    def total(self, q, y):
        return q + y - q * y

    def total_growth(self, q, y):
        return q - q * y


@pytest.mark.parametrize("over", ["example", "batch"])
def test_a_formula_that_no_kernel_knows_has_the_pytorch_form(over, monkeypatch):
    from softf1.losses import _dispatch, _family

    logits, target, _ = inputs("softmax", 6, 4)
    expected = tversky_loss(logits, target, alpha=1.0, beta=1.0, over=over, backend="torch")

    def jaccard(**options):
        return _family.family_loss(logits, target, Jaccard(), {"over": over, **options})

    # As on a GPU: the kernels are chosen wherever nothing stands against them.
    choose = _dispatch.use_kernel
    chosen = []

    def on_a_gpu(logits, target, weight, *, backend, reduction, obstacle=None):
        chosen.append(obstacle is None if backend is None else backend == "triton")
        if backend is None:
            return obstacle is None
        return choose(
            logits, target, weight, backend=backend, reduction=reduction, obstacle=obstacle
        )

    monkeypatch.setattr(_family, "use_kernel", on_a_gpu)
    torch.testing.assert_close(jaccard(), expected)
    assert chosen == [False]
    with pytest.raises(ValueError, match=r"cannot run here: no kernel knows Jaccard"):
        jaccard(backend="triton")


class Compiled:
    """What Triton gives back for a kernel that it has started, as far as softf1 uses it."""

    function, packed_metadata = "function", "metadata"

    def __init__(self):
        self.starts = []

    def run(self, *arguments):
        self.starts.append(arguments)


@pytest.mark.parametrize("known", [True, False])
def test_only_known_versions_of_triton_are_started_by_their_private_interface(known, monkeypatch):
    from softf1.kernels import _launch

    compiled, public = Compiled(), []

    class Kernel:
        def __getitem__(self, grid):
            def start(*arguments, num_warps):
                public.append((grid, arguments, num_warps))
                return compiled

            return start

    stream = SimpleNamespace(get_current_stream=lambda _: "stream")
    driver = SimpleNamespace(active=stream)
    monkeypatch.setattr(_launch.triton.runtime, "driver", driver)
    monkeypatch.setattr(_launch, "DIRECT", known)
    x = torch.zeros(8)
    plan = _launch.Plan(Kernel(), (2, 1, 1), (8, 0.5), (True,), 4)
    for _ in range(3):
        _launch.launch(plan, x)
    _launch.launch(plan, x[1:])  # compiled for another alignment
    large = _launch.Plan(Kernel(), (2, 1, 1), (2**31, 0.5), (True,), 4)
    for _ in range(2):
        _launch.launch(large, x)
    assert len(public) == (4 if known else 6)
    assert public[0] == ((2, 1, 1), (x, 8, 0.5, True), 4)
    assert len(compiled.starts) == (2 if known else 0)
    for arguments in compiled.starts:
        assert arguments[:9] == (2, 1, 1, "stream", "function", "metadata", None, None, None)
        assert arguments[9:] == (x.data_ptr(), 8, 0.5, True)


def test_the_version_of_triton_decides_how_kernels_are_started():
    from softf1.kernels import _launch

    version = tuple(map(int, _launch.triton.__version__.split(".")[:2]))
    assert (_launch.DIRECT is True) == (CUDA and version in _launch.KNOWN)


@pytest.mark.parametrize("c", [3, 9])
def test_many_lines_of_partial_sums_are_finished_at_once_or_in_turn(c, monkeypatch):
    from softf1.kernels import _launch, batch_level

    tile = _launch.Tile(s=1, n=1, w=16, warps=1, programs=70)
    monkeypatch.setattr(_launch, "statistics_tile", lambda *_: tile)
    logits, target, mask = inputs("softmax", 90, c)
    for most in (2**14, 2**4):  # 70 lines at once, or 64 first
        forget_plans()
        monkeypatch.setattr(batch_level, "MOST_PARTIAL", most)
        compare("dice", {"over": "batch"}, logits, target, mask)
    forget_plans()


COMPILE = """
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from softf1.kernels import _launch
from softf1.kernels._numbers import Numbers
from softf1.kernels.batch_level import lay_out_batch
from softf1.kernels.example_level import lay_out_example

_launch.processors = lambda _: 132
PAPER = Numbers(1, 1, 2, 0.3, 1.0, 1.0, 1.0, -100)
HALF, WHOLE, FLOAT, COUNT = "*bf16", "*i64", "*fp32", "*i32"


def compile_for_h100(plan, *tensors):
    values = dict(zip(plan.kernel.arg_names, (*tensors, *plan.arguments), strict=True))
    constants = {one.name: values[one.name] for one in plan.kernel.params if one.is_constexpr}
    signature = {
        name: value if isinstance(value, str) else "fp32" if isinstance(value, float) else "i32"
        for name, value in values.items()
    } | dict.fromkeys(constants, "constexpr")
    attributes = {(i,): [["tt.divisibility", 16]] for i in range(len(tensors))}
    source = ASTSource(plan.kernel, signature, constants, attributes)
    target = GPUTarget("cuda", 90, 32)
    triton.compile(source, target=target, options={"num_warps": plan.warps})
    print(plan.kernel.__name__)


x = torch.empty(64, 20, dtype=torch.bfloat16, device="meta")
y = torch.empty(64, dtype=torch.int64, device="meta")
batch = lay_out_batch(x, y, None, None, PAPER, "mean", micro=False)
for smooth in (0.0, 1.0):
    example = lay_out_example(x, y, None, None, PAPER._replace(smooth=smooth), "mean")
    compile_for_h100(example.both, HALF, WHOLE, HALF, HALF, FLOAT, COUNT, FLOAT, HALF)
compile_for_h100(example.check, HALF, WHOLE, HALF, FLOAT, FLOAT, HALF)
compile_for_h100(batch.sums[0], HALF, WHOLE, HALF, HALF, FLOAT, FLOAT, COUNT, FLOAT)
compile_for_h100(batch.backward, HALF, WHOLE, FLOAT, FLOAT, FLOAT, HALF)

ADJUSTED = Numbers(0, 1, 0, 0.0, 1.0, 1.0, 0.0, -100)
for c, labels in ((20, y), (9_000, y), (20, x)):
    x, weight = x.new_empty(64, c), torch.empty(c, device="meta")
    adjusted = lay_out_example(x, labels, None, weight, ADJUSTED, "none" if c > 20 else "mean")
    kind = HALF if labels.dim() == 2 else WHOLE
    compile_for_h100(adjusted.first, HALF, kind, HALF, FLOAT, FLOAT, COUNT, FLOAT, HALF)
    mask = (HALF,) * (labels.dim() - 1)
    compile_for_h100(adjusted.backward, HALF, kind, *mask, FLOAT, FLOAT, FLOAT, HALF)

for labels in (y, torch.empty(64, 20, device="meta")):
    x = torch.empty(64, 20, dtype=torch.bfloat16, device="meta")
    numbers = Numbers(3, 1, 0, 0.5, 1.0, 1.0, 0.0, -100)
    zlpr = lay_out_example(x, labels, None, None, numbers, "mean")
    kind = FLOAT if labels.dim() == 2 else WHOLE
    compile_for_h100(zlpr.forward, HALF, kind, HALF, HALF, FLOAT, COUNT, FLOAT, HALF)
    compile_for_h100(zlpr.backward, HALF, kind, HALF, HALF, FLOAT, FLOAT, HALF)
"""


@pytest.mark.slow
def test_the_kernels_compile_for_a_gpu_that_is_not_here():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-c", COMPILE]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2_000:]
    assert run.stdout.split() == [
        *("softmax_example_forward_kernel",) * 2,
        "softmax_example_backward_kernel",
        "softmax_batch_statistics_kernel",
        "softmax_batch_backward_kernel",
        "softmax_example_forward_kernel",
        "softmax_example_backward_kernel",
        "softmax_example_long_forward_kernel",
        "softmax_example_backward_kernel",
        "sigmoid_example_forward_kernel",
        "sigmoid_example_backward_kernel",
        *("zlpr_forward_kernel", "zlpr_backward_kernel") * 2,
    ]


@on_gpu
def test_the_kernel_is_chosen_on_the_gpu():
    logits, target, _ = inputs("softmax", 9, 5)
    with torch.profiler.profile(acc_events=True) as profile:
        make_loss("dsc")(logits.requires_grad_(), target).backward()
    names = {event.key for event in profile.key_averages()}
    assert {"softmax_example_forward_kernel", "softmax_example_backward_kernel"} <= names


@on_gpu
@pytest.mark.parametrize("over", ["example", "batch"])
@pytest.mark.parametrize("c", [40_000, 131_072])
def test_very_many_classes(over, c):
    for name, options in (("dice", {}), ("dsc", {"alpha": 0.3, "decay": "paper"})):
        logits, target, mask = inputs("softmax", 5, c, dtype=torch.bfloat16)
        compare(name, options | {"over": over}, logits, target, mask)


@on_gpu
@pytest.mark.parametrize("over", ["example", "batch"])
@pytest.mark.parametrize("c", [9_001, 32_768])
def test_many_rows_of_many_classes(over, c):
    for name, options in (("dice", {}), ("dsc", {"decay": "paper"})):
        logits, target, mask = inputs("softmax", 700, c, dtype=torch.bfloat16)
        compare(name, options | {"over": over}, logits, target, mask)


@on_gpu
def test_more_entries_than_32_bits_count():
    n, c = 2**31 // 4_096 + 64, 4_096
    logits = torch.empty(n, c, device=DEVICE, dtype=torch.bfloat16).normal_()
    target = torch.randint(0, c, (n,), device=DEVICE)
    for over in ("example", "batch"):
        x = logits.requires_grad_()
        values = make_loss("dice", over=over)(x, target)
        values.backward()
        tail = x.grad[-64:]
        if over == "example":
            y = logits.detach()[-64:].requires_grad_()
            make_loss("dice", backend="torch", reduction="sum")(y, target[-64:]).backward()
            torch.testing.assert_close(tail.float() * n, y.grad.float(), rtol=2e-2, atol=1e-4)
        assert torch.isfinite(tail).all()
        x.grad = None


@on_gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
@pytest.mark.parametrize("over", ["example", "batch"])
def test_compiled_captured_and_under_autocast(over):
    logits, target, _ = inputs("softmax", 64, 9)
    loss = make_loss("dsc", over=over, backend="triton")
    compiled = torch.compile(loss, fullgraph=True)
    expected = compare("dsc", {"over": over}, logits, target, gradient_of=torch.tensor(1.0))
    x = logits.clone().requires_grad_()
    compiled(x, target).backward()
    torch.testing.assert_close(x.grad, expected, rtol=1e-4, atol=1e-6)
    static = logits.clone().requires_grad_()
    for _ in range(3):
        static.grad = None
        loss(static, target).backward()
    graph = torch.cuda.CUDAGraph()
    static.grad = None
    with torch.cuda.graph(graph):
        loss(static, target).backward()
    with torch.no_grad():
        static.copy_(logits.flip(0))
    graph.replay()
    flipped = compare("dsc", {"over": over}, logits.flip(0), target, gradient_of=torch.tensor(1.0))
    torch.testing.assert_close(static.grad, flipped, rtol=1e-4, atol=1e-6)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert loss(logits, target).dtype == torch.float32


@every_mode
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("la", {"weight": [0.5, 1.0, 0.0, 0.25, 1.0]}),
        ("dsc", {}),
        ("dsc", {"over": "batch"}),
    ],
)
def test_operators_of_a_compiled_loss(name, options, mode):
    torch._dynamo.reset()
    loss = make_loss(name, backend="triton", **options).to(DEVICE)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    check_compiled(compiled, name, options, mode, shapes=((9, 5), (12, 5), (7, 5)))


@every_mode
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
@pytest.mark.parametrize("over", ["example", "batch"])
def test_a_compiled_loss_takes_any_number_of_rows_and_classes(over, mode):
    torch._dynamo.reset()
    loss = make_loss("dsc", over=over, backend="triton")
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    check_compiled(compiled, "dsc", {"over": over}, mode, shapes=((9, 5), (12, 5), (12, 6)))


def check_compiled(compiled, name, options, mode, shapes):
    """A compiled loss has the gradient of the PyTorch form at each shape."""
    for n, c in shapes:
        logits, target, _ = inputs(mode, n, c, seed=n)
        x = logits.clone().requires_grad_()
        (3 * compiled(x, target)).backward()
        expected = compare(name, options, logits, target, gradient_of=torch.tensor(3.0))
        torch.testing.assert_close(x.grad, expected, rtol=1e-4, atol=1e-6)


@on_gpu
def test_two_runs_are_equal_to_the_bit():
    logits, target, _ = inputs("softmax", 5_000, 33)
    for over in ("example", "batch"):
        values = {
            make_loss("dsc", over=over, backend="triton")(logits, target).item() for _ in range(20)
        }
        assert len(values) == 1


@on_gpu
def test_no_temporary_of_rows_by_classes():
    n, c = 4_096, 4_096
    logits = torch.randn(n, c, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    target = torch.randint(0, c, (n,), device=DEVICE)
    losses = [("ce", {}), ("la", fit({"weight": []}, c)), ("dsc", {}), ("dsc", {"over": "batch"})]
    for name, options in losses:
        logits.grad = None
        loss = make_loss(name, **options).to(DEVICE)
        loss(logits, target).backward()
        logits.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        loss(logits, target).backward()
        torch.cuda.synchronize()
        extra = torch.cuda.max_memory_allocated() - before - logits.nbytes
        lines = torch.cuda.get_device_properties(0).multi_processor_count
        assert extra < 64 * (n + c) + 16 * lines * c


@pytest.mark.parametrize("over", ["example", "batch"])
def test_batches_of_many_lengths_share_their_kernels(over, monkeypatch):
    """A kernel is compiled for each set of constants: sentences of 8 and of 120 are to share it."""
    from softf1.kernels import _launch, batch_level, example_level
    from softf1.kernels._numbers import Numbers

    monkeypatch.setattr(_launch, "processors", lambda _: 132)
    dice, compiled = Numbers(1, 2, 0, 0.0, 1.0, 1.0, 1.0, -100), set()
    for rows in range(32 * 8, 32 * 128, 32 * 4):
        x, target = torch.empty(rows, 11), torch.empty(rows, dtype=torch.long)
        if over == "example":
            laid_out = example_level.lay_out_example(x, target, None, None, dice, "mean")
            plans = [laid_out.both, laid_out.check]
        else:
            laid_out = batch_level.lay_out_batch(x, target, None, None, dice, "mean", micro=False)
            plans = [*laid_out.sums, laid_out.backward]
        for plan in plans:
            names = plan.kernel.arg_names[-len(plan.arguments) :]
            given = zip(names, plan.arguments, strict=True)
            constants = [(name, one) for name, one in given if name.isupper()]
            compiled.add((plan.kernel.fn.__name__, plan.warps, *constants))
    assert len(compiled) == len(plans)
