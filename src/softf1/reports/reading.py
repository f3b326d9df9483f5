"""Reads the files of runs: JSON, and the predictions of every task as items of one form.

An item has gold and predicted units. A unit is right or wrong on its own: a span
`(start, end, label)` of a tagged sentence, a label of a text, the answer to a question. The keys of
a line tell its form, as docs/predict.md describes them: reports read files only and know no task.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from softf1.errors import InputError
from softf1.files import read_json
from softf1.metrics.schemes import decode_lenient, decode_strict, detect_scheme

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

SCHEMA = 1


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON object of a known schema version."""
    value = read_json(path)
    if value.get("schema") != SCHEMA:
        raise InputError(f'wanted "schema": {SCHEMA}, got {value.get("schema")!r}', path=path)
    return value


def read_lines(path: Path, *, unfinished: bool = False) -> Iterator[dict[str, Any]]:
    """Reads a file with one JSON object per line; nothing if there is no file.

    Args:
        path: The file.
        unfinished: Whether the last line may be incomplete, as in the log of a killed run.
    """
    if not path.is_file():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                if unfinished and not line.endswith(b"\n"):
                    return
                raise InputError(f"wanted JSON, got: {error}", path=path, line=number) from None
            if not isinstance(value, dict):
                got = type(value).__name__
                raise InputError(f"wanted an object, got {got}", path=path, line=number)
            yield value


def need(value: Mapping[str, Any], key: str, kind: type, path: Path) -> Any:
    """Returns the value under a key; raises if it is missing or not of that type."""
    content = value.get(key)
    if not isinstance(content, kind) or isinstance(content, bool):
        got = "nothing" if content is None else type(content).__name__
        raise InputError(f'wanted "{key}" of type {kind.__name__}, got {got}', path=path)
    return content


def number(value: Any) -> float | None:
    """A finite number, or None for anything else.

    >>> number(1), number("1"), number(float("nan"))
    (1.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def section(value: Any, *keys: str) -> dict[str, Any]:
    """The nested object under these keys; empty if there is none.

    >>> section({"scores": {"dev": {"f1": 0.5}}}, "scores", "dev")
    {'f1': 0.5}
    >>> section({"scores": None}, "scores", "test")
    {}
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items_of(value: Any) -> list[Any]:
    """The items of a list; empty for anything else.

    >>> items_of([1, 2]), items_of(5)
    ([1, 2], [])
    """
    return value if isinstance(value, list) else []


def objects_of(value: Any) -> list[dict[str, Any]]:
    """Returns the objects (dicts) of a list; leaves out everything else."""
    return [item for item in items_of(value) if isinstance(item, dict)]


Span = tuple[int, int, str]
Unit = Span | str

