"""Files of spans: what is read, what is refused with its line, and how they are counted."""

import json

import pytest

from softf1.data import Corpus, SpanSentence, TaggedSentence, read
from softf1.data.detect import detect
from softf1.data.mrc import from_tagged
from softf1.data.problems import Problems
from softf1.data.spans import split_text
from softf1.data.stats import describe, look_over
from softf1.errors import InputError
from softf1.metrics.schemes import count_nested

WORDS = ["at", "the", "University", "of", "Graz", "."]
NESTED = {
    "words": WORDS,
    "entities": [
        {"start": 2, "end": 5, "label": "ORG"},
        {"start": 4, "end": 5, "label": "LOC"},
    ],
}
FLAT = {"words": ["in", "Oslo"], "entities": [{"start": 1, "end": 2, "label": "LOC"}]}
SPANS = ((2, 5, "ORG"), (4, 5, "LOC"))


@pytest.fixture
def lines(write):
    return lambda *objects: write("".join(json.dumps(one) + "\n" for one in objects))


def test_nested_spans_have_no_tags_and_flat_ones_have(lines):
    corpus = read(lines(NESTED, FLAT))
    assert (corpus.format, corpus.task) == ("spans", "tagging")
    assert corpus.examples == [
        SpanSentence(tuple(WORDS), (), 1, "", SPANS),
        SpanSentence(("in", "Oslo"), ("O", "B-LOC"), 2, "", ((1, 2, "LOC"),)),
    ]


TEXT = "at the University of Graz."  # University of Graz is 7 to 25, Graz 21 to 25


@pytest.mark.parametrize(
    "one",
    [
        {"tokens": WORDS, "entities": [[2, 5, "ORG"], [4, 5, "LOC"], [4, 5, "LOC"]]},
        {"tokenized_text": WORDS, "ner": [[2, 4, "ORG"], [4, 4, "LOC"]]},  # GLiNER
        {"tokens": WORDS, "spans": [{"start": 2, "end": 5, "type": "ORG"}, [4, 5, "LOC"]]},
        {"text": TEXT, "entities": [[7, 25, "ORG"], [21, 25, " LOC "]]},
        {"text": TEXT, "label": [[7, 25, "ORG"], [21, 25, "LOC"]]},  # doccano
        {"sentence": f"{TEXT} ", "entities": [[6, 25, "ORG"], [20, 25, "LOC"]]},  # with a space
    ],
    ids=["lists", "gliner", "type", "text", "doccano", "spaces"],
)
def test_other_ways_to_write_the_same(one, lines, write):
    (example,) = read(lines(one)).examples
    assert (example.words, example.spans) == (tuple(WORDS), SPANS)
    listed = read(write(json.dumps([one], indent=1)))
    assert (listed.format, listed.examples[0].spans) == ("spans-json", SPANS)


def test_ends_may_be_inclusive(lines):
    one = {"words": WORDS, "entities": [[2, 4, "ORG"], [4, 4, "LOC"]]}
    assert read(lines(one), inclusive=True).examples[0].spans == SPANS
    one["ner"] = one.pop("entities")
    with pytest.raises(InputError, match="wanted a span within 6 words"):
        read(lines(one), inclusive=False)  # 4 to 4 is no word


def test_a_sentence_without_spans_is_to_predict_on(lines):
    empty, unknown = read(lines(NESTED, FLAT | {"entities": []}, {"words": ["in"]})).examples[1:]
    assert empty == SpanSentence(("in", "Oslo"), ("O", "O"), 2, "", ())
    assert type(unknown) is TaggedSentence
    assert unknown.tags == ()


