"""Smooth AP and partial AUC: what they mean, against plain loops over all pairs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from softf1.losses import WindowLoss, make_loss, partial_auc_loss, smooth_ap_loss
from softf1.losses import _ranking as ranking
from softf1.losses.pauc import differentiate_pairs
from softf1.losses.smooth_ap import differentiate_precision

RANKINGS = ["smooth_ap", "pauc"]


def log_odds(row, c):
    others = [x for j, x in enumerate(row) if j != c]
    if len(row) == 1:
        return row[0]
    top = max(others)
    if top == -math.inf:
        return None  # alone in its row
    return row[c] - top - math.log(sum(math.exp(x - top) for x in others))


def lists(logits, target, mask):
    """For each class the scores of its positives, and of its negatives."""
    found = [([], []) for _ in logits[0]]
    for i, row in enumerate(logits):
        if mask is not None and not mask[i]:
            continue
        for c, (positives, negatives) in enumerate(found):
            sigmoid = isinstance(target[i], list)
            label = target[i][c] if sigmoid else target[i]
            if label == -100 or row[c] == -math.inf:
                continue
            score = row[c] if sigmoid else log_odds(row, c)
            if score is None:
                continue
            is_positive = label >= 0.5 if sigmoid else label == c
            (positives if is_positive else negatives).append(score)
    return found


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def smooth_ap(positives, negatives, tau=1.0):
    total = 0.0
    for i, own in enumerate(positives):
        right = sum(sigmoid((x - own) / tau) for j, x in enumerate(positives) if j != i)
        wrong = sum(sigmoid((x - own) / tau) for x in negatives)
        total += 1 - (1 + right) / (1 + right + wrong)
    return total / len(positives)


def pauc(positives, negatives, max_fpr=0.3):
    hardest = sorted(negatives, reverse=True)[: math.ceil(max_fpr * len(negatives))]
    costs = [math.log1p(math.exp(n - p)) for p in positives for n in hardest]
    return sum(costs) / len(costs)


def expected(value, logits, target, mask, weight, exclude):
    total = weights = 0.0
    for c, (positives, negatives) in enumerate(lists(logits, target, mask)):
        if positives and negatives and c not in exclude:
            w = 1.0 if weight is None else weight[c]
            total, weights = total + w * value(positives, negatives), weights + w
    return total / weights if weights else 0.0


@st.composite
def batches(draw):
    n, classes = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    logit = st.one_of(st.floats(-30, 30, width=32), st.just(-math.inf))
    logits = draw(
        st.lists(st.lists(logit, min_size=classes, max_size=classes), min_size=n, max_size=n)
    )
    if classes == 1 or draw(st.booleans()):
        row = st.lists(st.sampled_from([0, 1, -100]), min_size=classes, max_size=classes)
    else:
        row = st.sampled_from([*range(classes), -100])
    weight = st.none() | st.lists(st.floats(0.125, 5, width=32), min_size=classes, max_size=classes)
    return {
        "logits": logits,
        "target": draw(st.lists(row, min_size=n, max_size=n)),
        "mask": draw(st.none() | st.lists(st.booleans(), min_size=n, max_size=n)),
        "weight": draw(weight),
        "exclude": draw(st.sets(st.integers(0, classes - 1), max_size=classes - 1)),
    }


@settings(max_examples=150, deadline=None)
@given(batch=batches(), tau=st.sampled_from([0.1, 1.0]), max_fpr=st.sampled_from([0.1, 0.3, 1.0]))
def test_both_equal_loops_over_all_pairs(batch, tau, max_fpr):
    x = torch.tensor(batch["logits"], dtype=torch.float64, requires_grad=True)
    mask = None if batch["mask"] is None else torch.tensor(batch["mask"])
    given_ = {"mask": mask, "weight": batch["weight"], "exclude": sorted(batch["exclude"])}
    ways = [
        (smooth_ap_loss, {"tau": tau}, lambda p, n: smooth_ap(p, n, tau)),
        (partial_auc_loss, {"max_fpr": max_fpr}, lambda p, n: pauc(p, n, max_fpr)),
    ]
    for function, option, value in ways:
        got = function(x, torch.tensor(batch["target"]), **option, **given_)
        assert got.item() == pytest.approx(expected(value, **batch), rel=1e-9, abs=1e-9)
        (gradient,) = torch.autograd.grad(got, x)
        assert torch.isfinite(gradient).all()


def test_a_small_tau_is_average_precision():
    # From the top: + − + − −: precision 1/1 at the first positive, 2/3 at the second.
    logits = torch.tensor([[5.0], [4.0], [3.0], [2.0], [1.0]])
    target = torch.tensor([1, 0, 1, 0, 0])
    loss = smooth_ap_loss(logits, target, tau=0.01)
    assert loss.item() == pytest.approx(1 - (1 + 2 / 3) / 2)


def test_the_loss_falls_as_a_positive_rises_and_as_a_negative_sinks():
    target = torch.tensor([1, 0, 1, 0])
    for name in RANKINGS:
        x = torch.tensor([[0.5], [1.0], [-1.0], [0.0]], requires_grad=True)
        make_loss(name, **({"max_fpr": 1.0} if name == "pauc" else {}))(x, target).backward()
        assert (x.grad.squeeze(1).sign() == torch.tensor([-1.0, 1.0, -1.0, 1.0])).all()


def test_only_the_order_counts():
    logits, target = torch.randn(20, 1, dtype=torch.float64), torch.arange(20) % 3 == 0
    for name in RANKINGS:
        loss = make_loss(name)
        torch.testing.assert_close(loss(logits + 7.0, target), loss(logits, target))


def test_only_the_hardest_negatives_are_pushed():
    x = torch.tensor([[0.0], [3.0], [2.0], [1.0], [-1.0]], requires_grad=True)
    target = torch.tensor([1, 0, 0, 0, 0])
    partial_auc_loss(x, target, max_fpr=0.5).backward()
    assert (x.grad.squeeze(1) > 0).tolist() == [False, True, True, False, False]
    assert x.grad[3] == x.grad[4] == 0


def test_two_softmax_classes_are_one_logit():
    logits, target = torch.randn(30, 2, dtype=torch.float64), torch.arange(30) % 4 == 0
    for name in RANKINGS:
        loss = make_loss(name, exclude=(0,))
        odds = logits[:, 1:] - logits[:, :1]
        torch.testing.assert_close(loss(logits, target.long()), make_loss(name)(odds, target))


@pytest.mark.parametrize("name", RANKINGS)
@pytest.mark.parametrize("label", [0, 1])
def test_without_positives_or_without_negatives_there_is_nothing_to_rank(name, label):
    x = torch.randn(6, 1, requires_grad=True)
    value = make_loss(name)(x, torch.full((6,), label))
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()


class Largest(TorchDispatchMode):
    """The most elements that any tensor has."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else [out]:
            if isinstance(one, torch.Tensor):
                self.elements = max(self.elements, one.numel())
        return out


