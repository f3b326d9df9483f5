import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import softf1
from softf1.cli.main import main
from softf1.tasks.registry import TASKS

TRAIN = "Marta B-PER\nslept O\n\nIt O\nrained O\n"
DEV = "Oslo B-LOC\nsleeps O\n\nMarta B-PER\nran O\n"


SPANS = """{"text": "Bank of Oslo", "spans": [{"start": 0, "end": 12, "label": "ORG"}, \
{"start": 8, "end": 12, "label": "LOC"}]}
"""
QUERY = (
    '[{"context": "Marta slept", "query": "people", "entity_label": "PER", "qas_id": "0.1", '
    '"start_position": [0], "end_position": [0], "span_position": ["0;0"], "impossible": false}]'
)
ANSWER = (
    '{"id": "1", "context": "Marta slept", "question": "Who slept?", '
    '"answers": {"text": ["Marta"], "answer_start": [0]}}\n'
)
PAIR = '{"first": "It rained.", "second": "Rain fell.", "label": "1"}\n'
TEXT = '{"text": "It rained.", "label": "bad"}\n'
FILES_OF_TASKS = {  # what each kind of task reads, and the kind of task that the file is of
    "tagging": [(TRAIN, "conll, tagging")],
    "span_ner": [(TRAIN, "conll, tagging"), (SPANS, "spans, tagging")],
    "mrc_ner": [
        (QUERY, "mrc, mrc_ner"),
        (TRAIN, "conll, tagging"),
        (SPANS, "spans, tagging"),
    ],
    "qa": [(ANSWER, "squad, qa")],
    "pairs": [(PAIR, "jsonl, pairs")],
    "classification": [(TEXT, "jsonl, classification")],
}


@pytest.fixture
def files(tmp_path):
    for name, text in (("train.txt", TRAIN), ("dev.txt", DEV)):
        (tmp_path / name).write_text(text)
    return [str(tmp_path / "train.txt"), str(tmp_path / "dev.txt")]


