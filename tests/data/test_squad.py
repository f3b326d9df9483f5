import json

import pytest

from softf1.data import Problems, read
from softf1.data.squad import iterate
from softf1.errors import InputError

CONTEXT = "Ida Roth built the mill. The mill burned in 1822, and Roth left."


def document(*questions, context=CONTEXT, **paragraph):
    content = {"context": context, "qas": list(questions), **paragraph}
    return json.dumps({"version": "1.1", "data": [{"title": "Mill", "paragraphs": [content]}]})


def question(name, *answers, **more):
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"Question {name}?", "answers": found, **more}


def test_alternatives_of_squad(write):
    corpus = read(write(document(question("q1", ("1822", 44), ("in 1822", 41)))))
    assert (corpus.format, corpus.task) == ("squad", "qa")
    (example,) = corpus.examples
    assert example.title == "Mill"
    assert [answer.spans for answer in example.answers] == [((44, 48),), ((41, 48),)]
    assert [answer.texts for answer in example.answers] == [("1822",), ("in 1822",)]


def test_spans_of_quoref(write):
    text = document(question("q1", ("Roth", 54), ("Ida Roth", 0)), context_id="c1")
    corpus = read(write(text))
    assert corpus.format == "quoref"
    (answer,) = corpus.examples[0].answers
    assert answer.spans == ((0, 8), (54, 58))
    assert answer.texts == ("Ida Roth", "Roth")


ROWS = [
    {"id": "q1", "title": "Mill", "context": CONTEXT, "question": "When?",
     "answers": {"text": ["1822", "in 1822"], "answer_start": [44, 41]}},
    {"id": "q2", "context": CONTEXT, "question": "Who paid?",
     "answers": {"text": [], "answer_start": []}},
    {"id": "q3", "context": CONTEXT, "question": "Who?",
     "answers": [{"text": "Ida Roth", "answer_start": 0}]},
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=1),
        json.dumps({"data": ROWS}),
        "\n".join(map(json.dumps, ROWS)) + "\n",
    ],
    ids=["list", "lines of a list", "data", "json lines"],
)
def test_a_row_for_each_question(write, text):
    corpus = read(write(text))
    assert (corpus.format, corpus.task) == ("squad", "qa")
    first, second, third = corpus.examples
    assert (first.id, first.title, first.question) == ("q1", "Mill", "When?")
    assert {example.context for example in (first, second, third)} == {CONTEXT}
    assert [answer.spans for answer in first.answers] == [((44, 48),), ((41, 48),)]
    assert second.answers == ()
    assert third.answers[0].texts == ("Ida Roth",)


def test_a_bad_row_is_named_with_its_line(write):
    uneven = ROWS[0] | {"id": "q9", "answers": {"text": ["1822"], "answer_start": []}}
    missing = {key: value for key, value in ROWS[0].items() if key != "context"} | {"id": "q8"}
    path = write("\n".join(map(json.dumps, [ROWS[0], uneven, missing])))
    problems = Problems("skip")
    assert [example.id for example in iterate(path, problems=problems)] == ["q1"]
    with pytest.raises(InputError, match=r"as many answer_start as text, got 0 and 1") as error:
        list(iterate(path))
    assert error.value.line == 2
    with pytest.raises(InputError, match=r'wanted "context", got the keys id, title') as error:
        list(iterate(write("\n".join(map(json.dumps, [ROWS[0], missing])))))
    assert error.value.line == 2


def test_an_object_that_is_neither_is_refused(write):
    with pytest.raises(InputError, match='wanted "data", got the keys version'):
        list(iterate(write(json.dumps({"version": "1.1"}))))


def test_impossible_questions_of_squad_2(write):
    path = write(
        document(
            question(
                "q1", is_impossible=True, plausible_answers=[{"text": "x", "answer_start": 0}]
            ),
            question("q2", ("1822", 44), is_impossible=False),
            {"id": "q3", "question": "Of a test set?"},
        )
    )
    assert [len(example.answers) for example in iterate(path)] == [0, 1, 0]


