import pytest

from softf1.data import Problems, TextExample, read
from softf1.data.lines import iterate
from softf1.errors import InputError

NEWS = "".join(f"rec.sport\tGame {n} was close.\nsci.space\tProbe {n} landed.\n" for n in range(5))


def test_label_then_text(write):
    first = next(iterate(write("3 it is a fine , slow film\n")))
    assert first == TextExample("it is a fine , slow film", ("3",), 1)


def test_twenty_news_with_tabs_is_found(write):
    corpus = read(write(NEWS))
    assert (corpus.format, corpus.task) == ("lines", "classification")
    assert corpus.examples[1] == TextExample("Probe 0 landed.", ("sci.space",), 2)


def test_several_labels(write):
    assert next(iterate(write("a,b some text"), label_separator=",")).labels == ("a", "b")


def test_a_label_alone(write):
    path = write("1 fine\n0\n")
    with pytest.raises(InputError, match=r":2: wanted a label, ' ' and a text, got '0'"):
        list(iterate(path))
    problems = Problems("skip")
    assert len(list(iterate(path, problems=problems))) == 1
    assert problems.skipped == 1
