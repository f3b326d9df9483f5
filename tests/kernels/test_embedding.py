"""The gradient of an embedding against PyTorch: on a GPU where there is one, else interpreted."""

import importlib.util
import os

import pytest
import torch
from torch.nn import functional

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from softf1.kernels.embedding import embedding_gradient  # noqa: E402

pytestmark = pytest.mark.needs_tool


def differentiate(gradient, ids, rows, padding_idx):
    dtype = torch.float64 if gradient.dtype == torch.float64 else torch.float32
    size = (rows, gradient.shape[-1])
    weight = torch.zeros(size, dtype=dtype, device=DEVICE, requires_grad=True)
    out = functional.embedding(ids, weight, padding_idx)
    return torch.autograd.grad(out, weight, gradient.to(weight.dtype))[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("padding_idx", [None, 3])
@pytest.mark.parametrize(
    ("shape", "rows", "distinct", "width"),
    [
        ((1,), 5, 5, 8),
        ((4, 50), 7, 7, 130),  # more ids than rows, two programs for a row
        ((3, 100), 1_000, 900, 12),  # most ids once
        ((300,), 2, 1, 5),  # one id only
    ],
    ids=str,
)
def test_rows_are_added_up_by_their_ids(shape, rows, distinct, width, padding_idx, dtype):
    torch.manual_seed(0)
    ids = torch.randint(distinct, shape, device=DEVICE)
    gradient = torch.randn(*shape, width, device=DEVICE).to(dtype)
    if padding_idx is not None:
        padding_idx %= rows
    wanted = differentiate(gradient, ids, rows, padding_idx)
    found = embedding_gradient(gradient, ids, rows, padding_idx)
    assert found.dtype == dtype
    close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(found.to(wanted.dtype), wanted, **close)


def test_the_order_of_the_sums_does_not_change():
    torch.manual_seed(0)
    ids, gradient = torch.randint(5, (3_000,)), torch.randn(3_000, 16) ** 3
    ids, gradient = ids.to(DEVICE), gradient.to(DEVICE)
    first, *others = (embedding_gradient(gradient, ids, 5, None) for _ in range(4))
    assert all(torch.equal(first, other) for other in others)
    torch.testing.assert_close(first, differentiate(gradient, ids, 5, None), rtol=1e-4, atol=1e-3)


def test_gradients_and_ids_with_strides():
    gradient = torch.randn(6, 10, device=DEVICE).T  # (10, 6)
    ids = torch.arange(20, device=DEVICE)[::2] % 4
    wanted = differentiate(gradient, ids, 4, None)
    torch.testing.assert_close(embedding_gradient(gradient, ids, 4, None), wanted)


def test_no_ids_have_no_gradient():
    none = torch.empty(0, dtype=torch.int64, device=DEVICE)
    found = embedding_gradient(torch.empty(0, 3, device=DEVICE), none, 4, None)
    assert torch.equal(found, torch.zeros(4, 3, device=DEVICE))
