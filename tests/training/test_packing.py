"""Packed rows hold the tokens of all texts, each once, and lead back to them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from softf1.training import packing
from softf1.training.packing import count_rows, find_places, pack_texts, unpack_texts

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=9)
MASKS = arrays(np.int64, SHAPES, elements=st.booleans()).filter(np.any).map(torch.from_numpy)


def places_of(mask):
    return find_places(mask, count_rows(int(mask.sum()), mask.numel()))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(packing, "ROOM", 4)


@given(mask=MASKS)
@settings(max_examples=60)
def test_rows_hold_the_kept_tokens_in_order(mask):
    """Whether padding is at the end, at the start, or in between."""
    places, kept = places_of(mask), int(mask.sum())
    number = torch.arange(mask.numel()).view(mask.shape)
    assert places.token[:kept].tolist() == number[mask > 0].tolist()
    assert places.used.flatten().tolist() == [True] * kept + [False] * (len(places.token) - kept)
    assert places.row[mask.flatten() > 0].tolist() == list(range(kept))


@given(mask=MASKS)
@settings(max_examples=60)
def test_every_row_is_in_a_text_no_longer_than_the_longest(mask):
    places, (texts, width) = places_of(mask), mask.shape
    starts = places.starts.tolist()
    assert starts[: texts + 1] == [0, *mask.sum(1).cumsum(0).tolist()]
    assert starts[-1] == len(places.token)
    assert all(0 <= size <= width for size in np.diff(starts))


def test_packing_and_unpacking_is_no_change_and_neither_are_its_derivatives():
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    places = places_of(mask)
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    rows = pack_texts(x, places)
    assert rows.shape == (1, 8, 5)
    back = unpack_texts(rows, places)
    assert torch.equal(back[mask > 0], x[mask > 0])
    keep = (mask > 0)[..., None]
    scale = torch.randn_like(rows)

    def run(x):
        return unpack_texts(pack_texts(x, places) * scale, places) * keep

    assert torch.autograd.gradcheck(run, x)
    (gradient,) = torch.autograd.grad(run(x).sum(), x)
    assert gradient[mask == 0].count_nonzero() == 0


def test_no_gradient_enters_rows_that_are_left_over():
    """Whatever a head does at padding."""
    mask = torch.tensor([[1, 1, 1, 0]])
    places = places_of(mask)
    rows = torch.randn(1, 4, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(unpack_texts(rows, places).sum(), rows)
    assert gradient.tolist() == [[[1.0, 1.0]] * 3 + [[0.0, 0.0]]]
