import json

import pytest

from softf1.data._json import load, parse
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
        load(write(text))


def test_a_whole_surrogate_pair_is_text():
    assert parse('["\\ud83d\\ude00"]', "x") == ["😀"]


def test_errors_name_the_line_and_the_path_of_a_value(write):
    document = {"x": {"a": [0]}, "data": [{"t": 1}, {"t": [{"u": "v"}, {"u": 3}]}]}
    path = write(json.dumps(document, indent=1))
    lines = path.read_text().split("\n")
    node = list(list(load(path).items("data"))[1].items("t"))[1]
    error = node.error("reason", "wanted more")
    assert str(error) == f"{path}:{error.line}: wanted more (at data[1].t[1])"
    assert lines[error.line].strip() == '"u": 3'


def test_lines_are_right_in_any_order_of_errors(write):
    path = write(json.dumps({"data": [[n] for n in range(30)]}, indent=1))
    items = list(load(path).items("data"))
    forward = [item.error("r", "m").line for item in items]
    backward = [item.error("r", "m").line for item in reversed(items)]
    assert forward == backward[::-1] == [3 + 3 * n for n in range(30)]
