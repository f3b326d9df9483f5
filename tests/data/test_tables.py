import pytest

from softf1.data import PairExample, Problems, TextExample, read
from softf1.data.tables import iterate
from softf1.errors import InputError


def texts(path, **options):
    return [(e.text, e.labels) for e in iterate(path, **options)]


def test_columns_by_name_by_number_and_by_their_usual_names(write):
    path = write("category\tsentence\nsport\tThey won.\nmoney\tPrices fell.\n")
    wanted = [("They won.", ("sport",)), ("Prices fell.", ("money",))]
    assert texts(path) == wanted
    assert texts(path, text="sentence", label="category") == wanted
    assert texts(path, text=1, label="0", header=True) == wanted


def test_what_was_taken_is_noted(write):
    path = write("idx\tSentence\tLabel\n1\tA film.\tgood\n")
    corpus = read(path)
    assert (corpus.format, corpus.task) == ("tsv", "classification")
    assert corpus.problems.notes[0].endswith("a header with a text: idx, sentence, label")
    assert (
        "took the columns 'Sentence' as text, 'Label' as label, 'idx' as id"
        in (corpus.problems.notes[1])
    )
    assert corpus.examples[0].id == "1"


def test_numbered_columns_without_header(write):
    path = write("1\tIs it far?\tHow far is it?\t77\n0\tWho is he?\tWhy is it?\t78\n")
    (first, second) = iterate(path, task="pairs", label=0, first=1, second=2, id=3)
    assert first == PairExample("Is it far?", "How far is it?", "1", 1, "77")
    assert second.line == 2


def test_quotes_are_characters_in_tsv_and_quotes_in_csv(write):
    tsv = write('text\tlabel\n"He said\tx\n')
    assert texts(tsv) == [('"He said', ("x",))]
    csv = write('text,label\n"one, ""two""\nthree",x\nfour,y\n', "a.csv")
    rows = list(iterate(csv, kind="csv"))
    assert [(r.text, r.labels, r.line) for r in rows] == [
        ('one, "two"\nthree', ("x",), 2),
        ("four", ("y",), 4),
    ]


def test_bad_quoting(write):
    path = write('text,label\n"a"b,x\nc,y\n')
    with pytest.raises(InputError, match=r":2: wanted CSV, got: "):
        texts(path, kind="csv")
    problems = Problems("skip")
    assert texts(path, kind="csv", problems=problems) == [("c", ("y",))]


def test_a_quote_that_never_ends_is_never_skipped(write):
    path = write('text,label\na,x\n"b,y\nc,z\n')
    with pytest.raises(InputError, match=r":3: wanted CSV, got: unexpected end of data"):
        texts(path, kind="csv", problems=Problems("skip"))


def test_other_delimiter(write):
    assert texts(write("text;label\na;x\n"), kind="csv", delimiter=";") == [("a", ("x",))]


def test_several_labels(write):
    cells = write("text\tlabels\nA\tred| blue\nB\t\nC\tred|red\n")
    wanted = [("A", ("red", "blue")), ("B", ()), ("C", ("red",))]
    assert texts(cells, label_separator="|") == wanted
    lists = '{"text": "A", "labels": ["red", "blue"]}\n{"text": "B", "labels": []}\n'
    assert texts(write(lists), kind="jsonl") == wanted[:2]


def test_short_news_lines(write):
    rows = [
        '{"label": "103", "label_desc": "news_sports", "sentence": "主队赢了比赛", "keywords": ""}',
        '{"label": 104, "label_desc": "x", "sentence": "今天股市上涨", "keywords": "股市"}',
    ]
    corpus = read(write("\n".join(rows)))
    assert (corpus.format, corpus.task) == ("jsonl", "classification")
    assert [e.labels for e in corpus.examples] == [("103",), ("104",)]


def test_columns_of_json_by_name(write):
    path = write('{"label": "3", "name": "far", "body": "It is far.", "text": "no"}\n')
    assert texts(path, kind="jsonl", text="body", label="name") == [("It is far.", ("far",))]
    path = write('[{"label": "3", "name": "far", "body": "It is far.", "text": "no"}]\n')
    assert texts(path, kind="json", text="body", label="name") == [("It is far.", ("far",))]


