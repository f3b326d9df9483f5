import pytest

from softf1.cli.main import build_parser, main
from softf1.recipe import read_recipe
from tests.scaffold import files


@pytest.fixture(autouse=True)
def _data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my data").mkdir()
    (tmp_path / "my data/train.conll").write_text(files.tagged())
    (tmp_path / "my data/test.conll").write_text(files.tagged(8))


def test_writes_a_recipe_and_prints_three_commands(capsys):
    assert main(["new", "my data/train.conll", "my data/test.conll", "--out", "my names.toml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("my names.toml: tagging, 40 examples, conll; encoder minilm, loss auto")
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["softf1", verb] for verb in ("train", "compare", "report")
    ]
    assert "'my names.toml'" in lines[2]
    assert lines[4] == "softf1 report 'runs/my names-compare'"
    assert lines[6].startswith(("a run: about ", "a run: not estimated: minilm is not on"))
    recipe = read_recipe("my names.toml")
    assert (recipe.name, recipe.task.test) == ("my names", "my data/test.conll")


def test_texts_in_two_files_are_noted_on_the_terminal(capsys):
    assert main(["new", "my data/train.conll", "my data/test.conll", "--encoder", "bilstm"]) == 0
    assert "note: my data/test.conll: 8 of 8 texts are also in my data/train.conll" in (
        capsys.readouterr().err
    )


def test_the_commands_are_known_words(capsys):
    assert main(["new", "my data/train.conll", "--encoder", "no/such-encoder"]) == 0
    parser = build_parser()
    lines = capsys.readouterr().out.splitlines()
    for line in lines[2:5]:
        parser.parse_args(line.split()[1:])
    assert lines[6] == "a run: not estimated: no/such-encoder is not on this machine yet"


def test_a_recipe_is_never_overwritten(capsys):
    assert main(["new", "my data/train.conll"]) == 0
    assert main(["new", "my data/train.conll"]) == 2
    wanted = "softf1 new: recipe.toml: wanted a new file, this one exists already: "
    wanted += "choose another with --out\n"
    assert capsys.readouterr().err == wanted


def test_dash_prints_the_recipe(capsys):
    assert main(["new", "my data/train.conll", "--out", "-"]) == 0
    assert capsys.readouterr().out.startswith("# Written by softf1 new")


def test_bad_data_is_one_line_and_exit_2(tmp_path, capsys):
    (tmp_path / "odd.txt").write_text("what is\nthis even\n")
    assert main(["new", "odd.txt"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["new", "no-such-file"]) == 2
    assert not (tmp_path / "recipe.toml").exists()


@pytest.mark.parametrize("out", [".", "", "my data"])
def test_a_folder_is_no_place_for_a_recipe(out, capsys):
    assert main(["new", "my data/train.conll", "--out", out]) == 2
    error = capsys.readouterr().err
    assert error == f"softf1 new: {out or '.'}: wanted a file to write to, got a folder\n"


def test_columns_can_be_told(tmp_path):
    rows = "".join(f"it is the number {n},{'ab'[n % 2]}\n" for n in range(30))
    (tmp_path / "odd.csv").write_text("what,sort\n" + rows)
    forced = ["--format", "csv", "--task", "classification"]
    assert main(["new", "odd.csv", *forced, "--set", "text=what", "--set", "label=sort"]) == 0
    assert read_recipe("recipe.toml").task.options["reader"] == {"text": "what", "label": "sort"}
