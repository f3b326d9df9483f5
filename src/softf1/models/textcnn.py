"""A convolutional network over characters, as in an independent study of the paper's losses."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from softf1.models.scratch import Output, ScratchConfig, ScratchModel
from softf1.models.tokenizers import PAD, UNKNOWN, Layout, Size, Sizes, Vocabulary, count_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from softf1.models.tokenizers import Pieces, Span


class CharacterTokenizer(Vocabulary):
    """Maps characters to ids; by default the first `window` characters of a text are read."""

    file = "characters.json"
    names = ("input_ids", "attention_mask")

    def __init__(self, characters: dict[str, int], *, window: int = 300):
        self.characters, self.window = characters, window

    @classmethod
    def build(cls, texts: Iterable[Sequence[str]], *, most: int = 6000) -> Self:
        """Builds the vocabulary from the most frequent characters of the training texts."""
        return cls(count_vocabulary(chain.from_iterable(chain.from_iterable(texts)), most=most))

    def pieces(self, words: Sequence[str]) -> Pieces:
        """The ids of each word's characters."""
        ids = self.text_ids(["".join(words)])[0]
        return np.array(ids, np.int32), np.array([len(word) for word in words], np.int64)

    def text_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text's characters."""
        get = self.characters.get
        return [[get(character, UNKNOWN) for character in text] for text in texts]

    def aligned(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[Span]]]:
        """Yields the ids of each text, one per character."""
        return ((ids, [(i, i + 1) for i in range(len(ids))]) for ids in self.text_ids(texts))

    def layout(self, *, pair: bool) -> Layout:
        """No special tokens; two texts have an unknown character between them."""
        return Layout(between=(UNKNOWN,), types=((), 0, (0,), 0, ())) if pair else Layout()


class TextCnnConfig(ScratchConfig):
    """Sizes of the network."""

    model_type = "softf1-textcnn"

    def __init__(
        self,
        vocab_size: int = 2,
        embedding_size: Size = 100,
        filters: Size = 128,
        widths: Sizes = (2, 3, 4),
        dropout: float = 0.5,
        **options: Any,
    ):
        super().__init__(**options)
        self.vocab_size, self.embedding_size = vocab_size, embedding_size
        self.filters, self.widths, self.dropout = filters, list(widths), dropout


class TextCnn(ScratchModel):
    """Embedding, convolutions of several widths, the maximum over time, one linear layer.

    The maximum is over places where a filter starts on a character, never on padding, so that a
    text's logits do not depend on the other texts of its batch.
    """

    config_class = TextCnnConfig
    tokenizer = CharacterTokenizer
    head = "text"
    summary = "CNN over characters, from scratch, for classification and pairs"

    def __init__(self, config: TextCnnConfig):
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=PAD)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding_size, config.filters, width) for width in config.widths
        )
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.filters * len(config.widths), config.num_labels)

    @classmethod
    def build(cls, tokenizer: CharacterTokenizer, **options: Any) -> Self:
        """Makes a new network for a vocabulary."""
        return cls(TextCnnConfig(vocab_size=len(tokenizer.characters) + 2, **options))

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of characters."""
        return self.embedding

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        """Returns logits (B, C) for texts (B, L)."""
        mask = input_ids != PAD if attention_mask is None else attention_mask.bool()
        embedded = self.embedding(input_ids).masked_fill(~mask[..., None], 0.0).transpose(1, 2)
        pooled = [self._pool(conv, embedded, mask) for conv in self.convolutions]
        return Output(logits=self.classifier(self.dropout(torch.cat(pooled, 1))))

    def _pool(self, convolution: nn.Module, embedded: Tensor, mask: Tensor) -> Tensor:
        wide = F.pad(embedded, (0, cast("nn.Conv1d", convolution).kernel_size[0] - 1))
        features: Tensor = F.relu(convolution(wide)) * mask[:, None]
        return features.amax(-1)
