import pytest

from softf1.data import Problems, TaggedSentence, conll
from softf1.data.tags import convert, find_scheme, to_characters
from softf1.errors import InputError


def test_file_in_one_scheme_written_in_another(write):
    sentences = list(conll.iterate(write("Ada I-PER\nLind I-PER\nBo B-PER\n\nOslo I-LOC\n")))
    scheme = find_scheme(sentences)
    assert scheme.name == "IOB1"
    converted = list(convert(sentences, source=scheme, target="BIOES"))
    assert [s.tags for s in converted] == [("B-PER", "E-PER", "S-PER"), ("S-LOC",)]
    assert list(convert(converted, source="BIOES", target="IOB1")) == sentences


def test_invalid_tags_name_the_line_of_the_tag(write):
    path = write("a O\n\nb B-X\nc I-Y\nd O\n\ne B-X\n")
    sentences = list(conll.iterate(path))
    with pytest.raises(InputError, match=r"data.txt:4: wanted a tag that can follow 'B-X' in BIO"):
        list(convert(sentences, source="BIO", path=path))
    problems = Problems("skip")
    kept = list(convert(sentences, source="BIO", path=path, problems=problems))
    assert kept == [sentences[0], sentences[2]]
    assert problems.counts == {"invalid tags": 1}


def test_repaired_only_when_asked():
    wrong = TaggedSentence(("b", "c"), ("B-X", "I-Y"), 1)
    problems = Problems()
    (repaired,) = convert([wrong], source="BIO", repair=True, problems=problems)
    assert repaired.tags == ("B-X", "B-Y")
    assert problems.changes == {"tags repaired": 1}


def test_tags_of_no_scheme_cannot_be_repaired():
    wrong = TaggedSentence(("b",), ("Q-X",), 1)
    with pytest.raises(InputError, match="got 'Q-X'"):
        list(convert([wrong], source="BIO", repair=True))


def test_unknown_scheme():
    with pytest.raises(InputError, match="wanted a tag scheme of BIO"):
        list(convert([], source="BIB"))


def test_valid_neighbours_are_remembered_but_invalid_ones_are_not():
    good = TaggedSentence(("a", "b"), ("B-X", "I-X"), 1)
    bad = TaggedSentence(("a", "b"), ("O", "I-X"), 5)
    problems = Problems("skip")
    kept = list(convert([good, bad, good, bad], source="BIO", problems=problems))
    assert kept == [good, good]
    assert problems.skipped == 2


def test_words_to_characters():
    sentence = TaggedSentence(("北京", "很", "大"), ("NR", "AD", "VA"), 3)
    characters = to_characters(sentence, scheme="BIO")
    assert characters.words == ("北", "京", "很", "大")
    assert characters.tags == ("B-NR", "I-NR", "B-AD", "B-VA")
