"""Files with a value of another form: a page all the same, or one line that names the file."""

import copy
import json
import random
from collections import Counter

import pytest

from softf1.errors import InputError
from softf1.reports import page
from softf1.reports.curves import rank
from softf1.reports.evidence import collect, rank_changes
from softf1.reports.labels import label_order
from softf1.reports.reading import confuse, detect_gold_scheme, read_items
from softf1.reports.study import read_study
from softf1.reports.suspects import write_suspects
from tests.reports import grids
from tests.reports.test_headroom import content as headroom

OTHER = (None, 5, -1.5, "x", [], {}, [1], ["a"], {"a": 1}, True, float("nan"))
FILES = (
    "grid.json",
    "comparison.json",
    "cells/ce-s0/result.json",
    "cells/ce-s0/metrics.jsonl",
    "cells/ce-s0/predictions.test.jsonl",
    "cells/ce-s0/headroom.json",
)


def paths(value, at=()):
    """The way to every value in a JSON value."""
    for key in value if isinstance(value, dict) else range(min(len(value), 2)):
        yield (*at, key)
        if isinstance(value[key], (dict, list)):
            yield from paths(value[key], (*at, key))


def damages(value):
    for path in paths(value):
        for other in OTHER:
            damaged = copy.deepcopy(value)
            inner = damaged
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = other
            yield damaged


def check(folder, name, sample=None):
    file = folder / name
    whole = file.read_text(encoding="utf-8")
    first, *rest = whole.splitlines() if name.endswith(".jsonl") else [whole]
    tried = list(damages(json.loads(first)))
    random.Random(name).shuffle(tried)
    refused, tried = 0, tried[:sample]
    for damaged in tried:
        file.write_text("\n".join([json.dumps(damaged), *rest]) + "\n", encoding="utf-8")
        try:
            page.render(read_study([folder]), library="")
        except InputError as error:
            assert ".json" in str(error)  # noqa: PT017 - a page is as good as this error
            refused += 1
    return {"tried": len(tried), "used": len(tried) - refused, "refused": refused}


@pytest.fixture
def folder(tmp_path):
    losses = ("ce", "ce+tuned", "dice")
    made = grids.write_compare(tmp_path / "g", losses=losses, seeds=1, sentences=12)
    grids.write_json(made / "cells/ce-s0/headroom.json", headroom(0.5, 0.6))
    return made


@pytest.mark.parametrize("name", FILES)
def test_some_damage(folder, name):
    check(folder, name, sample=8)


@pytest.mark.slow
@pytest.mark.attack
@pytest.mark.parametrize("name", FILES)
def test_much_damage(folder, name, attacked):
    attacked("damaged files of reports", **check(folder, name, sample=300))


def scramble(rng, data):
    """The bytes of a file cut, exchanged, with others between, or something else altogether."""
    at = rng.randrange(min(len(data), 2000))
    more = rng.choice([b"\xff\xfe", b"{", b"[" * 2000, b"\x00", b'"', b"\n"])
    return rng.choice(
        [
            data[: rng.randrange(len(data))],
            data[:at] + more + data[at:],
            data[:at] + rng.randbytes(3) + data[at + 3 :],
            rng.choice([b"", b"[]", b"null", b"{}", b"\xff", b'{"schema": 1}', b"[" * 100_000]),
        ]
    )


def check_bytes(folder, seeds):
    refused = 0
    for seed in seeds:
        rng = random.Random(seed)
        file = folder / rng.choice([*FILES, "cells/ce-s0/recipe.toml"])
        whole = file.read_bytes() if file.is_file() else b"name = 1"
        file.write_bytes(scramble(rng, whole))
        try:
            page.render(read_study([folder]), library="")
        except InputError as error:
            assert str(folder) in str(error), seed  # noqa: PT017 - as above
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, {file.name}: {error!r}") from error
        finally:
            file.write_bytes(whole)
    return {"tried": len(seeds), "used": len(seeds) - refused, "refused": refused}


def test_some_bytes_of_reports(folder):
    check_bytes(folder, range(40))


