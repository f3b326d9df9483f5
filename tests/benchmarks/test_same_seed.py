"""The replaced kernels compute what they replace, and a CPU repeats itself."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from benchmarks import same_seed

TINY = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1}
TINY |= {"num_attention_heads": 2, "intermediate_size": 16}


@pytest.fixture
def no_dropout(monkeypatch):
    plain = same_seed.BertConfig
    zero = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    monkeypatch.setattr(same_seed, "BertConfig", lambda **given: plain(**given, **zero))


@pytest.mark.usefixtures("no_dropout")
@pytest.mark.parametrize("name", list(same_seed.REPLACED))
def test_a_replaced_kernel_trains_the_same_weights(name):
    how = {"device": "cpu", "shape": TINY, "ids": (4, 6), "steps": 1}
    wanted = same_seed.train_once("nothing", **how)
    found = same_seed.train_once(name, **how)
    # The first step of AdamW is of one size whatever the gradient is, but for its sign.
    assert (found - wanted).abs().gt(1e-4).float().mean() < 0.01


def test_runs_with_the_same_bits_are_counted():
    how = {"runs": 2, "device": "cpu", "shape": TINY, "ids": (2, 4)}
    assert same_seed.count_same("all", **how) == 2


def test_a_run_with_other_bits_is_not_counted(monkeypatch):
    ends = iter([torch.zeros(2), torch.zeros(2), torch.ones(2)])
    monkeypatch.setattr(same_seed, "train_once", lambda *_, **__: next(ends))
    assert same_seed.count_same("all", runs=3, device="cpu") == 2


def test_gradients_of_the_replacements():
    ids = torch.tensor([[0, 2], [2, 1]])
    weight = torch.randn(3, 4, requires_grad=True, dtype=torch.float64)
    other = weight.detach().clone().requires_grad_()
    bias = torch.randn(4, requires_grad=True, dtype=torch.float64)
    second = bias.detach().clone().requires_grad_()
    factor = torch.randn(2, 2, 4, dtype=torch.float64)
    functional = torch.nn.functional
    eye = torch.eye(4, dtype=torch.float64)
    (factor * functional.linear(functional.embedding(ids, weight, 0), eye, bias)).sum().backward()
    with same_seed.replace_embedding(), same_seed.replace_biases():
        found = functional.linear(functional.embedding(ids, other, 0), eye, second)
        (factor * found).sum().backward()
    torch.testing.assert_close(other.grad, weight.grad)
    torch.testing.assert_close(second.grad, bias.grad)
    assert not weight.grad[0].any()
