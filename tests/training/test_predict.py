import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path

import pytest

from softf1.data.examples import MrcExample, TextExample
from softf1.data.problems import Problems
from softf1.errors import InputError
from softf1.models.encoders import make_tokenizer
from softf1.tasks import make_task
from softf1.training.evaluation import evaluate
from softf1.training.predict import cut, predict_lines, read_input
from softf1.training.publish import Loaded
from tests.tasks.cases import CASES

every_case = pytest.mark.parametrize("case", CASES, indirect=True)
texts = pytest.mark.parametrize("case", [("classification", {}, "textcnn")], indirect=True)


def load(case):
    task, _, tokenizer, model, _ = case
    return Loaded(model.eval(), task, tokenizer)


def told(lines):
    return [json.loads(line) for line in lines]


@every_case
def test_chunks_change_nothing(case):
    task, _, tokenizer, model, examples = case
    many = examples * 3
    wanted = evaluate(
        model, task, task.encode(many, tokenizer), many, tokenizer, device="cpu"
    ).predictions
    for chunk in (1, 4, 1000):
        found = told(predict_lines(load(case), iter(many), chunk=chunk))
        assert len(found) == len(many)
        for line, prediction in zip(found, wanted, strict=True):
            sure = prediction.get("confidence", [])
            assert line.get("confidence", []) == pytest.approx(sure, abs=1e-5)
            for key, value in prediction.items():
                if key != "confidence" and isinstance(value, str | list):
                    assert line[key] == json.loads(json.dumps(value)), key


@texts
def test_thresholds_of_the_model_are_used(case):
    model, task, tokenizer = load(case)
    examples = [TextExample("Ann works", (), line=1)]
    for threshold, label in ((0.0, "work"), (1.1, "travel")):
        own = replace(task, positive="work", thresholds=(threshold,))
        strict = Loaded(model, own, tokenizer)
        (line,) = told(predict_lines(strict, examples))
        assert line["label"] == label
        assert "gold" not in line


@texts
def test_no_label_at_all_is_a_gold_too_where_others_have_one(case):
    examples = [TextExample("Ann works", own, line=i) for i, own in enumerate([(), ("work",), ()])]
    found = told(predict_lines(load(case), examples))
    assert [line["gold"] for line in found] == [[], ["work"], []]


def test_queries_about_one_sentence_stay_together():
    def item(words, label):
        return MrcExample("", "?", label, tuple(words))

    first = [item("ab", "PER"), item("ab", "LOC"), item("ab", "ORG")]
    again = [item("ab", "PER"), item("ab", "LOC")]  # the same sentence a second time
    other = [item("cd", "LOC"), item("cd", "PER")]
    starts = make_task("mrc_ner").starts_group
    assert list(cut([*first, *again, *other], 2, starts)) == [first, again, other]
    assert list(cut([*first, *again, *other], 4, starts)) == [first + again, other]


def test_examples_are_taken_as_they_are_needed():
    taken = []

    def source():
        for number in range(10_000):
            taken.append(number)
            yield TextExample("Ann works", (), line=number)

    examples = [TextExample("Ann works", ("a",), 1), TextExample("Bob", ("b",), 2)]
    task = make_task("classification")
    tokenizer = make_tokenizer("textcnn", task.texts(examples))
    task = task.fit(task.encode(examples, tokenizer))
    loaded = Loaded(task.build_model("textcnn", tokenizer).eval(), task, tokenizer)
    lines = predict_lines(loaded, source(), chunk=10)
    assert len(list(islice(lines, 5))) == 5
    assert len(taken) <= 50  # this chunk, two made ready, two in making
    before = threading.active_count()
    lines.close()  # as when the reader of a pipe has gone
    assert threading.active_count() < before


@texts
def test_an_error_comes_after_the_lines_before_it(case):
    def source():
        yield from repeat(TextExample("Ann works", (), line=1), 25)
        raise InputError("wanted a text, got none", path="a.tsv", line=26)

    lines = predict_lines(load(case), source(), chunk=10)
    assert len(list(islice(lines, 20))) == 20
    with pytest.raises(InputError, match=r"a\.tsv:26"):
        list(lines)