def test_questions_know_their_lines(write):
    text = document(question("q1"), question("q2", ("1822", 44)))
    assert [example.line for example in iterate(write(text))] == [1, 1]
    path = write("\n" + json.dumps(json.loads(text), indent=1))
    rows = path.read_text().split("\n")
    examples = list(iterate(path))
    assert [rows[example.line].strip() for example in examples] == ['"id": "q1",', '"id": "q2",']


def test_answer_that_is_not_at_its_offset(write):
    path = write(document(question("q1", ("1822", 40)), question("q2", ("1822", 44))))
    with pytest.raises(
        InputError, match=r":1: wanted '1822' at offset 40, got ' in ' *; found at 44 \(see off"
    ):
        list(iterate(path))
    problems = Problems("skip")
    assert [example.id for example in iterate(path, problems=problems)] == ["q2"]
    assert problems.counts == {"answer not at its offset": 1}
    problems = Problems()
    moved = next(iterate(path, offsets="nearest", problems=problems))
    assert moved.answers[0].spans == ((44, 48),)
    assert problems.changes == {"answer moved to where its text is": 1}


@pytest.mark.parametrize(
    ("start", "place"), [(0, 4), (5, 4), (50, 54), (54, 54), (999, 54), (-1, 4)]
)
def test_nearest_place(write, start, place):
    path = write(document(question("q1", ("Roth", start))))
    assert next(iterate(path, offsets="nearest")).answers[0].spans == ((place, place + 4),)


def test_a_text_that_is_nowhere_is_kept_for_scoring(write):
    path = write(document(question("q1", ("Ada", -1), ("1822", 44))))
    problems = Problems()
    (example,) = iterate(path, offsets="nearest", problems=problems)
    assert [answer.texts for answer in example.answers] == [("1822",), ("Ada",)]
    assert example.answers[1].spans == ()
    assert problems.changes == {"answer without a place kept as text": 1}


@pytest.mark.parametrize(
    ("questions", "reason"),
    [
        ([question("q"), question("q")], "wanted a new id, got 'q' again"),
        ([question("q", ("", 0))], "wanted the text of an answer, got none"),
        ([question("q", ("Roth", True))], 'wanted a number in "answer_start", got true'),
        ([question("q", (7, 0))], 'wanted a text in "text", got 7'),
        ([question("q", is_impossible=False)], "wanted an answer where is_impossible is false"),
        ([question("q", ("Ida", 0), is_impossible=True)], "wanted no answers where is_impossible"),
        ([{"id": "q"}], 'wanted "question", got the keys id'),
        (["text"], 'wanted an object, got "text"'),
        ([{"id": 7, "question": "?"}], 'wanted a text in "id", got 7'),
    ],
)
def test_wrong_questions(write, questions, reason):
    path = write(document(*questions, question("last", ("Ida", 0))))
    with pytest.raises(InputError, match=reason):
        list(iterate(path))
    problems = Problems("skip")
    assert [example.id for example in iterate(path, problems=problems)][-1] == "last"
    assert problems.skipped == 1


def test_wrong_paragraph_is_one_problem(write):
    good = {"context": "A b.", "qas": [question("q", ("b", 2))]}
    data = [{"paragraphs": [{"qas": []}, good]}, {"paragraphs": 3}, 5]
    path = write(json.dumps({"data": data}))
    problems = Problems("skip")
    assert [example.id for example in iterate(path, problems=problems)] == ["q"]
    assert problems.skipped == 3


def test_not_squad_at_all(write):
    with pytest.raises(InputError, match=r'wanted "data", got the keys a'):
        list(iterate(write('{"a": 1}')))
    with pytest.raises(InputError, match="wanted offsets"):
        list(iterate(write(document()), offsets="fix"))