@pytest.mark.parametrize(
    ("one", "said"),
    [
        ({"entities": []}, 'wanted "words" or "text", got the keys entities'),
        ({"words": "in Graz", "entities": []}, 'wanted a list of words in "words"'),
        ({"words": ["in", ""], "entities": []}, 'wanted a list of words in "words"'),
        ({"words": [], "entities": []}, 'wanted a list of words in "words"'),
        ({"text": " ", "entities": []}, 'wanted a text in "text"'),
        ({"text": 3, "entities": []}, 'wanted a text in "text"'),
        ({"words": ["a"], "entities": {}}, 'wanted a list in "entities"'),
        ({"words": ["a"], "entities": [[0, 1]]}, 'wanted a span as {"start", "end", "label"}'),
        ({"words": ["a"], "entities": ["PER"]}, 'wanted a span as {"start", "end", "label"}'),
        ({"words": ["a"], "entities": [[0.0, 1, "X"]]}, 'wanted a span as {"start", "end"'),
        ({"words": ["a"], "entities": [[0, True, "X"]]}, 'wanted a span as {"start", "end"'),
        ({"words": ["a"], "entities": [[0, 1, ""]]}, "wanted a label of the span"),
        ({"words": ["a"], "entities": [{"start": 0, "end": 1}]}, "wanted a label of the span"),
        ({"words": ["a"], "entities": [[0, 2, "X"]]}, "wanted a span within 1 words"),
        ({"words": ["a"], "entities": [[1, 1, "X"]]}, "wanted a span within 1 words"),
        ({"words": ["a"], "entities": [[-1, 1, "X"]]}, "wanted a span within 1 words"),
        ({"text": "in Graz", "entities": [[3, 8, "X"]]}, "wanted a span within 7 characters"),
        ({"text": "in Graz", "entities": [[2, 3, "X"]]}, "with a word in it, got 2 to 3"),
        ({"text": "in Graz", "entities": [[-4, 7, "X"]]}, "wanted a span within 7 characters"),
        ({"text": "in Grazer", "entities": [[3, 7, "X"]]}, "which cuts 'Grazer'"),
        ({"text": "in Graz", "entities": [[1, 7, "X"]]}, "which cuts 'in'"),
    ],
)
def test_a_bad_object_is_one_line_or_skipped(one, said, lines):
    path = lines(NESTED, one)
    with pytest.raises(InputError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert len(read(path, on_error="skip")) == 1


def test_words_of_a_text():
    def words(text):
        return [text[start:end] for start, end in split_text(text)]

    assert words("Dr. O'Hara (Graz) paid €5") == [
        *("Dr", ".", "O", "'", "Hara", "(", "Graz", ")", "paid", "€", "5"),
    ]
    assert words("小王在Graz") == ["小", "王", "在", "Graz"]
    assert words("दिल्ली में") == ["दिल्ली", "में"]  # marks belong to their word
    assert words(" \n ") == []


def test_what_is_no_file_of_spans(lines):
    for one in (
        {"text": "in Graz", "label": ["a", "b"]},
        {"text": "in Graz", "label": "a", "entities": [[3, 7, "LOC"]]},  # labelled as a whole
    ):
        assert detect(lines(one)).task == "classification"
    one = {"text": "in Graz", "labels": ["a"], "entities": [[3, 7, "LOC"]]}
    assert detect(lines(one)).format == "spans"
    assert detect(lines(one), task="classification").format == "jsonl"
    assert detect(lines({"text": "it rained", "entities": []}, NESTED)).format == "spans"


def test_nested_spans_are_counted():
    assert count_nested([(0, 2, "A"), (2, 4, "A")]) == 0
    assert count_nested([(0, 4, "A"), (1, 2, "B"), (3, 4, "B"), (4, 5, "B")]) == 2
    assert count_nested([(0, 3, "A"), (2, 5, "B")]) == 1  # they cross
    assert count_nested([(0, 3, "A"), (0, 3, "B"), (0, 3, "A")]) == 1  # one place, two labels


def test_stats_count_words_by_label_and_spans_that_overlap(lines):
    stats = describe(look_over(lines(NESTED, FLAT)))
    # University of Graz is 3 words of ORG, the last of them one of LOC too; Oslo is LOC.
    assert {one.label: (one.count, one.examples) for one in stats.labels} == {
        "O": (4, 2),
        "ORG": (3, 1),
        "LOC": (2, 2),
    }
    assert (stats.negatives, stats.positives) == (4, 4)
    assert (stats.spans, stats.nested) == (3, 1)
    assert stats.nesting == "1 of 3 spans lies inside another or crosses one"
    flat = describe(look_over(lines(FLAT)))
    assert (flat.spans, flat.nested, flat.nesting) == (1, 0, "")


def test_stats_of_flat_spans_are_those_of_their_tags(lines, write):
    spans = describe(look_over(lines(FLAT)))
    tags = describe(look_over(write("in O\nOslo B-LOC\n"), format="conll"))
    assert (spans.labels, spans.ratio, spans.lengths.longest) == (tags.labels, tags.ratio, 2)


def test_queries_about_one_sentence_are_counted_together(lines):
    sentences = read(lines(NESTED, NESTED)).examples
    items = list(from_tagged(sentences, {"ORG": "?", "LOC": "!"}))
    assert [item.spans for item in items] == [((2, 5),), ((4, 5),)] * 2
    counts = Corpus("x", "mrc", "mrc_ner", items, Problems()).counts
    assert (counts.spans, counts.nested) == (4, 2)


def test_items_want_spans_of_every_sentence(lines):
    sentences = read(lines(NESTED, {"words": ["in", "Oslo"]})).examples
    queries = {"ORG": "?", "LOC": "!"}
    with pytest.raises(InputError, match="x:2: wanted spans of this sentence, got none"):
        list(from_tagged(sentences, queries, path="x"))
    problems = Problems("skip")
    assert len(list(from_tagged(sentences, queries, path="x", problems=problems))) == 2
    assert problems.counts == {"no spans": 1}
    with pytest.raises(InputError, match="x:1: wanted a query for LOC, got ORG"):
        list(from_tagged(sentences, {"ORG": "?"}, path="x"))