@pytest.mark.parametrize("operator", [differentiate_precision, differentiate_pairs])
def test_no_tensor_has_the_size_of_all_pairs(operator, monkeypatch):
    rows, found = 1000, {}
    scores, positive = torch.randn(rows, 1), (torch.arange(rows) % 2 == 0).unsqueeze(1)
    for chunk in (20_000, 2**30):
        monkeypatch.setattr(ranking, "CHUNK", chunk)
        with Largest() as largest:  # what is inside of the operator
            _, slopes = operator._init_fn(scores, positive, ~positive, 1.0, rows)
        found[chunk] = largest.elements, slopes
    assert rows <= found[20_000][0] <= 20_000
    assert found[2**30][0] >= 500 * 500  # so all pairs at once would be noticed
    torch.testing.assert_close(found[20_000][1], found[2**30][1])


@pytest.mark.parametrize("name", RANKINGS)
def test_where_the_host_may_not_look_the_result_is_the_same(name, monkeypatch):
    logits = torch.randn(40, 3, dtype=torch.float64)
    target = torch.arange(40) % 3
    loss, results = make_loss(name), []
    for reads in (True, False):
        if not reads:
            monkeypatch.setattr(ranking, "can_read", lambda _: False)
        for labels in (target, torch.nn.functional.one_hot(target, 3)):
            x = logits.clone().requires_grad_()
            value = loss(x, labels)
            value.backward()
            results.append((value.detach(), x.grad))
    torch.testing.assert_close(results[0], results[2])
    torch.testing.assert_close(results[1], results[3])


def test_bad_options_are_refused():
    logits, target = torch.zeros(2, 1), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="wanted tau > 0, got 0"):
        smooth_ap_loss(logits, target, tau=0)
    for bad in (0.0, 1.5):
        with pytest.raises(ValueError, match=r"wanted 0 < max_fpr <= 1"):
            partial_auc_loss(logits, target, max_fpr=bad)
    with pytest.raises(ValueError, match=r'SmoothAPLoss is refused with statistics="running"'):
        WindowLoss(make_loss("ce+smooth_ap"), statistics="running")
    with pytest.raises(ValueError, match='reduction="none" is refused with a batch-level part'):
        make_loss("ce+pauc", reduction="none")
