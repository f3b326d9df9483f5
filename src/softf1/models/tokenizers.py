"""One interface to tokenizers for all tasks: pieces of words, and the layout of a row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self, TypeAlias

from softf1.errors import InputError
from softf1.files import read_json
from softf1.options import Range

if TYPE_CHECKING:  # numpy is imported when it is needed: recipes are read without it
    import numpy as np
    from numpy.typing import NDArray

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A row is `before first between second after`; `types` holds the type id of each part.

    Attributes:
        before: Ids that open the row, such as [CLS].
        between: Ids between the two texts; empty in a row of one text.
        after: Ids that close the row.
        types: Type ids of the five parts: one number for each text, a tuple for special tokens.
        cls: Position of the classification token, counted from the end when negative.
        pad_left: Padding stands before the row (XLNet), not behind it.
    """

    before: Ids = ()
    between: Ids = ()
    after: Ids = ()
    types: tuple[Ids, int, Ids, int, Ids] = ((), 0, (), 0, ())
    cls: int = 0
    pad_left: bool = False

    @property
    def specials(self) -> int:
        """The number of special tokens in a row."""
        return len(self.before) + len(self.between) + len(self.after)


USUAL = 512
"""The default maximum length of a row: the cost of attention is quadratic."""

GROUP = 256
"""How many words a fast tokenizer gets as one text: few Python objects, but work for every core."""

Span = tuple[int, int]
"""(start, end), end exclusive."""
Pieces: TypeAlias = "tuple[NDArray[np.int32], NDArray[np.int64]]"
"""The ids of all words, one after another, and how many each word has."""
Size = Annotated[int, Range(least=1)]
Sizes = Annotated[tuple[int, ...], Range(least=1)]
"""`Size` and `Sizes` are the types of options of encoders from scratch."""
UNLIMITED = 2**20


class Tokenizer(Protocol):
    """The interface of tokenizers, and of vocabularies built from the training data.

    Attributes:
        pad_id: The id of padding.
        pad_type: The type id of padding.
        unk_id: The id for a word without pieces.
        window: The default length of a row, if `max_length` is not set.
        limit: The maximum length of a row for the encoder.
        names: The inputs of the encoder.
    """

    pad_id: int
    pad_type: int
    unk_id: int
    window: int
    limit: int
    names: tuple[str, ...]

    def pieces(self, words: Sequence[str]) -> Pieces:
        """The ids of each word on its own, without special tokens; a word may have none."""

    def text_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""

    def aligned(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[Span]]]:
        """Yields the ids of each text with the characters that each stands for."""

    def layout(self, *, pair: bool) -> Layout:
        """The layout of a row of one text, or of two."""

    def save_pretrained(self, folder: Path | str) -> object:
        """Writes the tokenizer beside the model."""


class FastTokenizer:
    """Any fast transformers tokenizer.

    Fast tokenizers encode pre-split input word by word, so the pieces of a word never depend on
    its neighbours: each distinct word of a file needs to be encoded only once.
    """

    def __init__(self, tokenizer: Any, *, limit: int = USUAL):
        if not tokenizer.is_fast:
            msg = f"wanted a fast tokenizer, got {type(tokenizer).__name__}"
            raise TypeError(msg)
        self.tokenizer = tokenizer
        self.backend = tokenizer.backend_tokenizer
        self.backend.no_truncation()
        self.backend.no_padding()
        if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
            tokenizer.pad_token = tokenizer.eos_token  # Llama, GPT-2; it is saved, for pipelines
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self.pad_type = int(tokenizer.pad_token_type_id)
        self.unk_id = self.pad_id if tokenizer.unk_token_id is None else int(tokenizer.unk_token_id)
        # Tokenizers without a limit report a huge number.
        self.limit = min(limit, int(tokenizer.model_max_length))
        self.window = min(USUAL, self.limit)
        self.names = tuple(tokenizer.model_input_names)
        alone = self.backend.encode(["a"], is_pretokenized=True, add_special_tokens=False).ids
        self.space = "" if self.text_ids(["a a"]) == [alone * 2] else " "
        if "input_ids" not in self.names:
            raise ValueError(f"wanted input_ids among the inputs of a tokenizer, got {self.names}")

    def pieces(self, words: Sequence[str]) -> Pieces:
        """The ids of each word as in running text, after a space.

        Byte-level BPE (RoBERTa, ModernBERT, Qwen2) writes the space into the first piece. Where
        the space is a piece of its own, as before a Chinese character, it is left out.
        """
        import numpy as np

        spaced = [self.space + word for word in words] if self.space else words
        groups = [spaced[start : start + GROUP] for start in range(0, len(words), GROUP)]
        # encode_batch_fast does not say which word an id belongs to.
        encoded = _encode(self.backend.encode_batch, groups, is_pretokenized=True)
        ids, owner = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for number, item in enumerate(encoded):
            ids.append(np.array(item.ids, np.int32))
            owner.append(np.array(item.word_ids, np.int64) + number * GROUP)
        counts = np.bincount(np.concatenate(owner), minlength=len(words))
        flat = np.concatenate(ids)
        return self._without_spaces(flat, counts) if self.space else (flat, counts)

    def _without_spaces(self, ids: NDArray[np.int32], counts: NDArray[np.int64]) -> Pieces:
        """Leaves out the pieces that only stand for the space before a word."""
        import numpy as np

        (lone,) = self.text_ids([self.space])
        long = np.flatnonzero(counts >= len(lone))
        start = (np.cumsum(counts) - counts)[long]
        places = start[:, None] + np.arange(len(lone))
        found = (ids[places] == lone).all(axis=1)
        counts[long[found]] -= len(lone)
        return np.delete(ids, places[found].ravel()), counts

    def text_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""
        encoded = _encode(self.backend.encode_batch_fast, list(texts))
        return [item.ids for item in encoded]

    def aligned(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[Span]]]:
        """Yields the ids of each text with the characters that each stands for."""
        encoded = _encode(self.backend.encode_batch, list(texts))
        return ((item.ids, item.offsets) for item in encoded)

    @cache  # noqa: B019 - two entries of a tokenizer that lives as long as its run
    def layout(self, *, pair: bool) -> Layout:
        """Reads the layout from an encoded probe, so that no model family is named here."""
        probe = self.backend.encode(*(["a"], ["a"])[: 1 + pair], is_pretokenized=True)
        cls = self.tokenizer.cls_token_id
        where = probe.ids.index(cls) if cls in probe.ids else 0
        return layout_of(
            probe.ids,
            probe.type_ids,
            probe.sequence_ids,
            cls=where if where == 0 else where - len(probe.ids),
            pad_left=self.tokenizer.padding_side == "left",
        )

    def save_pretrained(self, folder: Path | str) -> object:
        """Writes the tokenizer as transformers does."""
        return self.tokenizer.save_pretrained(folder)


