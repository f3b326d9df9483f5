"""A pretrained encoder with heads that transformers does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel

from softf1.models.encoders import build_model, find_auto, find_wrapper

if TYPE_CHECKING:
    from pathlib import Path

    from softf1.models.tokenizers import Tokenizer


class Wrapper(PreTrainedModel):  # type: ignore[no-untyped-call]  # transformers has no types
    """An encoder with dropout after it; subclasses add heads and the forward pass.

    The configuration has `encoder`, the arguments of `AutoConfig.for_model`, and `dropout`.
    """

    main_input_name = "input_ids"

    def __init__(self, config: Any):
        super().__init__(config)
        encoder = AutoConfig.for_model(**config.encoder)
        self.encoder = find_auto(encoder).from_config(encoder)
        self.dropout = nn.Dropout(config.dropout)

    @classmethod
    def build(
        cls,
        encoder: str | Path,
        tokenizer: Tokenizer,
        *,
        allow_pickle: bool = False,
        **options: Any,
    ) -> Self:
        """Builds new heads on a pretrained encoder, or loads a saved model of this class."""
        kind: Any = cls.config_class
        if find_wrapper(encoder) == kind.model_type:
            saved: Self = cls.from_pretrained(encoder, dtype=torch.float32)
            return saved
        pretrained = build_model(
            encoder, head="none", tokenizer=tokenizer, allow_pickle=allow_pickle
        )
        model = cls(kind(encoder=pretrained.config.to_dict(), **options))
        model.encoder = pretrained
        return model

    def encode(self, input_ids: Tensor, attention_mask: Tensor, types: Tensor | None) -> Tensor:
        """Returns the last hidden state (B, L, size), after dropout."""
        more = {} if types is None else {"token_type_ids": types}
        output = self.encoder(input_ids, attention_mask=attention_mask, **more)
        hidden: Tensor = self.dropout(output.last_hidden_state)
        return hidden

    def get_input_embeddings(self) -> nn.Module:
        """The word embedding of the encoder."""
        embeddings: nn.Module = self.encoder.get_input_embeddings()
        return embeddings

    def _init_weights(self, module: nn.Module) -> None:
        """Keeps torch's initialisation of the heads."""
