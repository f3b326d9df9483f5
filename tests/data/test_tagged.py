import pytest

from softf1.data import read
from softf1.data.tagged import iterate
from softf1.errors import InputError


def test_chinese_treebank_lines(write):
    path = write("<S ID=12>\n他_PN 住_VV 在_P 北京_NR 。_PU\n</S>\n<S ID=13>\n好_VA\n</S>\n")
    corpus = read(path)
    assert (corpus.format, corpus.task) == ("tagged", "tagging")
    first, second = corpus.examples
    assert first.words == ("他", "住", "在", "北京", "。")
    assert first.tags == ("PN", "VV", "P", "NR", "PU")
    assert (second.tags, second.line) == (("VA",), 5)


def test_wall_street_journal_chunks(write):
    path = write("=====\n\n[ The/DT ratio/NN ] was/VBD 1\\/2/CD ./.\n")
    (sentence,) = iterate(path, separator="/")
    assert sentence.words == ("The", "ratio", "was", "1\\/2", ".")
    assert sentence.tags == ("DT", "NN", "VBD", "CD", ".")


def test_a_word_without_tag(write):
    with pytest.raises(InputError, match=r":2: wanted word_TAG, got 'b'"):
        list(iterate(write("a_DT\nb c_NN\n")))


def test_lines_of_white_space_are_no_sentences(write):
    corpus = read(write("a_DT map_NN\n\u3000\n \t\nit_PRP ran_VBD\n"), format="tagged")
    assert [sentence.line for sentence in corpus.examples] == [1, 4]
