"""BERT-MRC: an encoder that answers a query with any number of spans."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from softf1.models.encoders import is_causal
from softf1.models.wrapper import Wrapper

Match = Literal["none", "concat", "biaffine"]

MOST_LIKELY = 40
"""At most so many starts and ends are paired: more than a sentence has spans of one label."""


class MrcConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]  # transformers has no types
    """The configuration of the encoder and of the heads.

    Attributes:
        encoder: The arguments of `AutoConfig.for_model`.
        match: How a start and an end are scored as a pair; "none" has no head for that.
        match_size: Width of the pair head.
        answerable: Whether there is a head that predicts if there is any span at all.
        dropout: Probability of dropout before every head.
    """

    model_type = "softf1-mrc"

    def __init__(
        self,
        encoder: dict[str, Any] | None = None,
        match: Match = "concat",
        match_size: int = 256,
        answerable: bool = False,  # noqa: FBT001, FBT002 - transformers fills configs by name
        dropout: float = 0.1,
        **options: Any,
    ):
        super().__init__(**options)
        self.encoder, self.match, self.match_size = encoder or {}, match, match_size
        self.answerable, self.dropout = answerable, dropout


class MrcNer(Wrapper):
    """An encoder with heads for starts, ends, pairs of both, and whether there is an answer."""

    config_class = MrcConfig

    def __init__(self, config: MrcConfig):
        super().__init__(config)
        size = int(self.encoder.config.hidden_size)
        self.start, self.end = nn.Linear(size, 1), nn.Linear(size, 1)
        kinds = {"concat": ConcatMatch, "biaffine": BiaffineMatch}
        self.match = kinds[config.match](size, config.match_size) if config.match in kinds else None
        self.answerable = nn.Linear(size, 1) if config.answerable else None
        self.causal = is_causal(self.encoder)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        context: Tensor,
        cls: Tensor,
        token_type_ids: Tensor | None = None,
        pairs: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Returns logits of starts and ends (B, L, 1), of pairs (B, K, 1), of an answer (B, 1).

        Args:
            input_ids: (B, L).
            attention_mask: (B, L).
            context: (B, L), 1 where a span may start or end.
            cls: (B,), position of the classification token.
            token_type_ids: (B, L).
            pairs: (B, K, 2), the (start, end) pairs to score in `span`. In evaluation the model
                also proposes pairs of its own, `proposed`, and scores them in `match`.
        """
        hidden = self.encode(input_ids, attention_mask, token_type_ids)
        out = {"start": self.start(hidden), "end": self.end(hidden)}
        if self.answerable is not None:
            row = torch.arange(len(hidden), device=hidden.device)
            # In a decoder only the last token has seen the whole row.
            where = attention_mask.cumsum(1).argmax(1) if self.causal else cls
            out["answerable"] = self.answerable(hidden[row, where])
        if self.match is not None and pairs is not None:
            out["span"] = self.match(*take_pairs(hidden, pairs))
        if self.match is not None and not self.training:
            out["proposed"] = propose(out["start"], out["end"], context)
            out["match"] = self.match(*take_pairs(hidden, out["proposed"]))
        return out


class ConcatMatch(nn.Module):
    """Scores a pair by its two vectors, concatenated, through one hidden layer."""

    def __init__(self, size: int, inner: int):
        super().__init__()
        self.inner, self.out = nn.Linear(2 * size, inner), nn.Linear(inner, 1)

    def forward(self, start: Tensor, end: Tensor) -> Tensor:
        """Logits (B, K, 1) of pairs (B, K, size)."""
        hidden = nn.functional.gelu(self.inner(torch.cat([start, end], -1)))
        out: Tensor = self.out(hidden)
        return out


class BiaffineMatch(nn.Module):
    """Scores a pair by `s·U·e + w·[s, e] + b`, with s and e projected to a smaller space."""

    def __init__(self, size: int, inner: int):
        super().__init__()
        self.start, self.end = nn.Linear(size, inner), nn.Linear(size, inner)
        self.both = nn.Linear(inner, inner, bias=False)
        self.out = nn.Linear(2 * inner, 1)

    def forward(self, start: Tensor, end: Tensor) -> Tensor:
        """Logits (B, K, 1) of pairs (B, K, size)."""
        s, e = nn.functional.gelu(self.start(start)), nn.functional.gelu(self.end(end))
        product = (self.both(s) * e).sum(-1, keepdim=True)
        out: Tensor = product + self.out(torch.cat([s, e], -1))
        return out


def take_pairs(hidden: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the vectors at the start and at the end of each pair, (B, K, size) each."""
    row = torch.arange(len(hidden), device=hidden.device)[:, None]
    return hidden[row, pairs[..., 0]], hidden[row, pairs[..., 1]]


def propose(start: Tensor, end: Tensor, context: Tensor) -> Tensor:
    """Pairs every likely start with every likely end, (B, K, 2).

    Rows with fewer likely positions are filled up with their next best ones.

    An untrained model finds half of all tokens likely, which gives too many pairs: only the
    `MOST_LIKELY` best starts and ends are used.

    >>> logits = torch.tensor([[-1.0, 2.0, -1.0, 3.0]])[..., None]
    >>> propose(logits, logits, torch.ones(1, 4)).tolist()
    [[[1, 1], [1, 3], [3, 1], [3, 3]]]
    """
    chosen = []
    for logits in (start, end):
        values = logits[..., 0].masked_fill(context == 0, float("-inf"))
        most = min(MOST_LIKELY, max(1, int((values > 0).sum(1).max())))
        chosen.append(values.topk(most, 1).indices.sort(1).values)
    first, last = chosen
    grid = first.repeat_interleave(last.shape[1], 1), last.repeat(1, first.shape[1])
    return torch.stack(grid, -1)
