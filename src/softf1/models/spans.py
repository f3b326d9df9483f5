"""A span classifier: scores every span of up to `max_span` words, for every label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from softf1.errors import InputError
from softf1.models.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from softf1.models.tokenizers import Tokenizer


class SpanConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]  # transformers has no types
    """The configuration of the encoder and of the head.

    Attributes:
        encoder: The arguments of `AutoConfig.for_model`.
        classes: The number of labels.
        max_span: The most words that a span can have.
        span_size: Width of the hidden layer between the words and the labels.
        dropout: Probability of dropout before the head.
        labels: The names of the labels; None in models that were saved without them.
    """

    model_type = "softf1-spans"

    def __init__(
        self,
        encoder: dict[str, Any] | None = None,
        classes: int = 1,
        max_span: int = 12,
        span_size: int = 256,
        dropout: float = 0.1,
        labels: Sequence[str] | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        self.labels = None if labels is None else list(labels)
        self.encoder, self.classes, self.max_span = encoder or {}, classes, max_span
        self.span_size, self.dropout = span_size, dropout


class SpanNer(Wrapper):
    """Scores a span by its first word, its last word and its length, through one hidden layer."""

    config_class = SpanConfig

    def __init__(self, config: SpanConfig):
        super().__init__(config)
        size, inner = int(self.encoder.config.hidden_size), config.span_size
        self.start, self.end = nn.Linear(size, inner), nn.Linear(size, inner, bias=False)
        self.length = nn.Parameter(torch.zeros(config.max_span, inner))
        self.out = nn.Linear(inner, config.classes)
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def build(cls, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> Self:
        """Builds a new head on a pretrained encoder, or loads a saved model of the same sizes.

        If the labels of a saved model have other names, its last layer is initialised anew.
        """
        model = super().build(encoder, tokenizer, **options)
        for name in options.keys() & {"classes", "max_span"}:
            if (got := getattr(model.config, name)) != (wanted := options[name]):
                message = f"wanted a span classifier with {name} = {wanted}, got {name} = {got}"
                raise InputError(message, path=encoder)
        labels = list(options.get("labels", ()))
        if model.config.labels is not None and model.config.labels != labels:
            model.out.reset_parameters()
            model.config.labels = labels
        return model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        words: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Returns logits (B, W, K, C) of the spans that start at each word and have 1 to K words.

        Args:
            input_ids: (B, L).
            attention_mask: (B, L).
            words: (B, W), the position of the first piece of each word.
            token_type_ids: (B, L).
        """
        hidden = self.encode(input_ids, attention_mask, token_type_ids)
        hidden = hidden[torch.arange(len(hidden), device=hidden.device)[:, None], words]
        most = len(self.length)
        ends = nn.functional.pad(self.end(hidden), (0, 0, 0, most - 1)).unfold(1, most, 1)
        inner = self.start(hidden)[:, :, None] + ends.movedim(-1, 2) + self.length
        return {"spans": self.out(nn.functional.gelu(inner))}
