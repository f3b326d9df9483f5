import pytest

from softf1.data import read
from softf1.data.detect import detect
from softf1.errors import InputError


@pytest.mark.parametrize("text", ["", "\n \n", "just some prose\nand a second line of it\n", "{}"])
def test_no_guess_without_evidence(write, text):
    with pytest.raises(InputError, match=r"data.txt: wanted"):
        detect(write(text))


def test_a_forced_task_is_not_overruled(write):
    path = write("a B-X\nb O\n\nc O\n")
    assert detect(path, task="tagging").format == "conll"
    with pytest.raises(InputError, match="for the task qa"):
        detect(path, task="qa")


def test_what_was_taken_is_said(write):
    corpus = read(write("a B-X\nb O\n\nc O\n"))
    reason = "one word per line, tags of a scheme in the last column"
    note = f"{corpus.path}: took format conll, task tagging: {reason}"
    assert corpus.problems.notes == [note]


def test_table_of_pairs_without_header(write):
    path = write("1\tIs it far?\tHow far is it?\n0\tWho is he?\tWhy is it?\n")
    assert detect(path).options == {"label": 0, "first": 1, "second": 2, "header": False}


def test_labels_in_json_lines_are_no_label_lines(write):
    with pytest.raises(InputError, match="wanted one of"):
        detect(write('{"label": "1"}\n{"label": "2"}\n'))


def test_rows_without_tag_are_left_to_the_reader_to_name(write):
    path = write("a B-X\nb O\n\nc O\nd\n")
    assert detect(path).format == "conll"
    with pytest.raises(InputError, match=r"data.txt:5: wanted 2 columns"):
        read(path)


@pytest.mark.parametrize(
    ("text", "format_name", "task"),
    [
        ('[{"text": "a b", "label": "x"}]', "json", "classification"),
        ('[\n {\n  "premise": "a",\n  "hypothesis": "b"\n }\n]', "json", "pairs"),
        ('{"text": "' + "x " * 50_000 + '"}\n{"text": "y"}\n', "jsonl", "classification"),
        ('[{"text": "' + "x " * 50_000 + '"}]', "json", "classification"),
        ('text,label\n"' + "x " * 100_000 + '",a\nb,c\n', "csv", "classification"),
        ("text;label\na, b;x\nc;y\n", "csv", "classification"),
    ],
    ids=["list", "pairs", "long line", "long member", "long cell", "semicolons"],
)
def test_lists_long_texts_and_semicolons(write, text, format_name, task):
    corpus = read(write(text))
    assert (corpus.format, corpus.task) == (format_name, task)
    assert len(corpus) == (text.count("}") or 2)


def test_an_object_over_several_lines_is_no_json_lines(write):
    with pytest.raises(InputError, match="wanted one of SQuAD"):
        detect(write('{\n "text": "a"\n}\n'))


def test_columns_have_their_usual_names(write):
    found = detect(write("ticket_id;message;category\n1;where is it;other\n2;a scam;churn\n"))
    assert (found.format, found.task, found.options) == (
        "csv",
        "classification",
        {"delimiter": ";"},
    )


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ('"how is it, {n}",{label}', {"text": 0, "label": 1, "header": False}),
        ("{label},what is it {n}", {"text": 1, "label": 0, "header": False}),
        ("what is it {n};{label}", {"text": 0, "label": 1, "header": False, "delimiter": ";"}),
    ],
)
def test_csv_without_header(write, row, options):
    """The texts begin with few words, which are no labels."""
    rows = [row.format(n=n, label="xy"[n % 2]) for n in range(20)]
    path = write("\n".join(rows) + "\n")
    found = detect(path)
    assert (found.format, found.task, found.options) == ("csv", "classification", options)
    assert found.reason == "a text and one of few labels, no header: x, y"
    corpus = read(path)
    assert [one.labels for one in corpus.examples[:2]] == [("x",), ("y",)]
    assert corpus.examples[1].text.endswith("1")


def test_a_header_of_other_names_is_no_row(write):
    rows = [f"what is it {n},{'xy'[n % 2]}" for n in range(20)]
    with pytest.raises(InputError, match="if its columns are 'news item', 'kind', say which"):
        detect(write("\n".join(["news item,kind", *rows]) + "\n"))


def test_labels_before_texts_with_commas_are_lines(write):
    path = write("\n".join(f"{'xy'[n % 2]} it is, {n}" for n in range(20)) + "\n")
    assert detect(path).format == "lines"
