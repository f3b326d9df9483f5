import gzip

import pytest

from softf1.data import Problems, _text
from softf1.errors import InputError


def read_lines(path, on_error="raise", errors="strict"):
    problems = Problems(on_error, encoding_errors=errors)
    return list(_text.lines(path, problems)), problems


@pytest.mark.parametrize(
    "data",
    [
        b"a\nb\n",
        b"a\r\nb\r\n",
        b"\xef\xbb\xbfa\nb",
        b"\xef\xbb\xbfa\r\nb",
        gzip.compress(b"a\nb\n"),
    ],
    ids=["plain", "CRLF", "BOM", "BOM and CRLF", "gzip"],
)
def test_lines_are_the_same_in_every_dress(write, data):
    assert read_lines(write(data))[0] == [(1, "a"), (2, "b")]


def test_only_newlines_end_lines(write):
    text = "one\u2028still\u0085one\x0cline\nsecond"
    assert [line for _, line in read_lines(write(text))[0]] == [text.split("\n")[0], "second"]


def test_wrong_encoding_names_the_line(write):
    path = write("fine\ncafé\n".encode() + "café\n".encode("latin-1"))
    with pytest.raises(InputError, match=r":3: wanted UTF-8 text, got byte 0xe9; use --enc"):
        read_lines(path)
    kept, problems = read_lines(path, on_error="skip")
    assert kept == [(1, "fine"), (2, "café")]
    assert problems.counts == {"not UTF-8": 1}
    replaced, problems = read_lines(path, errors="replace")
    assert replaced[2] == (3, "caf\ufffd")
    assert problems.changes.total() == 1
    assert problems.skipped == 0


@pytest.mark.parametrize("name", ["UTF-16", "UTF-32"])
def test_wide_encodings_are_named(write, name):
    with pytest.raises(InputError, match=f"wanted UTF-8, got {name}"):
        read_lines(write("a\nb".encode(name)))


def test_damaged_gzip(write):
    whole = gzip.compress(b"line\n" * 1000)
    with pytest.raises(InputError, match="wanted a whole gzip file"):
        read_lines(write(whole[: len(whole) // 2]))
    with pytest.raises(InputError, match="wanted a whole gzip file"):
        read_lines(write(whole[:20] + b"\x00\x01\x02" + whole[23:]))


def test_missing_file_folder_and_impossible_name(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_lines(tmp_path / "none")
    with pytest.raises(InputError, match="directory"):
        read_lines(tmp_path)
    with pytest.raises(InputError, match="null"):
        read_lines("a\0b")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_pieces_of_any_size_give_the_same_blocks(write, monkeypatch, size, end):
    text = "\n\na 1\nbé 2\n\n\nc 3\n\nd 4\n\n\n\ne 5".replace("\n", end)
    monkeypatch.setattr(_text, "_PIECE", size)
    blocks = list(_text.blocks(write(text), Problems()))
    assert blocks == [(3, "a 1\nbé 2"), (7, "c 3"), (9, "d 4"), (13, "e 5")]


def test_a_block_with_a_bad_line_is_left_out_whole(write):
    path = write(b"a 1\n\nb 2\nc \xff\nd 3\n\ne 4\n")
    problems = Problems("skip")
    assert list(_text.blocks(path, problems)) == [(1, "a 1"), (7, "e 4")]
    assert problems.first["not UTF-8"][0].startswith(f"{path}:4: ")


def test_start_ends_at_a_whole_line(write):
    path = write("abc\ndef\nghi\n")
    assert _text.read_start(path, size=10) == "abc\ndef"
    # A long row after a header is better than none.
    assert _text.read_start(path, size=6) == "abc\nde"


def test_on_error_is_checked():
    with pytest.raises(InputError, match='wanted on_error "raise" or "skip"'):
        Problems("ignore")


def test_a_gzip_bomb_is_refused_with_the_option_that_allows_it(write):
    path = write(gzip.compress(b"Ada B-PER\n\n" * 100_000))
    problems = Problems(max_unpacked=1 << 20)
    with pytest.raises(InputError, match=r"at most 1,048,576 bytes unpacked.*max_unpacked=BYTES"):
        list(_text.lines(path, problems))
    assert len(list(_text.lines(path, Problems(max_unpacked=1 << 22)))) == 200_000
    # A plain file is as large as it looks.
    plain = write(b"Ada B-PER\n\n" * 100_000)
    assert len(list(_text.lines(plain, Problems(max_unpacked=10)))) == 200_000


@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_a_line_without_an_end_is_refused_with_its_number(write, monkeypatch, size):
    monkeypatch.setattr(_text, "_PIECE", size)
    path = write(b"one\ntwo\n" + b"x" * (3 << 20))
    with pytest.raises(InputError, match=r"wanted lines of at most 1,048,576 bytes.*max_line"):
        list(_text.lines(path, Problems(max_line=1 << 20)))
    with pytest.raises(InputError) as caught:
        list(_text.lines(path, Problems(max_line=1 << 20)))
    assert caught.value.line == 3
    assert len(list(_text.lines(path, Problems(max_line=4 << 20)))) == 3


def test_a_file_of_one_endless_sentence_is_refused(write):
    path = write(b"word O\n" * 400_000)
    with pytest.raises(InputError, match="wanted an empty line after at most 1,048,576 bytes"):
        list(_text.blocks(path, Problems(max_line=1 << 20)))
    assert len(list(_text.blocks(path, Problems()))) == 1