@pytest.fixture
def write(tmp_path):
    def write(text, name="input"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_words_without_tags_are_read_as_such(write):
    path, problems = write("Ann\nworks\n\nBob\n"), Problems(unique=False)
    for task in (make_task("tagging"), make_task("tagging", format="conll")):
        found = list(read_input(task, path, problems=problems))
        assert [(one.words, one.tags) for one in found] == [(("Ann", "works"), ()), (("Bob",), ())]
    assert problems.notes == [f"{path}: read without labels"]


def test_tags_that_are_there_stay_gold(write):
    (one,) = read_input(make_task("tagging"), write("Ann B-PER\nworks O\n"))
    assert one.tags == ("B-PER", "O")


def test_a_column_of_labels_may_be_missing(write):
    task = make_task("classification", format="tsv", reader={"text": "body", "label": "kind"})
    (one,) = read_input(task, write("body\tother\nAnn works\tx\n"))
    assert (one.text, one.labels) == ("Ann works", ())


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("labels", [("", ""), ("work", ""), ("", "work")])
def test_a_row_needs_no_label(write, labels, on_error):
    task = make_task("classification", format="csv", reader={"text": "body", "label": "kind"})
    path = write("body,kind\nAnn works,{}\nBob,{}\n".format(*labels))
    problems = Problems(on_error=on_error, unique=False)
    found = list(read_input(task, path, problems=problems))
    assert [one.labels for one in found] == [(label,) if label else () for label in labels]
    assert (problems.skipped, problems.notes) == (0, [])


def test_an_object_needs_no_key_for_its_label(write):
    task = make_task("classification", format="jsonl", reader={"text": "body", "label": "kind"})
    path = write('{"body": "Ann works", "kind": "work"}\n{"body": "Bob"}\n')
    assert [one.labels for one in read_input(task, path)] == [("work",), ()]


def test_rows_that_are_read_in_the_end_are_not_called_skipped(write):
    task = make_task("classification", format="csv", reader={"text": "body", "label": "kind"})
    problems = Problems(on_error="skip", unique=False)
    found = list(read_input(task, write("body,kind\nAnn works, \nBob, \n"), problems=problems))
    assert [one.text for one in found] == ["Ann works", "Bob"]
    assert problems.skipped == 0
    assert problems.notes[-1].endswith(": read without labels")


def test_another_error_is_told_as_it_is(write):
    task = make_task("classification", format="tsv", reader={"text": "body", "label": "kind"})
    with pytest.raises(InputError, match="wanted a column 'body' for the text"):
        next(read_input(task, write("x\ty\nAnn\tBob\n")))
    with pytest.raises(InputError, match="No such file"):
        read_input(make_task("tagging"), "nowhere.txt")


PLAIN = {
    "tagging": ("Ann works .\n\nBob\n", lambda e: e.words, [("Ann", "works", "."), ("Bob",)]),
    "classification": ("Ann works .\n\nBob\n", lambda e: e.text, ["Ann works .", "Bob"]),
    "pairs": (
        "Ann\tBob\nit\tthat\n",
        lambda e: (e.first, e.second),
        [("Ann", "Bob"), ("it", "that")],
    ),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_lines(kind, write):
    text, look, wanted = PLAIN[kind]
    task = make_task(kind, format="csv" if kind == "pairs" else None, reader={})
    found = list(read_input(task, write(text), format="plain"))
    assert [look(one) for one in found] == wanted


def test_text_that_is_read_as_columns_is_noted(write):
    task = make_task("tagging", format="conll", labels=("O", "B-PER"))
    problems = Problems(unique=False)
    (found,) = read_input(task, write("Ann met Bob .\n"), problems=problems)
    assert found.words == ("Ann",)  # the first column; the last one is its tag
    (note,) = problems.notes
    assert "does not know '.', a label of the first example" in note
    assert note.endswith("use --format plain for lines of text without labels")
    for text in ("Ann B-PER\nmet O\n", "Ann B-ORG\nmet O\n"):
        problems = Problems(unique=False)
        assert len(list(read_input(task, write(text), problems=problems))) == 1
        assert problems.notes == []


def test_plain_characters(write):
    task, path = make_task("tagging"), write("王在 北京\n")
    (one,) = read_input(task, path, format="plain", options={"characters": True})
    assert one.words == tuple("王在北京")


def test_a_bad_plain_pair_names_its_line(write):
    found = read_input(make_task("pairs"), write("a\tb\nalone\n"), format="plain")
    with pytest.raises(InputError, match=r":2: wanted two texts with a tab between, got 'alone'"):
        list(found)


def test_queries_are_asked_of_sentences_without_tags(write):
    task = make_task("mrc_ner", queries={"PER": "who?", "LOC": "where?"})
    found = list(read_input(task, write("Ann works\n"), format="plain"))
    assert [(one.label, one.words, one.spans) for one in found] == [
        ("PER", ("Ann", "works"), ()),
        ("LOC", ("Ann", "works"), ()),
    ]


def test_ids_may_repeat_and_are_not_remembered(write):
    path = write('{"id": "7", "text": "a"}\n{"id": "7", "text": "b"}\n')
    assert [one.id for one in read_input(make_task("classification"), path)] == ["7", "7"]


def test_the_standard_input_needs_a_format():
    with pytest.raises(InputError, match="wanted --format with -"):
        read_input(make_task("tagging"), "-")


MEMORY = """
import json, sys
from pathlib import Path
import torch
from softf1.models.encoders import make_tokenizer
from softf1.tasks import make_task
from softf1.training.predict import predict_lines, read_input
from softf1.training.publish import Loaded

torch.set_num_threads(1)
task = make_task("classification", max_length=16)
short, long, chunk = sys.argv[1:]
tokenizer = make_tokenizer("textcnn", [["a b c d e f"]])
task = task.fit(task.encode(list(task.read(short)), tokenizer))
model = task.build_model("textcnn", tokenizer).eval()
seen = []
for path in (short, short, long):
    lines = predict_lines(Loaded(model, task, tokenizer), read_input(task, path), chunk=int(chunk))
    count = sum(1 for line in lines)
    peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    seen.append((count, int(peak) / 1024))
print(json.dumps(seen))
"""


def memory_growth(tmp_path, few, many, *, chunk):
    """MiB by which the peak is higher after `many` lines of 2,000 characters than after `few`.

    The peak is the kernel's own: that of `getrusage` begins with what the parent process had.
    """
    line = '{"id": "%d", "text": "%s", "label": "%s"}\n'
    paths = [tmp_path / "short", tmp_path / "long"]
    for path, count in zip(paths, (few, many), strict=True):
        with path.open("w") as file:
            file.writelines(line % (i, "abcdefghi " * 200, "xy"[i % 2]) for i in range(count))
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *map(str, paths), str(chunk)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    (first, _), (_, before), (last, after) = json.loads(done.stdout)
    assert (first, last) == (few, many)
    return after - before


LINUX = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="wants Linux's /proc")


@LINUX
def test_memory_does_not_grow_with_the_file(tmp_path):
    # 3,400 lines more are 7 MB of text alone, in memory as text, as bytes and as ids.
    assert memory_growth(tmp_path, 600, 4000, chunk=100) < 10


@LINUX
@pytest.mark.slow
def test_memory_does_not_grow_with_a_long_file_but_with_its_chunks(tmp_path):
    # 5 to 20 MiB, by what else runs on the machine; a whole file in memory is over 50.
    assert memory_growth(tmp_path, 4000, 20_000, chunk=1000) < 30
    assert memory_growth(tmp_path, 4000, 20_000, chunk=20_000) > 50


@pytest.mark.parametrize("reader", [{}, {"label": "topic"}])
def test_a_file_of_another_format_says_which(reader, tmp_path):
    task = make_task("classification", format="csv", reader=reader)
    path = tmp_path / "new.jsonl"
    path.write_text('{"text": "a text"}\n')
    with pytest.raises(InputError, match="looks like jsonl: add --format jsonl"):
        list(read_input(task, path))
    assert [one.text for one in read_input(task, path, format="jsonl")] == ["a text"]
    path.write_text("a text\n")
    with pytest.raises(InputError, match="use --format plain for lines of text"):
        list(read_input(task, path))
