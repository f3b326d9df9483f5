"""The CRF against sums over all sequences, written out."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch

from softf1.losses import make_loss
from softf1.models import crf
from softf1.models.crf import FORBIDDEN, best_tags, conditional_logits, marginal_logits

SIZE, LENGTH = 3, 5


@pytest.fixture(params=["words", "products"], autouse=True)
def scan(request, monkeypatch):
    """Both ways to add up all sequences: the one of the CPU, and the one of the GPU."""
    monkeypatch.setattr(crf, "_scan_words", getattr(crf, f"_scan_{request.param}"))


@pytest.fixture
def chain():
    torch.manual_seed(0)
    emissions = torch.randn(2, LENGTH, SIZE, dtype=torch.float64)
    return emissions, torch.randn(SIZE + 1, SIZE + 1, dtype=torch.float64)


def score(emissions, transitions, tags):
    path = [SIZE, *tags, SIZE]
    moves = sum(transitions[a, b] for a, b in pairwise(path))
    return moves + sum(emissions[n, tag] for n, tag in enumerate(tags))


def scores(emissions, transitions):
    paths = list(product(range(SIZE), repeat=len(emissions)))
    return paths, torch.stack([score(emissions, transitions, path) for path in paths])


WORDS = [[True] * LENGTH, [False, True, False, True, True]]
"""Where words are: the second row has pieces between them."""


def test_cross_entropy_is_the_likelihood_of_the_sequence(chain):
    emissions, transitions = chain
    inside = torch.tensor(WORDS)
    target = torch.randint(SIZE, inside.shape).masked_fill(~inside, -100)
    wanted = 0.0
    for row in range(2):
        own = emissions[row][inside[row]]
        gold = target[row][inside[row]].tolist()
        wanted += scores(own, transitions)[1].logsumexp(0) - score(own, transitions, gold)
    logits = conditional_logits(emissions, transitions, target)
    got = make_loss("ce", reduction="sum")(logits, target)
    assert got.item() == pytest.approx(wanted.item(), rel=1e-12)


def test_marginals_are_sums_over_all_sequences(chain):
    emissions, transitions = chain
    inside = torch.tensor(WORDS)
    shares = marginal_logits(emissions, transitions, inside).softmax(-1)
    for row in range(2):
        paths, own = scores(emissions[row][inside[row]], transitions)
        for n, place in enumerate(inside[row].nonzero().flatten().tolist()):
            for tag in range(SIZE):
                mine = torch.tensor([path[n] == tag for path in paths])
                wanted = own.softmax(0)[mine].sum()
                assert shares[row, place, tag].item() == pytest.approx(wanted.item(), rel=1e-10)


def test_viterbi_finds_the_best_sequence(chain):
    emissions, transitions = chain
    lengths = torch.tensor([LENGTH, 2])
    best = best_tags(emissions, transitions, lengths)
    for row, length in enumerate(lengths.tolist()):
        paths, own = scores(emissions[row, :length], transitions)
        assert tuple(best[row, :length].tolist()) == paths[int(own.argmax())]
    assert best[1, 2:].tolist() == [0, 0, 0]


def test_gradients_are_those_of_the_likelihood(chain):
    emissions, transitions = (one.requires_grad_() for one in chain)
    target = torch.tensor([[0, -100, 2, 1, 1], [-100, 1, 0, -100, -100]])

    def loss(e, t):
        return make_loss("ce", reduction="sum")(conditional_logits(e, t, target), target)

    assert torch.autograd.gradcheck(loss, (emissions, transitions))


def test_long_and_sure_sequences_stay_finite():
    emissions = torch.zeros(1, 500, SIZE)
    emissions[..., 1] = 80.0
    emissions.requires_grad_()
    transitions = torch.zeros(SIZE + 1, SIZE + 1)
    transitions[1, 1] = FORBIDDEN
    target = torch.ones(1, 500, dtype=torch.long)
    logits = conditional_logits(emissions, transitions, target)
    loss = make_loss("ce")(logits, target)
    loss.backward()
    assert logits.isfinite().all()
    assert emissions.grad.isfinite().all()
    assert 0 < loss.item() < 200


def test_a_row_without_words_is_left_alone():
    emissions = torch.randn(1, 4, SIZE)
    target = torch.full((1, 4), -100)
    logits = conditional_logits(emissions, torch.zeros(SIZE + 1, SIZE + 1), target)
    assert np.isfinite(logits.numpy()).all()
