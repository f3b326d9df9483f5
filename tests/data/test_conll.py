import pytest

from softf1.data import Problems, TaggedSentence, read
from softf1.data.conll import iterate
from softf1.errors import InputError

FOUR = """-DOCSTART- -X- O O

Marta NNP I-NP I-PER
visited VBD I-VP O
Porto NNP I-NP I-LOC
. . O O

-DOCSTART- -X- O O

It PRP I-NP O
rained VBD I-VP O
"""


def words(path, **options):
    return [sentence.words for sentence in iterate(path, **options)]


def test_four_columns_with_document_marks(write):
    first, second = iterate(write(FOUR))
    assert first.words == ("Marta", "visited", "Porto", ".")
    assert first.tags == ("I-PER", "O", "I-LOC", "O")
    assert (first.line, second.line) == (3, 10)


def test_chosen_columns(write):
    path = write(FOUR)
    assert next(iterate(path, tag=1)).tags == ("NNP", "VBD", "NNP", ".")
    assert next(iterate(path, tag=None)).tags == ()
    assert next(iterate(path, word=-1, tag=0)).words == ("I-PER", "O", "I-LOC", "O")
    with pytest.raises(InputError, match=r":3: wanted column 7, got 4 columns"):
        next(iterate(path, tag=7))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a\tX\nb\tY\n\nc\tX\n", {}),
        ("a X\nb Y\n\nc X\n", {}),
        ("a    X\nb  Y\n\nc X\n", {}),
        ("a X \nb Y \n\nc X \n", {}),
        ("a|X\nb|Y\n\nc|X\n", {"separator": "|"}),
        ("a X\nb Y\n \t\nc X\n", {}),
        ("a\tX\nb\tY\n\t\nc\tX\n", {}),
        ("# id 7\na X\nb Y\n\n# id 8\nc X\n", {"comment": "# id"}),
        ("-DOCSTART- O\na X\nb Y\n\nc X", {}),
    ],
    ids=[
        *("tabs", "spaces", "aligned", "trailing", "bar", "white line", "tab line", "comments"),
        "document mark without blank line",
    ],
)
def test_layouts(write, text, options):
    sentences = list(iterate(write(text), **options))
    assert [s.words for s in sentences] == [("a", "b"), ("c",)]
    assert [s.tags for s in sentences] == [("X", "Y"), ("X",)]


def test_a_hash_is_a_word_unless_told(write):
    assert words(write("#rain HT\nagain RB\n\nok UH\n")) == [("#rain", "again"), ("ok",)]


def test_white_space_inside_cells_is_text(write):
    assert words(write("a\u3000b\tX\nc\u00a0d\tY\n\ne\tX\n")) == [("a\u3000b", "c\u00a0d"), ("e",)]


def test_ragged_row_names_its_line(write):
    path = write("a X\nb Y\n\nc X\nd\n\ne X\n")
    with pytest.raises(InputError, match=r"data.txt:5: wanted 2 columns separated by ' ', got 1"):
        list(iterate(path))
    problems = Problems("skip")
    assert words(path, problems=problems) == [("a", "b"), ("e",)]
    assert problems.counts == {"ragged row": 1}


@pytest.mark.parametrize("text", ["# id = 7\na X\nb Y\n", "a X\n\n# id 7 of 9\nb Y\n"])
def test_a_ragged_row_among_comments_names_the_option(write, text):
    path = write(text)
    with pytest.raises(InputError, match=r"if lines that begin with # are comments, say --set com"):
        list(iterate(path))
    assert words(path, comment="#")


def test_rows_whose_lengths_make_up_for_each_other_are_ragged(write):
    with pytest.raises(InputError, match=r":4: wanted 2 columns"):
        list(iterate(write("a X\n\nb Y\nc\nd e f\n")))


def test_empty_tag(write):
    with pytest.raises(InputError, match=r":2: wanted a word and a tag, got an empty cell"):
        list(iterate(write("a\tX\nb\t\n")))


def test_one_column_has_no_tag(write):
    with pytest.raises(InputError, match=r":1: wanted a word and a tag, got 1 column"):
        list(iterate(write("a\nb\n")))


def test_word_and_tag_cannot_be_one_column(write):
    with pytest.raises(InputError, match=r":1: wanted a word and a tag, got column 0 for both"):
        list(iterate(write("a X\nb Y\n"), tag=0))


def test_brackets_of_ontonotes(write):
    rows = [
        ("#begin document (bc/made/up); part 000",),
        ("bc/up", "0", "0", "Lena", "NNP", "(S*", "-", "-", "-", "Sp1", "(PERSON*", "*", "-"),
        ("bc/up", "0", "1", "Voss", "NNP", "*", "-", "-", "-", "Sp1", "*)", "*", "-"),
        ("bc/up", "0", "2", "left", "VBD", "*", "go", "-", "-", "Sp1", "*", "(V*)", "-"),
        ("bc/up", "0", "3", "Graz", "NNP", "*)", "-", "-", "-", "Sp1", "(GPE)", "*", "-"),
        ("",),
        ("bc/up", "0", "0", "Why", "WRB", "(S*)", "-", "-", "-", "Sp2", "*", "-"),
        ("",),
        ("#end document",),
    ]
    path = write("\n".join("   ".join(row) for row in rows))
    corpus = read(path)
    assert corpus.format == "conll2012"
    first, second = corpus.examples
    assert first.words == ("Lena", "Voss", "left", "Graz")
    assert first.tags == ("B-PERSON", "I-PERSON", "O", "B-GPE")
    assert second == TaggedSentence(("Why",), ("O",), 7)


def test_wall_street_journal_columns(write):
    text = "Shares\tNNS\nfell\tVBD\n1.5\tCD\n%\tNN\n.\t.\n\nWhy\tWRB\n?\t.\n"
    corpus = read(write(text))
    assert (corpus.format, corpus.task) == ("conll", "tagging")
    assert corpus.examples[0].tags == ("NNS", "VBD", "CD", "NN", ".")


def test_reading_streams(write):
    sentences = iterate(write("a X\n\n" * 10 + "b"))
    assert next(sentences).words == ("a",)
