"""A span classifier: judges every span of up to so many words, for every label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from softf1.errors import InputError
from softf1.models.encoders import build_model, find_auto, find_wrapper

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from softf1.models.tokenizers import Tokenizer


class SpanConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]  # transformers has no types
    """The configuration of the encoder and of the head.

    Attributes:
        encoder: What `AutoConfig.for_model` takes.
        classes: How many labels there are.
        max_span: Words of a span at most.
        span_size: Width of the layer between the words and the labels.
        dropout: Before the head.
    """

    model_type = "softf1-spans"

    def __init__(
        self,
        encoder: dict[str, Any] | None = None,
        classes: int = 1,
        max_span: int = 12,
        span_size: int = 256,
        dropout: float = 0.1,
        **options: Any,
    ):
        super().__init__(**options)
        self.encoder, self.classes, self.max_span = encoder or {}, classes, max_span
        self.span_size, self.dropout = span_size, dropout


class SpanNer(PreTrainedModel):  # type: ignore[no-untyped-call]
    """A span as its first word, its last word and its length, through one hidden layer."""

    config_class = SpanConfig
    main_input_name = "input_ids"

    def __init__(self, config: SpanConfig):
        super().__init__(config)
        encoder = AutoConfig.for_model(**config.encoder)
        self.encoder = find_auto(encoder).from_config(encoder)
        size, inner = int(encoder.hidden_size), config.span_size
        self.dropout = nn.Dropout(config.dropout)
        self.start, self.end = nn.Linear(size, inner), nn.Linear(size, inner, bias=False)
        self.length = nn.Parameter(torch.zeros(config.max_span, inner))
        self.out = nn.Linear(inner, config.classes)
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def build(
        cls,
        encoder: str | Path,
        tokenizer: Tokenizer,
        *,
        allow_pickle: bool = False,
        **options: Any,
    ) -> Self:
        """Builds a new head on a pretrained encoder, or loads a saved model of the same sizes."""
        if find_wrapper(encoder) == SpanConfig.model_type:
            saved = cls.from_pretrained(encoder, dtype=torch.float32)
            for name, wanted in options.items():
                if (got := getattr(saved.config, name)) != wanted:
                    message = f"wanted a span classifier with {name} = {wanted}, got {name} = {got}"
                    raise InputError(message, path=encoder)
            return saved
        pretrained = build_model(
            encoder, head="none", tokenizer=tokenizer, allow_pickle=allow_pickle
        )
        model = cls(SpanConfig(encoder=pretrained.config.to_dict(), **options))
        model.encoder = pretrained
        return model

    def get_input_embeddings(self) -> nn.Module:
        """The word embedding of the encoder."""
        found: nn.Module = self.encoder.get_input_embeddings()
        return found

    def _init_weights(self, module: nn.Module) -> None:
        """Keeps torch's initialisation of the head."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        words: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Logits (B, W, K, C) of the spans that start at each word and have 1 to K words.

        Args:
            input_ids: (B, L).
            attention_mask: (B, L).
            words: (B, W), the column of the first piece of each word.
            token_type_ids: (B, L).
        """
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        hidden = self.encoder(input_ids, attention_mask=attention_mask, **types).last_hidden_state
        row = torch.arange(len(hidden), device=hidden.device)[:, None]
        hidden = self.dropout(hidden)[row, words]
        most = len(self.length)
        ends = nn.functional.pad(self.end(hidden), (0, 0, 0, most - 1)).unfold(1, most, 1)
        inner = self.start(hidden)[:, :, None] + ends.movedim(-1, 2) + self.length
        return {"spans": self.out(nn.functional.gelu(inner))}