@pytest.mark.slow
@pytest.mark.attack
def test_many_bytes_of_reports(folder, attacked):
    attacked("damaged files of reports", **check_bytes(folder, range(800)))


SUSPECTS = {
    "schema": 1,
    "kind": "suspects",
    "name": "a",
    "task": "tagging",
    "encoder": "bilstm",
    "loss": "ce",
    "seed": 0,
    "versions": {"softf1": "1"},
    "files": ["a.conll"],
    "examples": 9,
    "headline": "f1",
    "score": 0.5,
    "folds": 2,
    "found": 2,
    "unknown": 0,
    "kinds": {"wrong label": 1, "missing": 1},
    "suspects": [
        {
            "file": "a.conll",
            "line": 3,
            "id": "1",
            "kind": "wrong label",
            "score": 0.9,
            "given": [{"label": "PER", "start": 1, "end": 2, "text": "Oslo"}],
            "suggested": [{"label": "LOC", "start": 1, "end": 2, "text": "Oslo"}],
            "pieces": ["to", "Oslo", "she ran"],
        },
        {
            "file": "a.conll",
            "line": 5,
            "id": "2",
            "kind": "missing",
            "score": 0.8,
            "given": [],
            "suggested": [{"label": "LOC"}],
            "pieces": ["", "Graz", ""],
        },
    ],
}


def check_suspects(folder, sample=None):
    tried = [json.dumps(one) for one in damages(SUSPECTS)]
    tried += ["", "[]", "5", "{", "[" * 100_000, json.dumps(SUSPECTS)[:200]]
    random.Random("suspects").shuffle(tried)
    refused, tried = 0, tried[:sample]
    for damaged in tried:
        (folder / "suspects.json").write_text(damaged, "utf-8")
        try:
            write_suspects(folder)
        except InputError as error:
            assert "suspects.json" in str(error)  # noqa: PT017 - as above
            refused += 1
    return {"tried": len(tried), "used": len(tried) - refused, "refused": refused}


def test_suspects_of_the_right_form_have_a_page(tmp_path):
    grids.write_json(tmp_path / "suspects.json", SUSPECTS)
    assert "Oslo" in write_suspects(tmp_path).read_text("utf-8")


def test_some_damaged_suspects(tmp_path):
    check_suspects(tmp_path, sample=40)


@pytest.mark.slow
@pytest.mark.attack
def test_many_damaged_suspects(tmp_path, attacked):
    attacked("damaged files of reports", **check_suspects(tmp_path))


LINES = (
    {"id": "1", "words": ["Ada", "ran"], "gold": ["B-PER", "O"], "tags": ["O", "O"]},
    {"id": "1", "words": ["it", "ran"], "gold": ["PRON", "VERB"], "tags": ["PRON", "NOUN"]},
    {"id": "1", "words": ["Ada"], "query": "who", "label": "PER", "gold": [[0, 1]], "spans": []},
    {"id": "1", "text": "a", "gold": ["x"], "label": "y", "probabilities": {"x": 0.1, "y": 0.9}},
    {"id": "1", "first": "a", "second": "b", "gold": ["x"], "labels": ["x"]},
    {"id": "1", "question": "a", "context": "b", "gold": [["x"]], "answer": "x", "answers": ["x"]},
)


@pytest.mark.parametrize("line", LINES)
def test_damaged_lines_of_every_task(tmp_path, line):
    path, refused = tmp_path / "p.jsonl", 0
    tried = list(damages(line))
    for damaged in tried:
        grids.write_lines(path, [damaged, line])
        try:
            items = list(read_items(path, scheme=detect_gold_scheme(path)))
        except InputError as error:
            assert "p.jsonl" in str(error)  # noqa: PT017 - as above
            refused += 1
            continue
        records = []
        collect(records, items)
        changes = rank_changes(records, records[::-1], runs=(1, 1))
        assert all(isinstance(piece, str) for c in changes.kept for piece, _ in c.pieces)
        labels = label_order(Counter(pair for item in items for pair in confuse(item)))
        assert all(isinstance(label, str) for label in labels)
        rank(items)
    assert refused < len(tried)
