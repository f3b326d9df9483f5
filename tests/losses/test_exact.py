"""Whatever the cut into micro-batches: value and gradient of the whole batch."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from softf1.losses import WindowLoss, backward_exact, make_loss
from softf1.losses._module import LossModule
from tests.losses.cases import WEIGHT, batch, build, every_case, every_mode, is_batch_level

CUTS = (0, 1, 1, 2, 5, 5, 6, 9, 12)  # 8 micro-batches; two are empty, the second of the others
# (row 1, ignored for softmax) has nothing to count


def has_ohem(_name, options):
    return "ohem_ratio" in options


def whole(loss, logits, target, mask=None):
    x = logits.clone().requires_grad_()
    value = loss(x, target, mask)
    value.backward()
    return value.detach(), x.grad


def in_parts(window, logits, target, mask=None, cuts=CUTS):
    x = logits.clone().requires_grad_()
    mask = torch.ones(target.shape[0]) if mask is None else mask
    parts = [slice(*ends) for ends in pairwise(cuts)]
    value = backward_exact(window, lambda rows: (x[rows], target[rows], mask[rows]), parts)
    return value, x.grad


def relative_error(got, wanted):
    return ((got - wanted).norm() / wanted.norm()).item()


@every_mode
@every_case(but=has_ohem)
def test_micro_batches_give_value_and_gradient_of_the_batch(name, options, mode):
    logits, target = batch(mode, n=12)
    mask = torch.tensor([True] * 7 + [False] + [True] * 4)
    loss = build(name, options)
    value, gradient = whole(loss, logits, target, mask)
    got, got_gradient = in_parts(WindowLoss(loss), logits, target, mask)
    assert not got.requires_grad
    torch.testing.assert_close(got, value, rtol=1e-12, atol=0)
    assert relative_error(got_gradient, gradient) < 1e-12


@every_mode
@every_case(but=is_batch_level)
def test_a_mean_over_rows_needs_no_forward_in_the_first_pass(name, options, mode):
    logits, target = batch(mode, n=12)
    loss = build(name, options)
    value, gradient = whole(loss, logits, target)
    window, x = WindowLoss(loss), logits.clone().requires_grad_()
    assert not window.needs_logits
    parts = [slice(*ends) for ends in pairwise(CUTS)]
    for rows in parts:
        window.collect_counts(target[rows], x[rows].shape)
    window.reduce()
    for rows in parts:
        window(x[rows], target[rows]).backward()
    torch.testing.assert_close(window.finish(), value, rtol=1e-6, atol=0)
    assert relative_error(x.grad, gradient) < 1e-6


def test_a_ratio_of_sums_needs_the_logits():
    window = WindowLoss(make_loss("ce+dice", dice={"over": "batch"}))
    assert window.needs_logits
    with pytest.raises(RuntimeError, match="needs the logits"):
        window.collect_counts(torch.zeros(3, dtype=torch.long), (3, 2))


@every_mode
@every_case(but=has_ohem)
def test_in_float32_the_error_is_rounding(name, options, mode):
    logits, target = batch(mode, n=12, dtype=torch.float32)
    loss = build(name, options)
    value, gradient = whole(loss, logits, target)
    got, got_gradient = in_parts(WindowLoss(loss), logits, target)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, value)
    assert relative_error(got_gradient, gradient) < 1e-5


@every_mode
@every_case(but=lambda *case: not has_ohem(*case))
def test_ohem_is_refused(name, options, mode):  # noqa: ARG001 — one mode would do
    with pytest.raises(ValueError, match="ohem_ratio is refused here"):
        WindowLoss(build(name, options))


@every_mode
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ce", {"weight": WEIGHT}),
        ("dice", {"weight": WEIGHT}),
        ("dice", {"over": "batch", "weight": WEIGHT, "exclude": (1,)}),
        ("dsc", {"over": "batch", "average": "micro", "weight": WEIGHT, "exclude": (1,)}),
        ("ce+tversky", {"tversky": {"over": "batch", "average": "micro", "exclude": (0,)}}),
        ("dice+dsc+ce", {"dsc": {"over": "batch"}, "dice": {"over": "batch", "squared": False}}),
    ],
)
def test_sums_and_weights_too(name, options, mode):
    logits, target = batch(mode, n=12)
    for reduction in ("mean", "sum"):
        loss = make_loss(name, reduction=reduction, **options)
        value, gradient = whole(loss, logits, target)
        got, got_gradient = in_parts(WindowLoss(loss), logits, target)
        torch.testing.assert_close(got, value, rtol=1e-12, atol=0)
        assert relative_error(got_gradient, gradient) < 1e-12


@pytest.mark.parametrize("cuts", [range(0, 13, 3), range(0, 13, 6)])
@pytest.mark.parametrize("name", ["dice", "tversky", "dsc"])
def test_the_mean_of_micro_batches_is_something_else(name, cuts):
    logits, target = batch("sigmoid", n=12)
    loss = make_loss(name, over="batch")
    _, gradient = whole(loss, logits, target)
    parts = [whole(loss, logits[a:b], target[a:b])[1] for a, b in pairwise(cuts)]
    assert relative_error(torch.cat(parts) / len(parts), gradient) > 0.05
    assert relative_error(in_parts(WindowLoss(loss), logits, target, cuts=cuts)[1], gradient) < 1e-9


def test_the_mean_of_micro_batches_is_wrong_for_cross_entropy_when_padding_is_uneven():
    logits, target = batch("softmax", n=12)
    target[8:] = -100
    loss = make_loss("ce")
    _, gradient = whole(loss, logits, target)
    parts = [whole(loss, logits[a : a + 6], target[a : a + 6])[1] for a in (0, 6)]
    assert relative_error(torch.cat(parts) / 2, gradient) > 0.1
    assert relative_error(in_parts(WindowLoss(loss), logits, target)[1], gradient) < 1e-12


def test_every_call_has_the_value_of_the_window_and_scales_with_what_comes_in():
    logits, target = batch("softmax", n=12)
    loss = make_loss("dsc", over="batch")
    value, gradient = whole(loss, logits, target)
    window = WindowLoss(loss)
    x = logits.clone().requires_grad_()
    for rows in (slice(0, 5), slice(5, 12)):
        window.collect(x[rows], target[rows])
    window.reduce()
    for rows in (slice(0, 5), slice(5, 12)):
        part = window(x[rows], target[rows])
        torch.testing.assert_close(part.detach(), value)
        (3 * part).backward()
    window.finish()
    torch.testing.assert_close(x.grad, 3 * gradient)


def test_a_schedule_moves_between_windows():
    logits, target = batch("softmax", n=12)
    loss = make_loss("ce+dice", dice={"over": "batch"}, schedule="linear", schedule_steps=4)
    window = WindowLoss(loss)
    for _ in range(5):
        value, gradient = whole(loss, logits, target)
        got, got_gradient = in_parts(window, logits, target)
        torch.testing.assert_close(got, value, rtol=1e-6, atol=0)  # the shares are float32
        assert relative_error(got_gradient, gradient) < 1e-6
        loss.advance()


def test_the_padded_length_may_differ_between_micro_batches():
    generator = torch.Generator().manual_seed(0)
    lengths = (5, 9, 7)  # softmax over positions: one text's classes are not another's
    texts = [torch.randn(2, n, generator=generator, dtype=torch.float64) for n in lengths]
    targets = [torch.tensor([1, n - 1]) for n in lengths]
    loss = make_loss("ce+dice")
    padded = torch.cat([nn.functional.pad(x, (0, 9 - x.shape[1]), value=-torch.inf) for x in texts])
    _, gradient = whole(loss, padded, torch.cat(targets))
    leaves = [x.requires_grad_() for x in texts]
    backward_exact(WindowLoss(loss), lambda pair: pair, list(zip(leaves, targets, strict=True)))
    for x, own in zip(leaves, gradient.split(2), strict=True):
        torch.testing.assert_close(x.grad, own[:, : x.shape[1]])


class Tagger(nn.Module):
    """Two layers with dropout between; float64."""

    def __init__(self, rate=0.5, classes=4):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Linear(6, 16), nn.Dropout(rate), nn.Tanh(), nn.Dropout(rate), nn.Linear(16, classes)
        ).double()

    def forward(self, x):
        return self.body(x)


def gradients(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def tagging_batches(sizes=(3, 1, 5, 2, 4, 1, 6, 2)):
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(n, 6, generator=generator, dtype=torch.float64),
            torch.randint(0, 4, (n,), generator=generator),
        )
        for n in sizes
    ]


def test_both_passes_see_the_same_dropout():
    model, batches = Tagger(), tagging_batches()
    plain, window = make_loss("dice", over="batch"), WindowLoss(make_loss("dice", over="batch"))
    torch.manual_seed(7)  # the whole batch, with the masks that each micro-batch draws
    logits = torch.cat([model(x) for x, _ in batches])
    value = plain(logits, torch.cat([y for _, y in batches]))
    value.backward()
    after, wanted = torch.get_rng_state(), gradients(model)
    model.zero_grad()
    torch.manual_seed(7)
    got = backward_exact(window, lambda pair: (model(pair[0]), pair[1]), batches)
    torch.testing.assert_close(got, value.detach(), rtol=1e-12, atol=0)
    assert relative_error(gradients(model), wanted) < 1e-12
    assert window.mismatch == 0
    assert torch.equal(torch.get_rng_state(), after)  # as if there had been one pass


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_on_a_gpu_dropout_is_the_same_and_nothing_waits_for_the_device():
    model = Tagger().cuda()
    batches = [(x.cuda(), y.cuda()) for x, y in tagging_batches()]
    window = WindowLoss(make_loss("ce+dice", dice={"over": "batch"}, check_labels=False)).cuda()
    torch.cuda.manual_seed(7)
    logits = torch.cat([model(x) for x, _ in batches])
    window.loss(logits, torch.cat([y for _, y in batches])).backward()
    wanted = gradients(model)
    model.zero_grad()
    torch.cuda.manual_seed(7)
    torch.cuda.set_sync_debug_mode("error")
    try:
        backward_exact(window, lambda pair: (model(pair[0]), pair[1]), batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert window.mismatch == 0
    assert relative_error(gradients(model), wanted) < 1e-9


def test_without_replay_the_passes_differ_and_the_window_says_so():
    model, batches = Tagger(), tagging_batches()
    window = WindowLoss(make_loss("dice", over="batch"))
    for x, y in batches:
        window.collect(model(x), y)
    window.reduce()
    for x, y in batches:
        window(model(x), y).backward()
    window.finish()
    assert window.mismatch > 1e-3


def test_one_autocast_around_both_passes_loses_no_gradient():
    model, batches = Tagger(rate=0.0).float(), tagging_batches()
    window = WindowLoss(make_loss("dice", over="batch"))

    def forward(pair):
        return model(pair[0].float()), pair[1]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        backward_exact(window, forward, batches)
    inside = gradients(model)
    model.zero_grad()
    backward_exact(window, forward, batches)
    assert relative_error(inside, gradients(model)) < 0.05  # bfloat16 has 8 bits


def test_no_sync_is_entered_for_all_but_the_last_micro_batch():
    entered, backwards = [], []

    class NoSync:
        def __enter__(self):
            entered.append(len(backwards))

        def __exit__(self, *_):
            pass

    model, batches = Tagger(rate=0.0), tagging_batches((2, 3, 1))
    backward_exact(
        WindowLoss(make_loss("ce")),
        lambda pair: (model(pair[0]), pair[1]),
        iter(batches),
        backward=lambda loss: backwards.append(loss.backward()),
        no_sync=NoSync,
    )
    assert entered == [0, 1]
    assert len(backwards) == 3


def test_running_statistics_are_exact_in_the_first_window_and_where_nothing_moves():
    logits, target = batch("softmax", n=12)
    loss = make_loss("ce+dice", dice={"over": "batch", "exclude": (0,)})
    window = WindowLoss(loss, statistics="running")
    value, gradient = whole(loss, logits, target)
    for _ in range(3):
        got, got_gradient = in_parts(window, logits, target)
        assert not window.needs_statistics
        torch.testing.assert_close(got, value, rtol=1e-12, atol=0)
        assert relative_error(got_gradient, gradient) < 1e-12


def test_running_statistics_are_a_bias_corrected_average():
    loss = make_loss("dice", over="batch", squared=False, smooth=0.0)
    window = WindowLoss(loss, statistics="running", decay=0.5)
    # p = ½: overlap 2·p·y, total p + y: the first window (1, 1.5), the second (0, 0.5)
    for target in ([1], [0]):
        in_parts(window, torch.zeros(1, 1), torch.tensor(target), cuts=(0, 1))
    x = torch.zeros(1, 1, requires_grad=True)
    part = window(x, torch.tensor([1]))
    part.backward()
    # (½·(1, 1.5) + (0, 0.5)) / (½ + 1) = (⅓, 5/6): loss 1 − ⅓ / ⅚ = 0.6
    assert part.item() == pytest.approx(0.6)
    # dL/doverlap = −6/5, dL/dtotal = ⅓·(6/5)² = 0.48; doverlap/dx = 2·¼, dtotal/dx = ¼
    assert x.grad.item() == pytest.approx(-1.2 * 0.5 + 0.48 * 0.25)
    # and the value for logging is of this window alone: 1 − 1 / 1.5
    assert window.finish().item() == pytest.approx(1 / 3)


def test_running_statistics_survive_a_checkpoint(tmp_path):
    logits, target = batch("softmax", n=12)
    loss = make_loss("ce+dice", dice={"over": "batch"}, schedule="linear", schedule_steps=9)
    window = WindowLoss(loss, statistics="running")
    for _ in range(2):
        in_parts(window, logits, target)
        loss.advance()
    torch.save(window.state_dict(), tmp_path / "window.pt")
    again = WindowLoss(copy.deepcopy(loss), statistics="running")
    again.load_state_dict(torch.load(tmp_path / "window.pt", weights_only=True))
    expected = in_parts(window, logits.flip(0), target)
    assert not again.needs_statistics
    for got, wanted in zip(in_parts(again, logits.flip(0), target), expected, strict=True):
        assert torch.equal(got, wanted)


def test_an_exact_window_keeps_nothing_from_one_window_to_the_next():
    window = WindowLoss(make_loss("dice", over="batch"))
    for seed in range(3):
        logits, target = batch("softmax", n=12, seed=seed)
        _, gradient = whole(window.loss, logits, target)
        assert relative_error(in_parts(window, logits, target)[1], gradient) < 1e-12
        assert window.needs_statistics
    assert window.state_dict()["_extra_state"].numel() == 0
    running = WindowLoss(window.loss, statistics="running")
    in_parts(running, logits, target)
    window.load_state_dict(running.state_dict())
    assert window.needs_statistics


def test_a_window_that_broke_off_is_forgotten():
    logits, target = batch("softmax", n=12)
    window = WindowLoss(make_loss("dice", over="batch"))
    with pytest.raises(ValueError, match="wanted labels"):
        in_parts(window, logits, torch.where(torch.arange(12) == 11, 9, target))
    _, gradient = whole(window.loss, logits, target)
    assert relative_error(in_parts(window, logits, target)[1], gradient) < 1e-12


def test_steps_out_of_order_raise():
    logits, target = batch("softmax")
    window = WindowLoss(make_loss("ce"))
    with pytest.raises(RuntimeError, match="collect"):
        window(logits, target)
    with pytest.raises(RuntimeError, match="at least one micro-batch"):
        window.reduce()
    with pytest.raises(RuntimeError, match="all 0 collected micro-batches"):
        window.finish()
    window.collect(logits, target)
    window.collect(logits, target)
    window.reduce()
    window(logits, target)
    with pytest.raises(RuntimeError, match=r"all 2 collected micro-batches .* got 1"):
        window.finish()


def test_a_loss_that_knows_no_sums_is_not_taken_at_its_word():
    def mean_only(logits, target, *, mask=None, weight=None, reduction="mean"):  # noqa: ARG001
        return nn.functional.cross_entropy(logits, target)

    class MeanOnly(LossModule):
        function = staticmethod(mean_only)

    with pytest.raises(TypeError, match=r"MeanOnly gave \(\) for .*wanted \(2, K\)"):
        WindowLoss(MeanOnly()).collect(*batch("softmax"))


def test_what_has_no_sums_is_refused():
    with pytest.raises(TypeError, match=r"a loss of softf1\.losses.*got MSELoss"):
        WindowLoss(nn.MSELoss())
    with pytest.raises(ValueError, match=r"reduction=.mean. or .sum..*got .none."):
        WindowLoss(make_loss("ce", reduction="none"))
    with pytest.raises(ValueError, match=r"statistics.*got 'none'"):
        WindowLoss(make_loss("ce"), statistics="none")
    with pytest.raises(ValueError, match="decay"):
        WindowLoss(make_loss("ce"), statistics="running", decay=1.0)
    with pytest.raises(ValueError, match='reduction="sums" is refused'):
        make_loss("ce+dice", reduction="sums")
