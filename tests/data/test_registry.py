import inspect
import re
from pathlib import Path

import pytest

from softf1.data import FORMATS, TASKS, Problems, iterate, read
from softf1.errors import InputError


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_reader_with_its_options(name):
    spec = FORMATS[name]
    options = inspect.signature(spec.read).parameters
    assert set(spec.options) < set(options)
    assert set(spec.tasks) <= set(TASKS)
    assert all(one.kind is one.KEYWORD_ONLY for key, one in options.items() if key != "path")


@pytest.mark.parametrize("name", FORMATS)
def test_the_documentation_names_every_format_and_option(name):
    page = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", page, re.MULTILINE))
    row = rows[name]
    if like := re.search(r"\| as `([\w-]+)`$", row):
        row += rows[like[1]]
    reader = FORMATS[name].read
    settled = {"path", "problems", "task", "kind", "layout", "encoding_errors"}
    if "json" in name:
        settled |= {"header", "delimiter"}
    assert {key for key in inspect.signature(reader).parameters if f"`{key}`" not in row} <= settled
    assert all(task in row for task in FORMATS[name].tasks) or "all but mrc_ner" in row


def test_unknown_names_list_the_known_ones(write):
    path = write("a B-X\n")
    with pytest.raises(
        InputError, match=r"unknown format 'conl' \(did you mean conll\?\); known: "
    ):
        read(path, format="conl")
    with pytest.raises(InputError, match=r"option of format conll 'tags' \(did you mean tag\?\)"):
        read(path, format="conll", tags=3)
    with pytest.raises(InputError, match="format conll serves the tasks tagging; got qa"):
        read(path, format="conll", task="qa")
    with pytest.raises(InputError, match=r"unknown task 'tag' .*known: tagging, mrc_ner, qa"):
        read(path, task="tag")
    with pytest.raises(InputError, match="wanted the task of this file, one of classification, p"):
        read(path, format="tsv")  # tags, and no table
    with pytest.raises(InputError, match=r"none\.tsv: wanted a file to read"):
        read(path.with_name("none.tsv"), format="tsv")


def test_the_task_of_a_given_format_is_detected(write):
    texts = read(write("text;label\na b;x\nc d;y\n"), format="csv")
    assert (texts.task, texts.examples[1].labels) == ("classification", ("y",))
    pairs = read(write("sentence1\tsentence2\tlabel\na\tb\t1\n"), format="tsv")
    assert (pairs.task, pairs.examples[0].second) == ("pairs", "b")
    told = read(write("text,label\na b,x\n"), format="csv", label="text", text="label")
    assert told.examples[0].text == "x"


@pytest.mark.parametrize(
    ("name", "option"), [("conll", "problems"), ("csv", "kind"), ("qqp", "layout")]
)
def test_what_the_format_decides_is_no_option(write, name, option):
    message = f"unknown option of format {name} '{option}'.*; known: (?!.*(path|problems))"
    with pytest.raises(InputError, match=message):
        read(write("a B-X\n"), format=name, task=FORMATS[name].tasks[0], **{option: "x"})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("conll", {"tag": "x"}, "option tag of format conll: wanted a whole number, got 'x'"),
        ("conll", {"word": True}, "option word of format conll: wanted a whole number, got True"),
        ("conll", {"brackets": 1}, "wanted true or false, got 1"),
        ("conll", {"encoding_errors": "ignore"}, "wanted strict or replace, got"),
        (
            "lines",
            {"label_separator": ""},
            "wanted a string that is not empty, got ''",
        ),
        ("csv", {"delimiter": "::"}, "wanted a delimiter of one character, got '::'"),
        ("csv", {"text": 1.5}, "wanted a string or a whole number, got 1.5"),
    ],
)
def test_options_of_the_wrong_kind(write, name, options, message):
    with pytest.raises(InputError, match=message):
        read(write("a B-X\n"), format=name, task=FORMATS[name].tasks[0], **options)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "hf"])
def test_an_empty_file_is_no_data(write, name):
    with pytest.raises(InputError, match=r"data.txt(:\d)?: wanted"):
        read(write(""), format=name, task=FORMATS[name].tasks[0])


def test_everything_skipped_is_no_data(write):
    with pytest.raises(InputError, match=r"wanted at least one example, got none \(skipped 1: "):
        read(write("0\n"), format="lines", on_error="skip")


def test_iterate_is_read_one_by_one(write):
    path = write("a B-X\n\nb\n\nc O\n")
    problems = Problems("skip")
    assert len(list(iterate(path, format="conll", problems=problems))) == 2
    assert problems.skipped == 1