_SEEN_FOR_SCHEME = 5000
LENIENT = "lenient"
NO_ANSWER = "(no answer)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One example with its gold and predicted units.

    Attributes:
        id: Its id in the data.
        words: Its words, for tasks over words.
        text: Its text, for the others.
        gold: The gold units; for a question, the gold answer.
        predicted: The predicted units.
        scores: The probability of every label, if the line has them.
    """

    id: str
    words: tuple[str, ...] = ()
    text: str = ""
    gold: frozenset[Unit]
    predicted: frozenset[Unit]
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        """The number of missing and extra units."""
        return len(self.gold ^ self.predicted)


def detect_gold_scheme(path: Path) -> str | None:
    """Detects the scheme of the gold tags of a file; None for plain tags, or no tags.

    If predictions have tags that the scheme lacks (a few gold sentences may not show all of it),
    spans are read by conlleval's rules, which know the prefixes of all schemes.
    """
    lines = [line for line in islice(read_lines(path), _SEEN_FOR_SCHEME) if "tags" in line]
    try:
        scheme = detect_scheme([items_of(line.get("gold")) for line in lines])
    except (AttributeError, TypeError, ValueError):
        return None
    known = all(scheme.has(str(tag)) for line in lines for tag in items_of(line["tags"]))
    return scheme.name if known else LENIENT


def read_items(path: Path, *, scheme: str | None) -> Iterator[Item]:
    """Reads the items of a predictions file; skips lines of an unknown form."""
    try:
        for line in _join_queries(read_lines(path)):
            item = _read_item(line, scheme)
            if item is not None:
                yield item
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"wanted predictions of a task, got: {error}", path=path) from None


def _read_item(line: dict[str, Any], scheme: str | None) -> Item | None:
    name = str(line.get("id", ""))
    if "tags" in line and len(line["gold"]) != len(line["words"]):
        return None  # no gold tags to judge by
    if "tags" in line:
        gold, predicted = (_units(line[key], scheme) for key in ("gold", "tags"))
        return Item(id=name, words=tuple(map(str, line["words"])), gold=gold, predicted=predicted)
    if "units" in line:
        gold, predicted = map(frozenset, line["units"])
        return Item(id=name, words=tuple(map(str, line["words"])), gold=gold, predicted=predicted)
    if "answer" in line:
        return _read_answer(name, line)
    if "label" in line or "labels" in line:
        labels = line["labels"] if "labels" in line else [line["label"]]
        labels = [label for label in labels if label is not None]  # the model abstained
        parts = (line.get(key) for key in ("text", "first", "second"))
        return Item(
            id=name,
            text=" ⇄ ".join(str(part) for part in parts if part),
            gold=frozenset(map(str, line.get("gold") or ())),
            predicted=frozenset(map(str, labels)),
            scores={x: number(p) or 0.0 for x, p in section(line, "probabilities").items()},
        )
    return None


def _units(tags: list[str], scheme: str | None) -> frozenset[Unit]:
    if scheme is None:
        return frozenset((place, place + 1, str(tag)) for place, tag in enumerate(tags))
    return frozenset(decode_lenient(tags) if scheme == LENIENT else decode_strict(tags, scheme))


def _read_answer(name: str, line: dict[str, Any]) -> Item:
    """Reads a question: the prediction is right if it equals any gold answer."""
    answers = [_normal(part) for part in line.get("answers") or [line["answer"]]]
    predicted = " + ".join(answers) or NO_ANSWER
    listed = [gold if isinstance(gold, list) else [gold] for gold in line.get("gold") or ()]
    golds = [" + ".join(map(_normal, gold)) or NO_ANSWER for gold in listed]
    gold = predicted if predicted in golds else (golds or [NO_ANSWER])[0]
    text = f"{line.get('question', '')} — {line.get('context', '')}"
    return Item(id=name, text=text, gold=frozenset([gold]), predicted=frozenset([predicted]))


def _normal(answer: Any) -> str:
    return " ".join(str(answer).split()).casefold()


def _join_queries(lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Merges consecutive lines about the same sentence (BERT-MRC has one query per label).

    If a label is asked for again, the next sentence has the same words.
    """
    held: dict[str, Any] | None = None
    for line in lines:
        if "spans" not in line or "words" not in line:
            yield line
            continue
        units = [_labelled(line[key], str(line.get("label", ""))) for key in ("gold", "spans")]
        asked = line.get("label")
        same = held is not None and asked is not None and held["words"] == line["words"]
        if held is not None and same and asked not in held["asked"]:
            for place, more in enumerate(units):
                held["units"][place].extend(more)
            held["asked"].add(asked)
            continue
        if held is not None:
            yield held
        held = {"id": line.get("id", ""), "words": line["words"], "units": units, "asked": {asked}}
    if held is not None:
        yield held


def _labelled(spans: list[Any], label: str) -> list[Span]:
    """Returns spans with their own labels, or with the one label that the line asks for."""
    out = [(int(start), int(end), str(*own) if own else label) for start, end, *own in spans]
    for start, end, _ in out:
        if not 0 <= start < end:
            raise ValueError(f"a span from {start} to {end}")
    return out


Pair = tuple[str, str]

OUTSIDE = "O"
NONE = "(none)"


def confuse(item: Item) -> Iterator[Pair]:
    """The (gold, predicted) pairs of one item; words outside all spans are left out.

    >>> item = Item(id="1", words=("Ada", "ran"), gold=frozenset({(0, 1, "PER")}),
    ...             predicted=frozenset({(0, 2, "LOC")}))
    >>> list(confuse(item))
    [('PER', 'LOC'), ('O', 'LOC')]
    """
    if item.words:
        gold, predicted = (_by_word(item, units) for units in (item.gold, item.predicted))
        yield from (
            pair for pair in zip(gold, predicted, strict=True) if pair != (OUTSIDE, OUTSIDE)
        )
        return
    yield from ((str(unit), str(unit)) for unit in sorted(item.gold & item.predicted, key=str))
    missed = sorted(map(str, item.gold - item.predicted)) or [NONE]
    extra = sorted(map(str, item.predicted - item.gold)) or [NONE]
    yield from ((a, b) for a in missed for b in extra if (a, b) != (NONE, NONE))


def _by_word(item: Item, units: frozenset[Span | str]) -> list[str]:
    labels = [OUTSIDE] * len(item.words)
    for start, end, label in sorted(unit for unit in units if not isinstance(unit, str)):
        labels[start:end] = [label] * (min(end, len(labels)) - start)
    return labels
