"""Mutated files end in data or in an InputError, never in anything else."""

import gzip
import json
from contextlib import suppress
from random import Random

import pytest

from softf1.data import FORMATS, Problems, TaggedSentence, detect, iterate, mrc, tags
from softf1.errors import InputError

CONTEXT = "Ida Roth built the mill. It burned in 1822, and Roth left."
SQUAD = {
    "version": "2.0",
    "data": [
        {
            "title": "Mill",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "context_id": "c",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "When?",
                            "is_impossible": False,
                            "answers": [{"text": "1822", "answer_start": 38}],
                        },
                        {"id": "q2", "question": "Who?", "is_impossible": True, "answers": []},
                        {"id": "q3", "question": "Wer, \u00e4h?", "answers": []},
                    ],
                }
            ],
        }
    ],
}
MRC = [
    {
        "qas_id": "0.1",
        "query": "find names",
        "context": "Ida Roth left",
        "entity_label": "PER",
        "start_position": [0],
        "end_position": [1],
        "span_position": ["0;1"],
        "impossible": False,
    },
    {"query": "find names", "context": "It rained", "start_position": [], "end_position": []},
]
SPANS = """{"words": ["the", "Bank", "of", "Graz"], "entities": [[1, 4, "ORG"], [3, 4, "LOC"]]}
{"text": "in Graz.", "entities": [{"start": 3, "end": 7, "label": "LOC"}]}
{"tokens": ["it", "rained"], "ner": [], "id": 3}
"""
UD = "# sent_id = 1\n1-2\tdel\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\t_\tADP\tP\t_\t0\troot\t_\t_\n"
ONTO = "#begin document\nd 0 0 Ida NN * - - - s (PER* * -\nd 0 1 Roth NN * - - - s *) * -\n\n"

