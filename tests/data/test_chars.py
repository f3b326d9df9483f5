import pytest

from softf1.data import Problems, read
from softf1.data.chars import iterate
from softf1.errors import InputError


@pytest.mark.parametrize("between", ["\t", " "])
def test_spaces_are_characters_too(write, between):
    rows = [("王", "B-PER"), (" ", "M-PER"), ("芳", "E-PER"), ("\u3000", "O"), ("来", "O")]
    path = write("".join(f"{char}{between}{tag}\n" for char, tag in rows) + f"\n好{between}O\n")
    first, second = iterate(path)
    assert list(zip(first.words, first.tags, strict=True)) == rows
    assert (second.words, second.line) == (("好",), 7)


def test_a_character_without_tag_names_its_line(write):
    path = write("王\tB-PER\n芳\n\n好\tO\n")
    with pytest.raises(InputError, match=r":2: wanted 2 columns"):
        list(iterate(path))
    problems = Problems("skip")
    assert [s.words for s in iterate(path, problems=problems)] == [("好",)]


def test_without_tags(write):
    first, second = iterate(write("今\n天\n\n好\n"), tagged=False)
    assert (first.words, first.tags, second.words) == (("今", "天"), (), ("好",))


def test_segmentation_of_ctb_is_found_as_characters(write):
    text = "我 S-PN\n们 S-NN\n去 S-VV\n上 B-NR\n海 E-NR\n。 S-PU\n\n好 S-VA\n"
    assert read(write(text)).format == "chars"
