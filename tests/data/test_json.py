import json

import pytest

from softf1.data import Problems, _text, read
from softf1.data._json import load_document, parse_json, stream
from softf1.errors import InputError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": [1,\n2', r"data.txt:2: wanted JSON, got: .*the text ends too early"),
        ('{"a": 1,\n\n}', r"data.txt:3: wanted JSON"),
        ("[NaN]", "got NaN, which is not JSON"),
        ('["\\ud800"]', "half of a surrogate pair"),
        ("[" * 100_000, "nested too deep"),
        ("1" * 5000, "wanted JSON"),
        (" \n", "got an empty file"),
    ],
)
def test_what_is_not_json(write, text, message):
    with pytest.raises(InputError, match=message):
        load_document(write(text))


def test_a_whole_surrogate_pair_is_text():
    assert parse_json('["\\ud83d\\ude00"]', "x") == ["😀"]


def test_errors_name_the_line_and_the_path_of_a_value(write):
    document = {"x": {"a": [0]}, "data": [{"t": 1}, {"t": [{"u": "v"}, {"u": 3}]}]}
    path = write(json.dumps(document, indent=1))
    lines = path.read_text().split("\n")
    node = list(list(load_document(path).items("data"))[1].items("t"))[1]
    error = node.error("reason", "wanted more")
    assert str(error) == f"{path}:{error.line}: wanted more (at data[1].t[1])"
    assert lines[error.line].strip() == '"u": 3'


def test_lines_are_right_in_any_order_of_errors(write):
    path = write(json.dumps({"data": [[n] for n in range(30)]}, indent=1))
    items = list(load_document(path).items("data"))
    forward = [item.error("r", "m").line for item in items]
    backward = [item.error("r", "m").line for item in reversed(items)]
    assert forward == backward[::-1] == [3 + 3 * n for n in range(30)]


DOCUMENT = {"version": "1", "data": [{"t": n, "u": ["é", {"v": "x" * n}]} for n in range(40)]}


def elements(path, key=None, **limits):
    return list(stream(path, Problems(**limits), key=key))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("size", [1, 3, 17, 1 << 20])
def test_a_stream_has_the_values_and_lines_of_the_whole(write, monkeypatch, size, indent):
    monkeypatch.setattr(_text, "_PIECE", size)
    path = write(json.dumps(DOCUMENT, indent=indent, ensure_ascii=False))
    whole, streamed = list(load_document(path).items("data")), elements(path, "data")
    assert [node.value for node in streamed] == DOCUMENT["data"]
    for one, other in zip(whole, streamed, strict=True):
        inside = [list(node.items("u"))[1].error("r", "m") for node in (one, other)]
        assert str(inside[0]) == str(inside[1])
        assert one.line == other.line
    numbers = write(json.dumps([1, 22, 333, -4.5, True, None]))
    assert [node.value for node in elements(numbers)] == [1, 22, 333, -4.5, True, None]


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1},\n{"a": 2}',
        '[{"a": 1},\n {"a": }]',
        '[{"a": 1}\n {"a": 2}]',
        '[{"a": 1}]\n x',
        '[{"a": 1},\n{"a": "b',
        "[NaN]",
        '["\\ud800"]',
        "[" * 100_000,
        "[1,\n\n]",
        "[" + "1" * 5000 + "]",
    ],
)
def test_a_stream_refuses_what_the_whole_refuses(write, monkeypatch, size, text):
    path = write(text)
    with pytest.raises(InputError) as whole:
        load_document(path)
    monkeypatch.setattr(_text, "_PIECE", size if len(text) < 1000 else 1 << 20)
    with pytest.raises(InputError) as streamed:
        elements(path)
    assert (streamed.value.line or 1) == (whole.value.line or 1)
    assert (
        str(whole.value).partition("wanted")[2][:25]
        == (str(streamed.value).partition("wanted")[2][:25])
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rows": []}', 'wanted "data", got the keys rows'),
        ('{"data": 3}', 'wanted a list in "data", got 3'),
        ("[]", "wanted an object, got"),
        ("{,}", "Expecting property name"),
        ('{"data" []}', "Expecting ':' delimiter"),
        ('{"data": []} x', "Extra data"),
    ],
)
def test_a_stream_of_a_key_names_what_is_missing(write, text, message):
    with pytest.raises(InputError, match=message):
        elements(write(text), "data")


def test_a_value_that_is_too_long_is_refused_with_the_option_that_allows_it(write):
    path = write(json.dumps([{"text": "x" * (3 << 20), "label": "a"}]))
    with pytest.raises(InputError, match=r"values of at most 1,048,576 characters.*max_line"):
        read(path, max_line=1 << 20)
    assert len(read(path, max_line=1 << 22)) == 1
    for wrong in ("x", True, ""):
        with pytest.raises(InputError, match=r"option max_line of format .* wanted a whole number"):
            read(path, max_line=wrong)


def test_a_missing_quotation_mark_does_not_read_the_file_into_one_cell(write):
    path = write('text,label\n"open,a\n' + "fine text,b\n" * 200_000)
    with pytest.raises(InputError, match=r":2: wanted rows of at most .*quotation mark missing"):
        read(path, format="csv", task="classification", max_line=1 << 20)
