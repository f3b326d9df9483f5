"""A linear-chain CRF over the logits of a tagger.

The score of a sequence of tags is the sum of its logits and of one transition score for every two
neighbouring tags. Sums over all sequences run in float64: on a CPU word by word, on a GPU as
products of small matrices, scaled so that long and confident sequences do not underflow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from softf1.errors import InputError

FORBIDDEN = -100.0
"""The score of a transition that the tag scheme rules out: probability e^−100."""
LEAST = torch.finfo(torch.float64).tiny
NAME = "crf.transitions"
"""The name of the parameter in saved weights."""


class CrfOutput(dict[str, Tensor]):
    """The output of a tagger with a CRF: logits (B, L, C) and transitions (1, C + 1, C + 1).

    The transitions have a first dimension so that slicing a batch keeps them.
    """

    @property
    def logits(self) -> Tensor:
        """The logits of each word on its own."""
        return self["logits"]


class Crf(nn.Module):
    """The transitions between tags, a module inside a tagger.

    Attributes:
        transitions: (C + 1, C + 1): from each tag (row) to each tag (column). The last row is the
            start of a sentence, the last column its end.
        allowed: The same shape, False where training must not change a `FORBIDDEN` transition.
    """

    allowed: Tensor

    def __init__(self, transitions: Tensor, *, allowed: Tensor):
        super().__init__()
        self.transitions = nn.Parameter(transitions.float())
        self.register_buffer("allowed", allowed, persistent=False)

    def forward(self) -> Tensor:
        """Returns the transitions; forbidden ones stay forbidden."""
        return self.transitions.masked_fill(~self.allowed, FORBIDDEN)


def add_crf(model: Any, start: Tensor, *, saved: Path | str) -> None:
    """Makes `model` return transitions with its logits.

    Args:
        model: A tagger of transformers or of ours.
        start: Transitions to start from, `FORBIDDEN` where the tag scheme rules them out.
        saved: Where the model was loaded from; transitions in its weights, if any, replace `start`.
    """
    trained = start
    for weights in sorted(Path(saved).glob("model*.safetensors")):  # large models have several
        with safe_open(weights, "pt") as file:
            if NAME in file.keys():  # noqa: SIM118 - it is not a dict
                trained = file.get_tensor(NAME)
    if trained.shape != start.shape:
        shapes = f"{tuple(start.shape)}, got {tuple(trained.shape)}"
        raise InputError(f"wanted {NAME} of the shape {shapes}", path=saved)
    model.crf = Crf(trained, allowed=start > FORBIDDEN)
    model.register_forward_hook(_attach)


def _attach(model: Any, _: Any, output: Any) -> CrfOutput:
    return CrfOutput(logits=output.logits, transitions=model.crf().unsqueeze(0))


def conditional_logits(emissions: Tensor, transitions: Tensor, target: Tensor) -> Tensor:
    """Returns logits (B, L, C) of every tag given the gold tags before it.

    The probability of a sequence is the product of these, so their cross entropy, summed, is the
    negative log-likelihood of the CRF.

    Args:
        emissions: (B, L, C), the logits of the tagger.
        transitions: (C + 1, C + 1), as `Crf` gives them.
        target: (B, L), gold tags; positions with −100 are no words and are skipped.
    """
    inside = target >= 0
    after = _look_ahead(emissions, transitions, inside)
    start = emissions.shape[-1]
    place = torch.arange(target.shape[1], device=target.device)
    last = torch.where(inside, place, -1).cummax(1).values
    before = torch.cat([last.new_full((len(last), 1), -1), last[:, :-1]], 1)
    tag = torch.where(before >= 0, target.gather(1, before.clamp(min=0)), start)
    return emissions + (transitions[:, :start][tag] + after).to(emissions.dtype)


def marginal_logits(emissions: Tensor, transitions: Tensor, inside: Tensor) -> Tensor:
    """Returns logits (B, L, C) whose softmax is the marginal probability of each tag.

    Args:
        emissions: (B, L, C), the logits of the tagger.
        transitions: (C + 1, C + 1), as `Crf` gives them.
        inside: (B, L), True where there is a word.
    """
    after = _look_ahead(emissions, transitions, inside)
    # The forward scores are the backward scores of the reversed sentence.
    before = _look_ahead(emissions.flip(1), transitions.T, inside.flip(1)).flip(1)
    return emissions + (before + after).to(emissions.dtype)


def _look_ahead(emissions: Tensor, transitions: Tensor, inside: Tensor) -> Tensor:
    """Returns backward scores (B, L, C): logsumexp over all continuations from a tag to the end."""
    scan = _scan_words if emissions.device.type == "cpu" else _scan_products
    return scan(emissions.double(), transitions.double(), inside)


def _scan_words(emissions: Tensor, moves: Tensor, inside: Tensor) -> Tensor:
    """Goes word by word from the end: the least work, where launching an operation is cheap."""
    size, length = emissions.shape[-1], emissions.shape[1]
    highest = moves.detach().amax()
    chances = (moves[:size, :size] - highest).exp().T
    score = moves[:size, size].expand(len(emissions), size)
    scores = [score]
    for place in range(length - 1, 0, -1):
        ahead = emissions[:, place] + score
        top = ahead.detach().amax(-1, keepdim=True)
        # A product instead of logsumexp, which would wake all threads for a few numbers.
        ways = ((ahead - top).exp() @ chances).clamp(min=LEAST).log() + top + highest
        score = torch.where(inside[:, place, None], ways, score)
        scores.append(score)
    return torch.stack(scores[::-1], dim=1)


def _scan_products(emissions: Tensor, moves: Tensor, inside: Tensor) -> Tensor:
    """Multiplies small matrices in log₂(length) rounds: the fewest launches, for a GPU."""
    size, length = emissions.shape[-1], emissions.shape[1]
    # One transition matrix per word; the identity where there is no word.
    steps = moves[:size, :size] + emissions.unsqueeze(2)
    top = steps.detach().amax((-2, -1), keepdim=True)
    same = torch.eye(size, dtype=steps.dtype, device=steps.device)
    word = inside[..., None, None]
    product = torch.where(word, (steps - top).exp(), same)
    scale = torch.where(word, top, 0.0)
    reach = 1
    while reach < length:  # each matrix is multiplied by the one `reach` places behind it
        joined = product[:, :-reach] @ product[:, reach:]
        top = joined.detach().amax((-2, -1), keepdim=True)
        scale = torch.cat(
            [scale[:, :-reach] + scale[:, reach:] + top.log(), scale[:, -reach:]], dim=1
        )
        product = torch.cat([joined / top, product[:, -reach:]], dim=1)
        reach *= 2
    end = moves[:size, size]
    top = end.detach().amax()
    ways = (product @ (end - top).exp()).log() + scale.squeeze(-1) + top
    return torch.cat([ways[:, 1:], end.expand(len(ways), 1, size)], dim=1)


@torch.no_grad()
def best_tags(emissions: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
    """Returns the best sequence of each sentence (Viterbi), (B, L); 0 beyond its end.

    Args:
        emissions: (B, L, C), one row per word, padding on the right.
        transitions: (C + 1, C + 1), as `Crf` gives them.
        lengths: (B,), words in each sentence.
    """
    rows, longest, size = emissions.shape
    moves = transitions.to(emissions)
    back = torch.zeros(rows, longest, size, dtype=torch.long, device=emissions.device)
    score = moves[size, :size] + emissions[:, 0]
    for place in range(1, longest):
        best, back[:, place] = (score.unsqueeze(2) + moves[:size, :size]).max(1)
        score = torch.where((place < lengths)[:, None], best + emissions[:, place], score)
    tags = torch.zeros(rows, longest, dtype=torch.long, device=emissions.device)
    tag = (score + moves[:size, size]).argmax(1)
    for place in reversed(range(longest)):
        inside = place < lengths
        tags[:, place] = torch.where(inside, tag, 0)
        tag = torch.where(inside, back[:, place].gather(1, tag[:, None]).squeeze(1), tag)
    return tags