SEEDS = {
    "conll": "-DOCSTART- -X- O\n\nIda NNP I-PER\nleft VBD O\n\n\nGraz NNP B-LOC\n",
    "conll2012": ONTO * 2,
    "chars": "王 B-PER\n芳 E-PER\n  O\n\n好 S-X\n",
    "conllu": UD + "2\tel\t_\tDET\tD\t_\t0\tdet\t_\t_\n\n1\tsol\t_\tNOUN\tN\t_\t0\troot\t_\t_\n",
    "tagged": "<S ID=1>\n他_PN 住_VV 北京_NR 。_PU\n</S>\n好_VA\n",
    "spans": SPANS,
    "spans-json": "[" + SPANS.strip().replace("}\n", "},\n") + "]",
    "squad": json.dumps(SQUAD, indent=1),
    "quoref": json.dumps(SQUAD),
    "mrc": json.dumps(MRC, indent=1),
    "mrpc": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t1\t2\tA b .\tB a .\r\n" * 2,
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tWhy?\tHow?\t0\n",
    "tsv": "id\ttext\tlabel\tfirst\tsecond\n1\tA film.\tgood\ta b\tb a\n2\tOdd.\tbad\tc\td\n",
    "csv": 'text,label,first,second\n"A, ""film"".",good,a,b\nOdd,bad,"c\nd",e\n',
    "jsonl": '{"text": "a", "label": ["x"], "first": "a", "second": "b"}\n{"text": "b"}',
    "json": '[{"text": "a", "label": 1, "first": "a", "second": "b"},\n {"text": "b", "label": 0}]',
    "lines": "1 a fine film\n0 an odd one\n1 again\n",
    "plain": "a fine film\tan odd one\n\nagain\tand again\n",
}
PIECES = [
    *(b"", b"\n", b"\n\n", b"\r", b"\t", b" ", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\x1f\x8b"),
    *(b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-1", b"1e999", b"NaN"),
    *(b"9" * 5000, b"\\ud800", b"\\u0000", b"#", b"-DOCSTART-", b"B-", b"I-PER", b"O", b"_", b"(*"),
    *("é".encode(), "\u3000".encode(), "\u2028".encode(), "😀".encode()),
]


def mutate(data, random):
    """One to four changes: pieces put in, cut out, doubled, moved, bytes changed, compressed."""
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(data) + 1)
        end = min(len(data), start + random.choice((0, 1, 1, 2, 5, 40)))
        choice = random.random()
        if choice < 0.5:
            data = data[:start] + random.choice(PIECES) + data[end:]
        elif choice < 0.65:
            data = data[:start] + data[start:end] * 2 + data[end:]
        elif choice < 0.8:
            data = data[:start] + bytes([random.randrange(256)]) + data[start + 1 :]
        elif choice < 0.9:
            data = data[:start] if random.random() < 0.5 else data[start:]
        else:
            lines = data.split(b"\n")
            random.shuffle(lines)
            data = b"\n".join(lines)
    if random.random() < 0.05:
        data = gzip.compress(data, 1)
        data = data[: random.randrange(len(data) + 1)] if random.random() < 0.5 else data
    return data


COUNT = 3_000
"""Files of each format in the long form: 48,000 of all."""
OPTIONS = {
    "conll": [{}, {"tag": None}, {"tag": 1}, {"comment": "#"}, {"separator": ","}],
    "chars": [{}, {"tagged": False}],
    "conllu": [{}, {"tag": "xpos"}],
    "spans": [{}, {"inclusive": True}],
    "spans-json": [{}, {"inclusive": True}],
    "squad": [{}, {"offsets": "nearest"}],
    "quoref": [{}, {"offsets": "nearest"}],
    "tsv": [{}, {"label_separator": "|"}, {"text": 0, "first": 0, "second": 1, "label": "2"}],
    "csv": [{}, {"header": False, "text": 0, "first": 0, "second": 1}],
    "lines": [{}, {"label_separator": ","}],
    "plain": [{}, {"characters": True}],
}


def read_mutated(name, path, random):
    """Reads one file in a random way; returns whether data came of it."""
    task = random.choice(FORMATS[name].tasks)
    problems = Problems(random.choice(("raise", "skip")))
    options = dict(random.choice(OPTIONS.get(name, [{}])))
    if name not in ("json", "spans-json", "squad", "quoref", "mrc") and random.random() < 0.3:
        options["encoding_errors"] = "replace"
    try:
        examples = list(iterate(path, format=name, task=task, problems=problems, **options))
        if task == "tagging" and (scheme := tags.find_scheme(examples)):
            list(tags.convert(examples, source=scheme, target="BIOES", repair=True))
        for example in examples:
            repr(example).encode()  # no half surrogates
            assert not isinstance(example, TaggedSentence) or example.words
    except InputError:
        return False
    finally:
        str(problems).encode()
    return True


def fuzz(name, folder, count, seed):
    random = Random(seed)
    path = folder / "data"
    original = SEEDS[name].encode()
    outcomes = {True: 0, False: 0}
    for _ in range(count):
        path.write_bytes(mutate(original, random))
        outcomes[read_mutated(name, path, random)] += 1
        if random.random() < 0.2:
            with suppress(InputError):
                detect.detect(path)
    return outcomes


def test_every_format_but_the_library_has_a_seed():
    assert set(SEEDS) == set(FORMATS) - {"hf"}


@pytest.mark.parametrize("name", SEEDS)
def test_the_seed_itself_is_data(name, write):
    task = FORMATS[name].tasks[0]
    assert list(iterate(write(SEEDS[name]), format=name, task=task, problems=Problems("skip")))


@pytest.mark.parametrize("name", SEEDS)
def test_mutated_files(name, tmp_path):
    outcomes = fuzz(name, tmp_path, 1000, seed=f"{name} short")
    assert all(outcomes.values()), "mutations must lead to both data and errors to mean anything"


def test_mutated_query_files(tmp_path):
    random = Random("queries")
    path = tmp_path / "queries.json"
    original = json.dumps({"default": {"PER": "find names", "LOC": "find places"}}).encode()
    outcomes = {True: 0, False: 0}
    for _ in range(1000):
        path.write_bytes(mutate(original, random))
        try:
            queries = mrc.read_queries(path)
        except InputError:
            outcomes[False] += 1
        else:
            assert all(isinstance(query, str) for query in queries.values())
            outcomes[True] += 1
    assert all(outcomes.values())


@pytest.mark.slow
@pytest.mark.attack
@pytest.mark.parametrize("name", SEEDS)
def test_mutated_files_long(name, tmp_path, attacked):
    outcomes = fuzz(name, tmp_path, COUNT, seed=f"{name} long")
    assert outcomes[True] + outcomes[False] == COUNT
    assert all(outcomes.values())
    attacked("mutated data files", COUNT, used=outcomes[True], refused=outcomes[False])
