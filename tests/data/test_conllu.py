import pytest

from softf1.data import Problems, read
from softf1.data.conllu import iterate
from softf1.errors import InputError


def row(number, word, upos="NOUN", xpos="NN"):
    return f"{number}\t{word}\t_\t{upos}\t{xpos}\t_\t0\troot\t_\t_"


TEXT = "\n".join(
    [
        "# sent_id = made-up-1",
        "# text = Dámelo ya",
        row("1-3", "Dámelo", "_", "_"),
        row("1", "Da", "VERB", "VM"),
        row("2", "me", "PRON", "PP"),
        row("3", "lo", "PRON", "PP"),
        row("3.1", "elided", "VERB", "VM"),
        row("4", "ya", "ADV", "RG"),
        "",
        row("1", "New York", "PROPN", "NP"),
        "",
    ]
)


def test_multiword_tokens_and_empty_nodes(write):
    first, second = iterate(write(TEXT))
    assert first.words == ("Da", "me", "lo", "ya")
    assert first.tags == ("VERB", "PRON", "PRON", "ADV")
    assert first.id == "made-up-1"
    assert (second.words, second.line) == (("New York",), 10)


def test_xpos_and_relations(write):
    path = write(TEXT)
    assert next(iterate(path, tag="xpos")).tags == ("VM", "PP", "PP", "RG")
    assert next(iterate(path, tag="deprel")).tags == ("root",) * 4
    with pytest.raises(InputError, match="wanted tag upos, xpos, deprel, got 'pos'"):
        next(iterate(path, tag="pos"))


def test_detected(write):
    assert read(write(TEXT)).format == "conllu"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (row("1", "a") + "\n2\tb\tNOUN", r":2: wanted 10 columns separated by '\\t', got 3"),
        (row("1", "a") + "\n" + row("3", "b"), r":2: wanted word id 2, got '3'"),
        (row("1", "a", xpos="_"), r":1: wanted a value of xpos, got _"),
    ],
)
def test_errors_name_the_line(write, text, message):
    path = write(text + "\n\n" + row("1", "fine"))
    with pytest.raises(InputError, match=message):
        list(iterate(path, tag="xpos"))
    problems = Problems("skip")
    assert [s.words for s in iterate(path, tag="xpos", problems=problems)] == [("fine",)]
    assert problems.skipped == 1
