"""A bidirectional LSTM over words, with word and character embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from softf1.errors import InputError
from softf1.models.scratch import Output, ScratchConfig, ScratchModel
from softf1.models.tokenizers import (
    PAD,
    UNKNOWN,
    Layout,
    Pieces,
    Size,
    Span,
    Vocabulary,
    count_vocabulary,
)
from softf1.options import Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray


class WordTokenizer(Vocabulary):
    """Maps words and characters to ids; words are cut to `letters` characters."""

    file = "words.json"
    names = ("input_ids", "char_ids", "attention_mask")

    def __init__(
        self,
        words: dict[str, int],
        characters: dict[str, int],
        *,
        window: int = 1024,
        letters: int = 20,
    ):
        self.words, self.characters = words, characters
        self.window, self.letters = window, letters

    @classmethod
    def build(cls, texts: Iterable[Sequence[str]], *, most: int = 100_000) -> Self:
        """Builds the vocabulary from the most frequent words of the training data."""
        everything = [word for words in texts for word in words]
        words = count_vocabulary(everything, most=most)
        return cls(words, count_vocabulary((c for w in everything for c in w), most=6000))

    def pieces(self, words: Sequence[str]) -> Pieces:
        """Returns one id per word, and the number of pieces of each word: 1."""
        ids = [self.words.get(word, UNKNOWN) for word in words]
        return np.array(ids, np.int32), np.ones(len(words), np.int64)

    def spell(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Returns the ids of each word's characters, (words, letters), padded with 0."""
        out = np.zeros((len(words), self.letters), np.int32)
        for row, word in zip(out, words, strict=True):
            ids = [self.characters.get(c, UNKNOWN) for c in word[: self.letters]]
            row[: len(ids)] = ids
        return out

    def text_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Raises: this encoder needs text that is split into words."""
        raise InputError(f"encoder bilstm takes words, this task gives running text: {texts[:1]}")

    def aligned(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[Span]]]:
        """Raises, as `text_ids` does."""
        return ((ids, []) for ids in self.text_ids(texts))

    def layout(self, *, pair: bool) -> Layout:  # noqa: ARG002 - the tokenizer protocol
        """No special tokens."""
        return Layout()


class BiLstmConfig(ScratchConfig):
    """Sizes of the network."""

    model_type = "softf1-bilstm"

    def __init__(
        self,
        vocab_size: int = 2,
        char_vocab_size: int = 2,
        word_size: Size = 100,
        char_size: Size = 30,
        char_filters: Size = 50,
        hidden_size: Annotated[int, Range(least=2)] = 200,  # half for each direction
        dropout: float = 0.5,
        **options: Any,
    ):
        super().__init__(**options)
        self.vocab_size, self.char_vocab_size = vocab_size, char_vocab_size
        self.word_size, self.char_size, self.char_filters = word_size, char_size, char_filters
        self.hidden_size, self.dropout = hidden_size, dropout


class BiLstm(ScratchModel):
    """Word embeddings and a convolution over characters, one LSTM per direction, a linear layer.

    The backward LSTM reads the words of each row in reverse order, with the padding still at the
    end: nothing has to be packed, and the model compiles and exports like any other.
    """

    config_class = BiLstmConfig
    tokenizer = WordTokenizer
    head = "tokens"
    summary = "BiLSTM over words and characters, from scratch, for tagging"

    def __init__(self, config: BiLstmConfig):
        super().__init__(config)
        size, half = config.word_size + config.char_filters, config.hidden_size // 2
        self.words = nn.Embedding(config.vocab_size, config.word_size, padding_idx=PAD)
        self.characters = nn.Embedding(config.char_vocab_size, config.char_size, padding_idx=PAD)
        self.spelling = nn.Conv1d(config.char_size, config.char_filters, 3, padding=1)
        self.ahead = nn.LSTM(size, half, batch_first=True)
        self.back = nn.LSTM(size, half, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(2 * half, config.num_labels)

    @classmethod
    def build(cls, tokenizer: WordTokenizer, **options: Any) -> Self:
        """Makes a new network for a vocabulary."""
        sizes = {
            "vocab_size": len(tokenizer.words) + 2,
            "char_vocab_size": len(tokenizer.characters) + 2,
        }
        return cls(BiLstmConfig(**sizes, **options))

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of words."""
        return self.words

    def forward(self, input_ids: Tensor, char_ids: Tensor, attention_mask: Tensor) -> Output:
        """Returns logits (B, L, C) for words (B, L) with characters (B, L, letters)."""
        embedded = torch.cat([self.words(input_ids), self._spell(char_ids)], -1)
        embedded = self.dropout(embedded)
        turn = turned(attention_mask.sum(1), embedded.shape[1])
        ahead = self.ahead(embedded)[0]
        back = _take(self.back(_take(embedded, turn))[0], turn)
        hidden = self.dropout(torch.cat([ahead, back], -1))
        return Output(logits=self.classifier(hidden))

    def _spell(self, char_ids: Tensor) -> Tensor:
        flat = trim(char_ids.flatten(0, 1))
        features = self.spelling(self.characters(flat).transpose(1, 2)).relu()
        pooled: Tensor = (features * (flat != PAD)[:, None]).amax(-1)
        return pooled.view(*char_ids.shape[:2], -1)


def trim(char_ids: Tensor) -> Tensor:
    """Drops the columns that are padding in all words, except one: they only cost time.

    One is kept because the filter over the last letter sees it.

    On a CPU only: on a GPU, Python would have to wait for the result, and CUDA graphs, compiled and
    exported models need the same shapes each time.

    >>> trim(torch.tensor([[5, 0, 0, 0], [5, 6, 0, 0]]))
    tensor([[5, 0, 0],
            [5, 6, 0]])
    """
    traced = torch.compiler.is_compiling() or torch.compiler.is_exporting()
    if traced or char_ids.device.type != "cpu":
        return char_ids
    used = (char_ids != PAD).any(0).nonzero()
    return char_ids[:, : int(used[-1]) + 2 if len(used) else 1]


def turned(lengths: Tensor, width: int) -> Tensor:
    """Returns the positions of each row's words in reverse order; padding stays in place.

    >>> turned(torch.tensor([2, 3]), 3)
    tensor([[1, 0, 2],
            [2, 1, 0]])
    """
    place = torch.arange(width, device=lengths.device).expand(lengths.shape[0], -1)
    ends = lengths[:, None]
    return torch.where(place < ends, ends - 1 - place, place)


def _take(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(1, index[..., None].expand_as(values))
