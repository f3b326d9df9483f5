import json

import pytest

from softf1.data import MrcExample, Problems, TaggedSentence, mrc, read
from softf1.errors import InputError

QUERIES = {"PER": "find the people", "LOC": "find the places"}


def sentence(tags, words="Ada Lind saw Ada in Oslo"):
    return TaggedSentence(tuple(words.split()), tuple(tags.split()), line=4)


def item(**changed):
    whole = {
        "qas_id": "0.1",
        "query": "find the people",
        "context": "Ada Lind saw Ada",
        "entity_label": "PER",
        "start_position": [0, 3],
        "end_position": [1, 3],
        "span_position": ["0;1", "3;3"],
        "impossible": False,
    }
    return {key: value for key, value in {**whole, **changed}.items() if value is not ...}


def test_any_tagging_file_becomes_items_and_comes_back(tmp_path):
    examples = list(mrc.from_tagged([sentence("B-PER I-PER O B-PER O B-LOC")], QUERIES))
    assert [(e.id, e.label, e.spans) for e in examples] == [
        ("0.1", "PER", ((0, 2), (3, 4))),
        ("0.2", "LOC", ((5, 6),)),
    ]
    path = tmp_path / "mrc.json"
    mrc.write(path, examples)
    corpus = read(path)
    assert (corpus.format, corpus.task) == ("mrc", "mrc_ner")
    again = [MrcExample(e.id, e.query, e.label, e.words, e.spans, 4) for e in corpus.examples]
    assert again == examples
    assert [e.line for e in corpus.examples] == [2, 3]
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written[0] == item(context="Ada Lind saw Ada in Oslo")


def test_every_scheme_gives_the_same_items():
    wanted = list(mrc.from_tagged([sentence("B-PER I-PER O B-PER O B-LOC")], QUERIES))
    for tags in ("I-PER I-PER O I-PER O I-LOC", "B-PER E-PER O S-PER O S-LOC"):
        assert list(mrc.from_tagged([sentence(tags)], QUERIES)) == wanted


def test_a_repeated_word_is_labelled_where_it_stands():
    (person, _) = mrc.from_tagged([sentence("O O O B-PER O O")], QUERIES)
    assert person.spans == ((3, 4),)


def test_invalid_tags_name_the_line_and_are_repaired_if_asked():
    wrong = [sentence("O I-PER O B-PER O B-LOC")]
    with pytest.raises(InputError, match=r"x.txt:5: wanted a tag that can follow 'O' in BIO"):
        list(mrc.from_tagged(wrong, QUERIES, scheme="BIO", path="x.txt"))
    problems = Problems()
    repaired = list(mrc.from_tagged(wrong, QUERIES, scheme="BIO", repair=True, problems=problems))
    assert repaired[0].spans == ((1, 2), (3, 4))
    assert problems.changes == {"tags repaired": 1}


def test_a_label_without_query_and_plain_labels():
    with pytest.raises(InputError, match="wanted a query for LOC, got PER"):
        list(mrc.from_tagged([sentence("O O O O O B-LOC")], {"PER": "people"}))
    with pytest.raises(InputError, match="wanted tags of a scheme"):
        list(mrc.from_tagged([sentence("NN NN VB NN IN NN")], QUERIES))


def test_a_word_with_a_space_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="wanted words without a space, got 'New York'"):
        mrc.write(tmp_path / "x.json", [MrcExample("1", "q", "LOC", ("New York",))])


def test_items_of_query_context_and_positions_only(write):
    path = write(
        json.dumps([item(qas_id=..., entity_label=..., span_position=..., impossible=...)])
    )
    (example,) = mrc.iterate(path)
    assert (example.id, example.label, example.spans) == ("0", "", ((0, 2), (3, 4)))


def test_nested_spans(write):
    nested = item(start_position=[0, 0], end_position=[1, 0], span_position=["0;1", "0;0"])
    assert next(mrc.iterate(write(json.dumps([nested])))).spans == ((0, 1), (0, 2))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"span_position": ["0;9"], "start_position": [0], "end_position": [9]}, "within 4 words"),
        ({"span_position": ["2;1"], "start_position": [2], "end_position": [1]}, "within 4 words"),
        ({"span_position": ["a"]}, 'wanted a span such as "3;5", got'),
        ({"start_position": [0]}, "wanted the starts and ends of span_position"),
        (
            {"span_position": ..., "start_position": [0]},
            "wanted as many ends as starts, got 1 and 2",
        ),
        ({"start_position": ["0"]}, 'wanted numbers in "start_position"'),
        ({"impossible": True}, "wanted impossible to be false with 2 spans, got true"),
        ({"query": ...}, 'wanted "query"'),
        ({"context": " "}, "wanted words in the context, got none"),
    ],
)
def test_wrong_items(write, changed, message):
    path = write(json.dumps([item(qas_id="0.0"), item(**changed)], indent=1))
    with pytest.raises(InputError, match=rf":\d\d: .*{message}"):
        list(mrc.iterate(path))
    problems = Problems("skip")
    assert len(list(mrc.iterate(path, problems=problems))) == 1
    assert problems.skipped == 1


def test_queries(write):
    assert mrc.read_queries(write(json.dumps(QUERIES))) == QUERIES
    assert mrc.read_queries(write(json.dumps({"default": QUERIES}))) == QUERIES
    with pytest.raises(InputError, match='wanted a text in "PER", got 3'):
        mrc.read_queries(write('{"PER": 3}'))
    with pytest.raises(InputError, match="wanted a query for each label"):
        mrc.read_queries(write("{}"))


def test_a_typo_in_a_tag_is_named_with_its_line():
    tags = [("B-PER", "I-PER", "O"), ("B-PER", "O", "B-PER"), ("BPER", "O", "O")]
    sentences = [TaggedSentence(("a", "b", "c"), own, line=4 * n) for n, own in enumerate(tags, 1)]
    with pytest.raises(InputError, match=r"a.txt:12: wanted O or a tag of BIO .* got 'BPER'"):
        list(mrc.from_tagged(sentences, {"PER": "Who?"}, path="a.txt"))
    plain = [TaggedSentence(("a", "b"), ("NOUN", "VERB"), line=1)]
    with pytest.raises(InputError, match="wanted tags of a scheme such as BIO, got plain labels"):
        list(mrc.from_tagged(plain, {"PER": "Who?"}))
