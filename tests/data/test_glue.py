import pytest

from softf1.data import PairExample, read
from softf1.errors import InputError

MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def test_paraphrases_of_msr_with_bom_and_lone_quotes(write):
    row = '1\t11\t12\t" It is late , he said .\tHe said it is late .\r\n'
    corpus = read(write("\ufeff" + MRPC + row))
    assert (corpus.format, corpus.task) == ("mrpc", "pairs")
    assert corpus.examples == [
        PairExample('" It is late , he said .', "He said it is late .", "1", 2)
    ]


def test_tests_of_glue_have_no_labels(write):
    (pair,) = read(write(MRPC.replace("Quality", "index") + "0\t1\t2\ta b\tc d\n")).examples
    assert (pair.label, pair.id) == (None, "0")


def test_question_pairs(write):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    corpus = read(write(header + "7\t1\t2\tIs it late?\tHow late is it?\t0\n"))
    assert corpus.format == "qqp"
    assert corpus.examples == [PairExample("Is it late?", "How late is it?", "0", 2, "7")]


def test_another_table_is_refused(write):
    with pytest.raises(
        InputError, match="wanted the columns #1 String, #2 String of mrpc, got a, b"
    ):
        read(write("a\tb\n1\t2\n"), format="mrpc")
