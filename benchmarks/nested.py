"""Nested and overlapping spans: BERT-MRC beside taggers, on CoNLL-2003 with two more layers.

    python benchmarks/corpora_data.py ../shared work --only en
    python benchmarks/nested.py run work --jobs 15 --seeds 3
    python benchmarks/nested.py table

CoNLL-2003 is flat. `run` first makes nested data of it, in `work/data/nested`, by two rules:

- PHRASE: a noun phrase of the chunk column that holds a whole name and at least one more word.
- Names inside names: in a LOC, MISC or ORG, the longest words that are a name of their own
  elsewhere in the corpus, three times at least and most often a LOC or MISC, and have another label
  than the name around them.

Then it trains and scores five systems on all spans: a tagger on the outermost spans (what a flat
tagger can say), three taggers, one for each layer, whose spans are put together, a span classifier
(`span_ner`), and BERT-MRC with and without a head that judges pairs of start and end. It writes a
line for each system and seed into results/nested.csv, and `table` puts their means into
docs/tutorials/names.md.
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from beyond import make_parser, put
from corpora import HERE, make_recipe, read_csv
from leads_data import PARTS, read_blocks, write

from softf1.experiments.grid import Job
from softf1.experiments.workers import Pool
from softf1.metrics.schemes import count_nested, decode_lenient
from softf1.recipe import describe_recipe, with_values
from softf1.recipe.loading import parse_override

if TYPE_CHECKING:
    import argparse

Span = tuple[int, int, str]

RESULTS = HERE / "results" / "nested.csv"
PAGE = HERE.parent / "docs" / "tutorials" / "names.md"
MARKS = "<!-- nested -->\n", "<!-- end of nested -->\n"
PHRASE, CHUNK = "PHRASE", "NP"
HOLDERS, HELD, MENTIONS = ("LOC", "MISC", "ORG"), ("LOC", "MISC"), 3
LAYERS = ("phrases", "names", "inner")
"""No two spans of a layer overlap."""
QUERY = "Which noun phrases hold a name and more words?"
TAGGER = {
    "recipe": "conll03-tagger",
    "encoder": "en",
    "values": ["train.epochs=3", "train.lr=2e-4"],
}
MRC = {
    "recipe": "conll03",
    "encoder": "en",
    "values": [
        "train.epochs=2", "train.lr=3e-4", "train.batch_size=128", "train.accumulate=1",
        "train.eval_every=1", "task.nested=true", f"task.queries.{PHRASE}={QUERY}",
    ],
}  # fmt: skip
"""The settings of conll03-tagger and conll03-mrc in corpora.toml."""
SPANS = {"task.kind": "span_ner", "task.nested": True, "task.unit": None, "task.scheme": None}
"""What makes a span classifier of a tagger."""


class Part(NamedTuple):
    """A model of a system.

    Attributes:
        grid: Its recipe.
        file: The files that it learns from.
        values: Further changes to the recipe.
    """

    grid: dict[str, Any]
    file: str
    values: dict[str, Any]


SYSTEMS = {
    "BERT-MRC, judges pairs": [Part(MRC, "nested", {"task.match": "concat"})],
    "BERT-MRC": [Part(MRC, "nested", {})],
    "span classifier": [Part(TAGGER, "nested", SPANS)],
    "three taggers, one for each layer": [Part(TAGGER, layer, {}) for layer in LAYERS],
    "one tagger, outermost spans": [Part(TAGGER, "outer", {})],
}
"""The slowest first, so that no process waits for them at the end."""
COLUMNS = (
    "system", "loss", "seed", "f1", "precision", "recall", "phrase_f1", "name_f1", "inner_recall",
    "spans", "nested", "inner", "train_seconds", "device", "torch", "transformers", "softf1",
)  # fmt: skip


class Sentence(NamedTuple):
    """The words of a sentence and its spans by layer."""

    words: list[str]
    layers: dict[str, list[Span]]

    @property
    def spans(self) -> list[Span]:
        """The spans of all layers."""
        return sorted(span for own in self.layers.values() for span in own)


def read_sentences(source: Path) -> dict[str, list[Sentence]]:
    """The sentences of all parts, with their layers."""
    rows: dict[str, list[list[list[str]]]] = {}
    for part, name in PARTS.items():
        blocks = [[line.split() for line in b.splitlines()] for b in read_blocks(source / name)]
        rows[part] = [block for block in blocks if block[0][0] != "-DOCSTART-"]
    names = count_names([block for own in rows.values() for block in own])
    return {part: [find_layers(block, names) for block in own] for part, own in rows.items()}


def count_names(blocks: list[list[list[str]]]) -> dict[tuple[str, ...], Counter[str]]:
    """How often some words are a whole name of each label; upper and lower case are one."""
    found: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for block in blocks:
        words = [row[0].lower() for row in block]
        for start, end, label in decode_lenient([row[-1] for row in block]):
            found[tuple(words[start:end])][label] += 1
    return found


def find_layers(block: list[list[str]], names: dict[tuple[str, ...], Counter[str]]) -> Sentence:
    """The names of a sentence, the names in them, and the noun phrases around them."""
    words = [row[0] for row in block]
    own = sorted(decode_lenient([row[-1] for row in block]))
    chunks = [span for span in decode_lenient([row[2] for row in block]) if span[2] == CHUNK]
    phrases = [
        (start, end, PHRASE)
        for start, end, _ in sorted(chunks)
        if any(start <= a and b <= end for a, b, _ in own)
        and not any((a, b) == (start, end) for a, b, _ in own)
    ]
    inner = [span for name in own for span in find_inner(words, name, names)]
    return Sentence(words, {"phrases": phrases, "names": own, "inner": inner})


def find_inner(
    words: list[str], name: Span, names: dict[tuple[str, ...], Counter[str]]
) -> list[Span]:
    """The names inside a name, the longest first where some overlap."""
    start, end, label = name
    found: list[Span] = []
    if label not in HOLDERS:
        return found
    for length in range(end - start - 1, 0, -1):
        for a in range(start, end - length + 1):
            b = a + length
            counts = names.get(tuple(word.lower() for word in words[a:b]), Counter())
            most = max(counts, key=lambda one: counts[one], default=None)
            free = all(b <= other or a >= last for other, last, _ in found)
            often = counts.total() >= MENTIONS and most and 2 * counts[most] > counts.total()
            if free and often and most in HELD and most != label:
                found.append((a, b, most))
    return sorted(found)


def keep_outermost(spans: list[Span]) -> list[Span]:
    """The spans that no longer one holds or crosses.

    >>> keep_outermost([(0, 3, "PHRASE"), (1, 3, "ORG"), (2, 3, "LOC"), (5, 6, "PER")])
    [(0, 3, 'PHRASE'), (5, 6, 'PER')]
    """
    kept: list[Span] = []
    for span in sorted(spans, key=lambda own: own[0] - own[1]):
        if all(span[1] <= start or span[0] >= end for start, end, _ in kept):
            kept.append(span)
    return sorted(kept)


def make_data(work: Path) -> list[Sentence]:
    """Write the files of all systems; return the test sentences."""
    sentences = read_sentences(work / "data" / "conll03")
    for part, own in sentences.items():
        for name in ("nested", "outer", *LAYERS):
            lines = []
            for one in own:
                spans = one.layers[name] if name in LAYERS else one.spans
                spans = keep_outermost(spans) if name == "outer" else spans
                lines.append(json.dumps({"words": one.words, "entities": spans}) + "\n")
            write(work / "data" / "nested" / name / f"{part}.jsonl", "".join(lines))
        spans = [one.spans for one in own]
        counts = {layer: sum(len(one.layers[layer]) for one in own) for layer in LAYERS}
        overlap = sum(map(count_nested, spans))
        print(f"{part}: {len(own)} sentences, {sum(map(len, spans))} spans: {counts}, of which")
        print(f"  {overlap} lie inside another or cross one ({sum(map(count_crossing, spans))})")
    return sentences["test"]


def count_crossing(spans: list[Span]) -> int:
    """How many pairs of spans cross: neither holds the other.

    >>> count_crossing([(0, 3, "PHRASE"), (2, 5, "ORG"), (4, 5, "LOC")])
    1
    """
    return sum(a < c < b < d for a, b, _ in spans for c, d, _ in spans)


def list_jobs(options: argparse.Namespace) -> dict[str, Job]:
    """The runs of all systems, by system, seed and part."""
    jobs = {}
    changes = dict(map(parse_override, options.values))
    for system in options.systems:
        for seed in range(options.seeds):
            for number, part in enumerate(SYSTEMS[system]):
                folder = options.work / "data" / "nested" / part.file
                files = {f"task.{name}": str(folder / f"{name}.jsonl") for name in PARTS}
                values = {"task.format": "spans", "train.seed": seed, "train.patience": 0}
                values |= {"loss.name": options.loss}
                recipe = make_recipe(part.grid, options.work)
                recipe = with_values(recipe, files | values | part.values | changes)
                key = f"{system}/{seed}/{number}"
                name = f"{list(SYSTEMS).index(system)}-{options.loss}-{seed}-{number}"
                run = Path(options.runs).absolute() / name
                jobs[key] = Job(id=key, recipe=describe_recipe(recipe), folder=str(run))
    return jobs


def run(options: argparse.Namespace) -> None:
    """Train all systems and write their scores."""
    test = make_data(options.work)
    jobs = list_jobs(options)
    results = {}
    with closing(Pool(options.jobs, logs=Path(options.runs) / "logs")) as pool:
        for done in pool(list(jobs.values())):
            if done.result is None:
                raise SystemExit(f"{done.id}: {done.error}")
            results[done.id] = done.result
            print(f"{done.id}: {done.seconds:.0f} s", flush=True)
    rows = []
    for system in options.systems:
        for seed in range(options.seeds):
            keys = [f"{system}/{seed}/{number}" for number in range(len(SYSTEMS[system]))]
            by_part = [read_spans(Path(jobs[key].folder), test) for key in keys]
            found = [set[Span]().union(*own) for own in zip(*by_part, strict=True)]
            row = {"system": system, "loss": options.loss, "seed": seed, **score(test, found)}
            seconds = sum(results[key]["seconds"]["train"] for key in keys)
            versions = results[keys[0]]["versions"]
            row |= {"train_seconds": seconds, "device": results[keys[0]]["device"]}
            rows.append(row | {name: versions[name] for name in COLUMNS[-3:]})
    new = {(system, options.loss) for system in options.systems}
    kept = [row for row in read_csv(options.out) if (row["system"], row["loss"]) not in new]
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *rows])
    print(make_table(options.out))


def read_spans(folder: Path, test: list[Sentence]) -> list[set[Span]]:
    """The spans that a run found in each test sentence: tags of words, or answers to queries."""
    text = (folder / "predictions.test.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    asked = len(lines) // len(test)
    found: list[set[Span]] = [set() for _ in test]
    for number, line in enumerate(lines):
        place = number // asked
        if line["words"] != test[place].words:
            raise SystemExit(f"{folder}: line {number + 1} is not of test sentence {place + 1}")
        if "tags" in line:
            found[place] |= set(decode_lenient(line["tags"]))
        else:
            asked_for = [line["label"]] if "label" in line else []
            found[place] |= {(*span, *asked_for) for span in line["spans"]}
    return found


def score(test: list[Sentence], found: list[set[Span]]) -> dict[str, Any]:
    """F1 of all spans, of phrases and of names, and the share of inner names that was found."""
    both = list(zip((set(one.spans) for one in test), found, strict=True))

    def measure(phrases: tuple[bool, ...]) -> tuple[float, float, float]:
        kept = [
            [{span for span in own if (span[2] == PHRASE) in phrases} for own in pair]
            for pair in both
        ]
        hits = sum(len(gold & own) for gold, own in kept)
        wanted, given = (sum(len(pair[side]) for pair in kept) for side in (0, 1))
        return (
            hits / max(given, 1),
            hits / max(wanted, 1),
            2 * hits / max(wanted + given, 1),
        )

    precision, recall, f1 = measure((True, False))
    inner = [(set(one.layers["inner"]), own) for one, own in zip(test, found, strict=True)]
    count = sum(len(gold) for gold, _ in inner)
    scores = {
        "f1": f1, "precision": precision, "recall": recall,
        "phrase_f1": measure((True,))[2], "name_f1": measure((False,))[2],
        "inner_recall": sum(len(gold & own) for gold, own in inner) / max(count, 1),
    }  # fmt: skip
    counts = {
        "spans": sum(len(one.spans) for one in test),
        "nested": sum(count_nested(one.spans) for one in test),
        "inner": count,
    }
    return {key: round(value, 6) for key, value in scores.items()} | counts


def make_table(path: Path) -> str:
    """The mean scores of each system in Markdown, the best first, and what was measured."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in read_csv(path):
        rows[row["system"], row["loss"]].append(row)
    if not rows:
        return "Not measured yet.\n"
    one, seeds = next(iter(rows.values()))[0], {len(own) for own in rows.values()}
    heads = ("F1", "precision", "recall", "F1, phrases", "F1, entities", "inner entities found")
    keys = ("f1", "precision", "recall", "phrase_f1", "name_f1", "inner_recall")
    several = len({loss for _, loss in rows}) > 1
    lines = [f"| system | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    for (system, loss), own in sorted(
        rows.items(), key=lambda pair: -mean(float(row["f1"]) for row in pair[1])
    ):
        values = {key: [100 * float(row[key]) for row in own] for key in keys}
        cells = [f"{mean(values[key]):.1f}" for key in keys]
        if len(own) > 1:
            cells[0] += f" ± {stdev(values['f1']):.1f}"
        name = f"{system}, `{loss}`" if several else system
        lines.append(f"| {name} | {' | '.join(cells)} |")
    count = f"{int(one['spans']):,} spans, {int(one['nested']):,} of them overlapping"
    about = f"{count}, {one['inner']} entities inside entities"
    machine = f"{one['device']}, torch {one['torch']}, transformers {one['transformers']}"
    lines += ["", f"Test: {about}. {min(seeds)} seeds; ± is their standard deviation. {machine}."]
    return "\n".join(lines) + "\n"


def write_table(options: argparse.Namespace) -> None:
    """Put the table into its page."""
    put(PAGE, MARKS, make_table(options.out))


def main() -> None:
    """Run or write the table."""
    parser, _, verb = make_parser(
        __doc__, run=run, table=write_table, out=RESULTS, runs="nested-runs", seeds=3
    )
    verb.add_argument("--loss", default="ce")
    verb.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
