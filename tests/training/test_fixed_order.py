"""Operations whose sums have a fixed order: what torch computes, and on a GPU the same bits."""

import os

import pytest
import torch
from torch import nn
from torch.nn import functional

from softf1.training.fixed_order import FixedOrder, ask_torch
from softf1.training.processes import CUBLAS, deterministic

CUDA = torch.cuda.is_available()
gpu = pytest.mark.skipif(not CUDA, reason="wants a GPU")


def test_deterministic_operations_are_asked_for_and_given_back(monkeypatch):
    monkeypatch.delenv(CUBLAS, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with deterministic(on=True):  # a CPU needs nothing of it
        assert not torch.are_deterministic_algorithms_enabled()
        assert CUBLAS not in os.environ
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with deterministic(on=False):
        assert not torch.are_deterministic_algorithms_enabled()
        assert CUBLAS not in os.environ
    with deterministic(on=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ[CUBLAS] == ":4096:8"
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_workspace_that_was_chosen_stays(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv(CUBLAS, ":16:8")
    with deterministic(on=True):
        assert os.environ[CUBLAS] == ":16:8"


@pytest.mark.parametrize("rows", [7, 600])  # a product, and sums of sorted ids
@pytest.mark.parametrize("padding_idx", [None, 3, -1])
def test_embeddings_added_in_order_have_the_gradient_of_torch(padding_idx, rows):
    torch.manual_seed(0)
    ids, weight = torch.randint(7, (4, 50)), torch.randn(rows, 5, dtype=torch.float64)
    ids[0, 0] = rows - 1
    gradient = torch.randn(4, 50, 5, dtype=torch.float64)
    embedding = torch.nn.Embedding(rows, 5, padding_idx=padding_idx, _weight=weight)
    (wanted,) = torch.autograd.grad(embedding(ids), embedding.weight, gradient)
    with FixedOrder():
        values = embedding(ids)
        assert "_Embed" in type(values.grad_fn).__name__
        keyword = torch.nn.functional.embedding(ids, embedding.weight, padding_idx=padding_idx)
    assert torch.equal(values, embedding(ids))
    assert torch.equal(keyword, values)
    (own,) = torch.autograd.grad(values, embedding.weight, gradient)
    torch.testing.assert_close(own, wanted)


@pytest.mark.parametrize("option", ["scale_grad_by_freq", "sparse", "max_norm"])
def test_embeddings_with_special_options_stay_with_torch(option):
    embedding = torch.nn.Embedding(7, 5, **{option: True if option != "max_norm" else 1.0})
    with FixedOrder():
        values = embedding(torch.tensor([1, 1, 2]))
    assert "_Embed" not in type(values.grad_fn).__name__


@pytest.mark.parametrize("masked", [False, True])
def test_attention_has_the_gradient_of_torch(masked):
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3))
    key.requires_grad_(False)
    options = {"attn_mask": torch.rand(2, 1, 5, 5) > 0.3} if masked else {"is_causal": True}
    plain = functional.scaled_dot_product_attention(query, key, value, **options)
    with FixedOrder():
        own = functional.scaled_dot_product_attention(query, key, value, **options)
        with torch.no_grad():
            free = functional.scaled_dot_product_attention(query, key, value, **options)
    assert "_Attend" in type(own.grad_fn).__name__
    assert free.grad_fn is None
    gradient = torch.randn_like(plain)
    wanted = torch.autograd.grad(plain, (query, value), gradient)
    torch.testing.assert_close(own, plain)
    torch.testing.assert_close(torch.autograd.grad(own, (query, value), gradient), wanted)


def test_the_backward_pass_of_attention_is_told_to_be_deterministic(monkeypatch):
    """Only where torch would fail rather than warn do its kernels change: so in this pass alone."""
    asked = []
    grad = torch.autograd.grad

    def watch(*args):
        modes = (
            torch.are_deterministic_algorithms_enabled(),
            not (torch.is_deterministic_algorithms_warn_only_enabled()),
        )
        asked.append(modes)
        return grad(*args)

    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    with ask_torch(warn_only=True):
        with FixedOrder():
            out = functional.scaled_dot_product_attention(x, x, x)
        monkeypatch.setattr(torch.autograd, "grad", watch)
        out.sum().backward()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert asked == [(True, True)]
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_lstm_runs_without_cudnn(monkeypatch):
    seen = []
    lstm = torch.lstm
    monkeypatch.setattr(
        torch, "lstm", lambda *args: seen.append(torch.backends.cudnn.enabled) or lstm(*args)
    )
    model, x = nn.LSTM(3, 2, batch_first=True), torch.randn(2, 4, 3)
    with FixedOrder():
        own = model(x)[0]
    assert torch.equal(own, model(x)[0])
    assert seen[0] is False
    assert torch.backends.cudnn.enabled


@gpu
def test_on_a_gpu_the_gradient_of_many_ids_repeats_to_the_bit(monkeypatch):
    monkeypatch.setenv(CUBLAS, ":4096:8")
    torch.manual_seed(0)
    embedding = nn.Embedding(30_000, 384, padding_idx=0, device="cuda")
    ids = torch.randint(2_000, (64, 384), device="cuda") * (
        torch.rand(64, 384, device="cuda") > 0.3
    )
    gradient = torch.randn(64, 384, 384, device="cuda")
    with deterministic(on=True):
        first, *others = (
            torch.autograd.grad(embedding(ids), embedding.weight, gradient)[0] for _ in range(10)
        )
    assert all(torch.equal(first, other) for other in others)
    torch.testing.assert_close(
        first, torch.autograd.grad(embedding(ids), embedding.weight, gradient)[0]
    )


@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_gpu_attention_over_long_texts_repeats_to_the_bit(dtype, monkeypatch):
    monkeypatch.setenv(CUBLAS, ":4096:8")
    torch.manual_seed(0)
    three = torch.randn(3, 8, 12, 384, 64, device="cuda", dtype=dtype).requires_grad_()
    mask = torch.zeros(8, 1, 384, 384, device="cuda", dtype=dtype)
    mask[..., 300:] = -torch.inf
    gradient = torch.randn(8, 12, 384, 64, device="cuda", dtype=dtype)

    def differentiate(mask):
        out = functional.scaled_dot_product_attention(*three, attn_mask=mask)
        return torch.autograd.grad(out, three, gradient)[0]

    for given in (mask, None):
        with deterministic(on=True):
            first, *others = (differentiate(given) for _ in range(10))
        assert all(torch.equal(first, other) for other in others)
        close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(first, differentiate(given), **close)


@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_gpu_the_gradient_of_an_lstm_repeats_to_the_bit(dtype, monkeypatch):
    monkeypatch.setenv(CUBLAS, ":4096:8")
    torch.manual_seed(0)
    model = nn.LSTM(150, 100, batch_first=True).cuda()
    x = torch.randn(32, 40, 150, device="cuda")

    def differentiate():
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            out = model(x)[0]
        return torch.autograd.grad(out.float().square().sum(), list(model.parameters()))

    with deterministic(on=True):
        first, *others = (differentiate() for _ in range(10))
    for other in others:
        assert all(map(torch.equal, first, other))