def test_pairs_of_json_lines(write):
    rows = '{"sentence1": "a b", "sentence2": "b a", "label": true}\n' * 2
    corpus = read(write(rows))
    assert corpus.task == "pairs"
    assert corpus.examples[0].label == "true"


def test_list_of_objects_knows_its_lines(write):
    rows = '[\n {"text": "a", "label": 1},\n\n {"text": "b",\n  "label": 0},\n 5\n]'
    problems = Problems("skip")
    found = list(iterate(write(rows), kind="json", problems=problems))
    assert found == [TextExample("a", ("1",), 2), TextExample("b", ("0",), 4)]
    assert problems.first == {
        "wrong type": [f"{write(rows)}:6: wanted an object, got 5 (at [2])"],
    }


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("jsonl", {"delimiter": ";"}, "wanted no delimiter, which jsonl has no use for, got ';'"),
        ("json", {"header": True}, "wanted no header"),
        ("xml", {}, "wanted kind tsv, csv, jsonl or json, got 'xml'"),
    ],
)
def test_options_without_a_use_are_refused(write, kind, options, message):
    with pytest.raises(InputError, match=message):
        texts(write('{"text": "a"}'), kind=kind, **options)


def test_only_lines_can_be_kept_with_replaced_bytes(write):
    with pytest.raises(InputError, match="wanted no encoding_errors, which only formats of lines"):
        read(write('[{"text": "a", "label": 1}]'), encoding_errors="replace")


def test_rows_without_labels(write):
    problems = Problems()
    assert texts(write("id\ttext\n1\ta\n"), problems=problems) == [("a", ())]
    assert any("read as unlabelled" in note for note in problems.notes)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("text\tlabel\na\n", {}, r":2: wanted 2 columns, got 1: 'a'"),
        ("text\tlabel\na\tx\ty\n", {}, r":2: wanted 2 columns, got 3"),
        ("text\tlabel\n \tx\n", {}, r":2: wanted a text in 'text'"),
        ("text\tlabel\na\t\n", {}, r":2: wanted a label in 'label', got none"),
        ("id\ttext\n1\ta\n1\tb\n", {}, r":3: wanted a new id, got '1' again"),
        ('{"text": 5, "label": "x"}', {"kind": "jsonl"}, r":1: wanted a text in 'text', got 5"),
        ('{"text": "a", "label": {}}', {"kind": "jsonl"}, r":1: wanted a label in 'label', got"),
        (
            '{"text": "a", "label": "x"}\n{"text": "b"}',
            {"kind": "jsonl"},
            r":2: wanted 'label', got",
        ),
        ('{"text": "a", "label": "x"}\n[1]', {"kind": "jsonl"}, r":2: wanted an object, got"),
        ('{"text": "a", "label": "x"}\n{"te', {"kind": "jsonl"}, r":2: wanted JSON.*too early"),
        ('[{"text": "a", "label": "x"},\n{"text": 1}]', {"kind": "json"}, r":2: wanted 'label'"),
    ],
)
def test_bad_rows_name_their_line_or_are_counted(write, text, options, message):
    path = write(text)
    with pytest.raises(InputError, match=message):
        texts(path, **options)
    problems = Problems("skip")
    texts(path, problems=problems, **options)
    assert problems.skipped == 1


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "a\tb\n1\t2\n",
            {"text": "body"},
            "wanted a column 'body' for the text, got the columns a, b",
        ),
        ("a\tb\n", {"text": 5}, "wanted a column 5 for the text, got the columns 0, 1"),
        (
            "a\tb\n",
            {},
            r"wanted a column for the text \(text, sentence, …\), .*; choose .* --set text=NAME",
        ),
        ("text\ttext\na\tb\n", {}, "wanted different names of columns"),
        (
            "text\tb\na\tb\n",
            {"text": 0, "label": "text"},
            "wanted a column for each of text, label",
        ),
    ],
)
def test_missing_columns_list_those_there(write, text, options, message):
    with pytest.raises(InputError, match=message):
        texts(write(text), problems=Problems("skip"), **options)
