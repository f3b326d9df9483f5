from softf1.data.plain import iterate
from softf1.data.problems import Problems


def test_empty_lines_between_texts_are_noted(tmp_path):
    path, problems = tmp_path / "texts.txt", Problems()
    path.write_text("one\n\n  \ntwo\n\n", "utf-8")
    assert [(e.texts, e.line) for e in iterate(path, problems=problems)] == [
        (("one",), 1),
        (("two",), 4),
    ]
    said = f"{path}: empty lines are skipped; the id is the number of the line"
    assert problems.notes == [said]


def test_empty_lines_at_the_end_are_not(tmp_path):
    path, problems = tmp_path / "texts.txt", Problems()
    path.write_text("one\ntwo\n\n", "utf-8")
    assert len(list(iterate(path, problems=problems))) == 2
    assert problems.notes == []
