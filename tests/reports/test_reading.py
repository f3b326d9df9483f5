import pytest

from softf1.errors import InputError
from softf1.reports.reading import NO_ANSWER, detect_gold_scheme, read_items
from tests.reports.grids import write_lines


def read(path, lines, scheme=None):
    write_lines(path, lines)
    return list(read_items(path, scheme=scheme))


def test_tags_are_spans_where_they_follow_a_scheme(tmp_path):
    path = tmp_path / "p.jsonl"
    words = ["Ada", "Stone", "sang"]
    line = {"id": "1", "words": words, "gold": ["B-PER", "I-PER", "O"], "tags": ["B-PER", "O", "O"]}
    write_lines(path, [line])
    assert detect_gold_scheme(path) == "BIO"
    (item,) = read(path, [line], scheme="BIO")
    assert item.gold == {(0, 2, "PER")}
    assert item.predicted == {(0, 1, "PER")}
    assert item.errors == 2  # the span is missing, and a shorter one is too many


def test_tags_that_gold_does_not_show_are_read_all_the_same(tmp_path):
    path = tmp_path / "p.jsonl"
    line = {"id": "1", "words": ["Ada", "ran"], "gold": ["B-PER", "O"], "tags": ["S-PER", "O"]}
    write_lines(path, [line])
    (item,) = read(path, [line], scheme=detect_gold_scheme(path))
    assert item.predicted == {(0, 1, "PER")}


def test_plain_tags_are_units_by_themselves(tmp_path):
    path = tmp_path / "p.jsonl"
    line = {"id": "1", "words": ["it", "ran"], "gold": ["PRON", "VERB"], "tags": ["PRON", "NOUN"]}
    write_lines(path, [line])
    assert detect_gold_scheme(path) is None
    (item,) = read(path, [line])
    assert item.gold - item.predicted == {(1, 2, "VERB")}


def test_queries_of_one_sentence_are_one_item(tmp_path):
    words = ["Ada", "in", "Calder"]
    lines = [
        {"id": "1.PER", "words": words, "label": "PER", "gold": [[0, 1]], "spans": [[0, 1]]},
        {"id": "1.LOC", "words": words, "label": "LOC", "gold": [[2, 3]], "spans": []},
        {"id": "2.PER", "words": ["no"], "label": "PER", "gold": [], "spans": [[0, 1]]},
    ]
    first, second = read(tmp_path / "p.jsonl", lines)
    assert first.gold == {(0, 1, "PER"), (2, 3, "LOC")}
    assert (first.errors, second.errors) == (1, 1)


def test_the_same_words_asked_again_are_another_sentence(tmp_path):
    words = ["Ada", "ran"]
    lines = [
        {"id": f"{n}.{label}", "words": words, "label": label, "gold": [[0, 1]], "spans": spans}
        for n, spans in ((1, [[0, 1]]), (2, []))
        for label in ("PER", "LOC")
    ]
    first, second = read(tmp_path / "p.jsonl", lines)
    assert (first.id, second.id) == ("1.PER", "2.PER")
    assert first.gold == second.gold == {(0, 1, "PER"), (0, 1, "LOC")}
    assert (first.errors, second.errors) == (0, 2)


def test_spans_with_their_labels_are_an_item_a_line(tmp_path):
    line = {"id": "1", "words": ["Ada", "ran"], "gold": [[0, 1, "PER"]], "spans": [[0, 2, "ORG"]]}
    first, second = read(tmp_path / "p.jsonl", [line, line | {"id": "2"}])  # not two queries of one
    assert first.gold == second.gold == {(0, 1, "PER")}
    assert first.predicted == {(0, 2, "ORG")}


@pytest.mark.parametrize(
    ("gold", "line", "errors"),
    [
        (["a"], {"label": "a"}, 0),
        (["a"], {"label": "b"}, 2),
        (["a", "b"], {"labels": ["a"]}, 1),
        ([], {"labels": []}, 0),
    ],
)
def test_labels_of_texts(tmp_path, gold, line, errors):
    line = {"id": "1", "first": "one", "second": "two", "gold": gold, **line}
    (item,) = read(tmp_path / "p.jsonl", [line])
    assert item.errors == errors
    assert "one" in item.text
    assert "two" in item.text


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ([["a boat"], ["the boat"]], "The  Boat", True),
        ([["a boat"]], "boat", False),
        ([], "", True),
        ([], "boat", False),
        ([["a boat"]], "", False),
    ],
)
def test_answers_count_when_any_gold_answer_is_met(tmp_path, gold, answer, right):
    line = {"id": "1", "question": "What?", "context": "A boat.", "gold": gold, "answer": answer}
    (item,) = read(tmp_path / "p.jsonl", [line])
    assert (item.errors == 0) is right
    assert item.predicted == {NO_ANSWER if not answer else " ".join(answer.casefold().split())}


def test_sentences_without_gold_tags_are_left_out(tmp_path):
    line = {"id": "1", "words": ["a"], "gold": [], "tags": ["O"]}
    assert read(tmp_path / "p.jsonl", [line]) == []


def test_wrong_lines_name_the_file(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "1", "tags": ["O"], "words": ["a"]}\n')
    with pytest.raises(InputError, match=r"p\.jsonl: wanted predictions"):
        list(read_items(path, scheme=None))
    path.write_text('{"id": "1"\n')
    with pytest.raises(InputError, match=r"p\.jsonl:1: wanted JSON"):
        list(read_items(path, scheme=None))