def test_plain_lines_in_a_pipe(files, capsys):
    assert main(["stats", files[0], "--batch-size", "1"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == f"{files[0]}: 2 examples, conll, tagging"
    assert lines[1] == "3 negatives, 1 positives, ratio 3.00"
    assert lines[-1].split("\t") == ["PER", "1", "25.00%", "0.50", "50.0%"]
    assert "took format conll" in err


def test_parts_of_speech_have_no_positives_to_speak_of(tmp_path, capsys):
    path = tmp_path / "pos.txt"
    path.write_text("dogs NOUN\nbark VERB\n\ncats NOUN\nsleep VERB\nsoundly ADV\n")
    assert main(["stats", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("5 words with 3 labels and no background: NOUN, the most frequent,")
    assert not any("positives" in line for line in lines)


def test_json_for_programs(files, capsys):
    assert main(["stats", *files, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["ratio"] for one in found["files"]] == [3.0, 1.0]
    assert found["files"][0]["labels"][0]["label"] == "O"
    assert found["files"][0]["skipped"] == {}
    assert found["unseen"] == [f"{files[1]}: LOC is not in {files[0]}: scored, never predicted"]


def test_labels_of_later_files_only_are_said_once(files, capsys):
    assert main(["stats", *files]) == 0
    assert capsys.readouterr().out.count("scored, never predicted") == 1


def test_format_task_and_options_can_be_forced(tmp_path, capsys):
    path = tmp_path / "data"
    path.write_text("fine text\tgood\nodd text\tbad\n")
    command = ["stats", str(path), "--format", "tsv", "--task", "classification"]
    assert main(command) == 2
    assert "wanted a column for the text" in capsys.readouterr().err
    assert main([*command, "--set", "text=0", "--set", "label=1"]) == 0
    assert main([*command, "--set", "text"]) == 2


@pytest.mark.parametrize("kind", TASKS)
def test_every_task_that_trains_has_stats(kind, tmp_path, capsys):
    for text, kind_of_file in FILES_OF_TASKS[kind]:
        path = tmp_path / "data"
        path.write_text(text)
        assert main(["stats", str(path), "--task", kind]) == 0
        assert capsys.readouterr().out.splitlines()[0].endswith(f", {kind_of_file}")
        form = kind_of_file.partition(",")[0]
        assert main(["stats", str(path), "--task", kind, "--format", form]) == 0
        assert capsys.readouterr().out.splitlines()[0].endswith(f", {kind_of_file}")


def test_the_task_reads_files_in_another_encoding(tmp_path, capsys):
    path = tmp_path / "data"
    path.write_bytes("Zoë B-PER\nslept O\n".encode("utf-16"))
    command = ["stats", str(path), "--task", "mrc_ner"]
    assert main([*command, "--encoding", "utf-16"]) == 0
    assert ": 1 examples, conll, tagging" in capsys.readouterr().out


def test_an_unknown_task_lists_those_that_train(files, capsys):
    assert main(["stats", files[0], "--task", "span"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("softf1 stats: unknown task 'span'")
    assert err.count("\n") == 1
    assert all(kind in err for kind in TASKS)


@pytest.mark.parametrize("key", ["path", "format", "task", "on_error", "problems", "batch_size"])
def test_set_is_for_options_of_the_reader_only(files, key, capsys):
    assert main(["stats", files[0], "--set", f"{key}=x"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_bad_line_is_one_line_and_exit_2(tmp_path, capsys):
    path = tmp_path / "data"
    path.write_text("a B-X\nb\n\nc O\n")
    assert main(["stats", str(path), "--format", "conll"]) == 2
    err = capsys.readouterr().err
    assert err == f"softf1 stats: {path}:2: wanted 2 columns separated by ' ', got 1: 'b'\n"
    assert main(["stats", str(path), "--format", "conll", "--on-error", "skip"]) == 0
    assert "skipped 1: ragged row (1; first" in capsys.readouterr().err


ANSWER = '{"text": "Ida", "answer_start": %d}'
SQUAD = '{"data": [{"paragraphs": [{"context": "Ida left", "qas": [{"id": "q", "question": "?",\n'
SQUAD += '"answers": [%s]}]}]}]}'

BROKEN = {
    "missing": (None, "No such file"),
    "empty": (b"", "wanted data, got an empty file"),
    "binary": (bytes(range(256)), "wanted one of CoNLL columns"),
    "UTF-16": (TRAIN.encode("utf-16"), ":1: wanted UTF-8, got UTF-16"),
    "Latin-1": ("Zoë B-PER\nran O\n".encode("latin-1"), ":1: wanted UTF-8 text, got byte 0xeb"),
    "cut gzip": (gzip.compress(TRAIN.encode())[:-9], "wanted a whole gzip file"),
    "cut JSON": ((SQUAD % ANSWER % 0)[:-9].encode(), ":2: wanted JSON"),
    "offset": ((SQUAD % ANSWER % 4).encode(), ":2: wanted 'Ida' at offset 4, got 'lef'"),
    "ragged columns": (b"a B-X\nb O\n\nc O\nd\n", ":5: wanted 2 columns"),
    "ragged table": (b"text,label\na,x\nb\n", ":3: wanted 2 columns, got 1"),
    "no labels": (b"text,kind\na,x\nb,y\n", "name their column with --set label=NAME"),
    "same id": (b"id\ttext\tlabel\n7\ta\tx\n7\tb\ty\n", ":3: wanted a new id, got '7' again"),
    "no column": (b"id,kind\n1,x\n", "wanted one of CoNLL columns"),
    "long line": (b"x" * 1_000_000, "wanted one of CoNLL columns"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_one_short_line_and_exit_2(tmp_path, capsys, name):
    data, message = BROKEN[name]
    path = tmp_path / "data"
    if data is not None:
        path.write_bytes(data)
    assert main(["stats", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"softf1 stats: {path}:")
    assert message in err
    assert err.count("\n") == 1
    assert len(err) < 400 + len(str(path))


def test_a_folder_is_no_file(tmp_path, capsys):
    assert main(["stats", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_table_on_a_terminal(files, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["stats", files[0]]) == 0
    assert "│" in capsys.readouterr().out


def test_stats_does_not_import_torch(files):
    code = (
        "import sys; from softf1.cli.main import main;"
        f"main(['stats', {files[0]!r}]); assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(softf1.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment)


def test_labels_cannot_break_the_table(tmp_path, capsys):
    path = tmp_path / "data"
    path.write_text('{"text": "a", "label": "x\\ty\\u001b[31m"}\n{"text": "b", "label": "é [b]"}\n')
    assert main(["stats", str(path)]) == 0
    rows = capsys.readouterr().out.splitlines()[-2:]
    assert [row.split("\t")[0] for row in rows] == ["x\\ty\\x1b[31m", "é [b]"]


def test_words_of_an_example_are_counted(files, capsys):
    assert main(["stats", files[0]]) == 0
    assert "words per example: median 2, 99% have at most 2, longest 2 (line 1)" in (
        capsys.readouterr().out
    )


def test_texts_in_train_and_dev_are_counted(files, capsys):
    with Path(files[1]).open("a") as file:
        file.write("\nIt O\nrained O\n")
    assert main(["stats", *files]) == 0
    assert f"{files[1]}: 1 of 3 texts is also in {files[0]}" in capsys.readouterr().out
    assert main(["stats", *files, "--json"]) == 0
    (overlap,) = json.loads(capsys.readouterr().out)["overlaps"]
    assert (overlap["first"], overlap["in_second"], overlap["same"]) == (files[0], 1, False)


def test_the_same_file_given_twice_is_said(files, capsys):
    assert main(["stats", files[0], files[0]]) == 0
    assert "has the same 2 texts as" in capsys.readouterr().out


def peak_of_stats(*arguments):
    """Runs `softf1 stats` in a process of its own; its output and its peak of memory in MiB."""
    code = (
        "import re, sys; from pathlib import Path; from softf1.cli.main import main;"
        "status = main(['stats', *sys.argv[1:]]);"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text());"
        "print('peak', int(peak[1]) // 1024); sys.exit(status)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(softf1.__file__).parents[1])}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout, int(found.stdout.rpartition("peak ")[2])


LARGE = {
    "conll": "Ada{n} B-PER\nslept O\nin O\nGraz B-LOC\n\n",
    "jsonl": '{{"id": "{n}", "text": "a text of no great length, {n}", "label": "x{d}"}}\n',
    "csv": '"{n}","a text, of no great length, {n}",x{d}\n',
    "json": ',{{"id": "{n}", "text": "a text of no great length, {n}", "label": "x{d}"}}',
}


def write_large(path, kind, rows):
    """A gzip file of so many rows."""
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write({"csv": "id,text,label\n", "json": '[{"text": "a", "label": "b"}'}.get(kind, ""))
        for n in range(rows):
            file.write(LARGE[kind].format(n=n, d=n % 3))
        file.write("]" if kind == "json" else "")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("conll", 60_000),
        *(pytest.param(kind, 1_500_000, marks=pytest.mark.slow) for kind in LARGE),
    ],
)
def test_stats_of_a_gzip_bomb_stay_under_a_gibibyte(tmp_path, kind, rows):
    path = tmp_path / "large.gz"
    write_large(path, kind, rows)
    out, peak = peak_of_stats(path)
    assert f"{rows + (kind == 'json'):,} examples" in out
    assert peak < (1024 if rows > 100_000 else 100)


def test_bounds_are_options_of_every_reader(tmp_path, capsys):
    path = tmp_path / "data"
    path.write_bytes(gzip.compress(TRAIN.encode() * 100))
    assert main(["stats", str(path)]) == 0
    capsys.readouterr()
    assert main(["stats", str(path), "--set", "max_unpacked=1000"]) == 2
    assert (
        "--set max_unpacked=BYTES (in a recipe, task.reader.max_unpacked=BYTES) allows"
        in capsys.readouterr().err
    )
    assert main(["stats", str(path), "--set", "max_unpackd=1000"]) == 2
    assert "did you mean max_unpacked?" in capsys.readouterr().err


def test_a_recipe_is_no_data_file(tmp_path, capsys):
    path = tmp_path / "recipe.toml"
    path.write_text('[task]\nkind = "pairs"\n')
    assert main(["stats", str(path)]) == 2
    said = "wanted a data file, got a recipe: stats takes the files that it names"
    assert capsys.readouterr().err == f"softf1 stats: {path}: {said}\n"