def _encode(encode: Callable[..., list[Any]], texts: Sequence[Any], **options: Any) -> list[Any]:
    """Encodes without special tokens; a failure is an input error: the tokenizer's file is bad."""
    try:
        return encode(texts, add_special_tokens=False, **options)
    except Exception as error:
        if type(error) is not Exception:  # the tokenizers package raises nothing more specific
            raise
        raise InputError(f"the tokenizer cannot encode a text: {error}") from error


def layout_of(
    ids: Sequence[int],
    types: Sequence[int],
    sequences: Sequence[int | None],
    *,
    cls: int,
    pad_left: bool,
) -> Layout:
    """Returns the layout of an encoded probe: what stands before, between and after its texts.

    >>> layout_of([1, 7, 2, 7, 2], [0, 0, 0, 1, 1], [None, 0, None, 1, None],
    ...           cls=0, pad_left=False).types
    ((0,), 0, (0,), 1, (1,))
    """
    first, second = ([i for i, s in enumerate(sequences) if s == text] for text in (0, 1))
    start, end = first[0], first[-1] + 1
    # With one text, what follows it is `after`, and `between` is empty.
    start2, end2 = (second[0], second[-1] + 1) if second else (end, end)
    specials = slice(start), slice(end, start2), slice(end2, None)
    before, between, after = (tuple(ids[part]) for part in specials)
    opening, middle, closing = (tuple(types[part]) for part in specials)
    return Layout(
        before,
        between,
        after,
        types=(opening, types[start], middle, types[start2] if second else 0, closing),
        cls=cls,
        pad_left=pad_left,
    )


PAD, UNKNOWN = 0, 1
"""Ids of padding and of unknown items; they differ, because an unknown word is not padding."""


def count_vocabulary(items: Iterable[str], *, most: int, at_least: int = 2) -> dict[str, int]:
    """Assigns ids from 2 up to the most frequent items.

    Items that occur once stay unknown, so that the unknown id is seen, and learned, in training.

    >>> count_vocabulary("abracadabra", most=3)
    {'a': 2, 'b': 3, 'r': 4}
    """
    frequent = Counter(items).most_common(most)
    kept = [item for item, count in frequent if count >= at_least]
    return {item: number for number, item in enumerate(kept, start=2)}


class Vocabulary:
    """Tables of ids and sizes that an encoder from scratch keeps in a file beside its weights."""

    file: ClassVar[str]
    pad_id, pad_type, unk_id, limit = PAD, 0, UNKNOWN, UNLIMITED

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> Self:
        """Loads the vocabulary of a saved model."""
        path = Path(folder) / cls.file
        content = read_json(path, "a vocabulary in JSON")
        for name, value in content.items():
            numbers = value.values() if isinstance(value, dict) else [value]
            if not all(type(one) is int and 0 < one < 2**31 for one in numbers):
                raise InputError(f"wanted whole numbers from 1 for {name}", path=path)
        return cls(**content)

    def save_pretrained(self, folder: Path | str) -> None:
        """Writes the vocabulary beside the model."""
        text = json.dumps(vars(self), ensure_ascii=False, indent=1)
        (Path(folder) / self.file).write_text(text, "utf-8")
