from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from softf1.cli import options
from softf1.cli.main import main
from softf1.cli.show import report_failed
from softf1.recipe import format_recipe
from tests.experiments import fake
from tests.experiments.fake import run_inline


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A recipe whose runs take no time, in the current folder."""

    @contextmanager
    def here(_options, _folder):
        yield partial(run_inline, fake.train_run)

    monkeypatch.setattr(options, "choose_executor", here)
    monkeypatch.chdir(tmp_path)
    for name in ("train.tsv", "test.tsv"):
        texts = [f"text {n}\t{label}\n" for n in range(20) for label in fake.LABELS]
        (tmp_path / name).write_text("text\tlabel\n" + "".join(texts), "utf-8")

    def write(**encoder):
        (tmp_path / "my.toml").write_text(format_recipe(fake.make_recipe("my", **encoder)), "utf-8")
        return "my.toml"

    return write


def test_compare_prints_table_verdict_and_files(recipe, capsys):
    arguments = ["--losses", "dice, dsc", "--seeds", "3", "--tune", "none", "--quiet"]
    arguments += ["--no-controls"]
    assert main(["compare", recipe(), *arguments]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line.split("\t")[0] for line in lines[1:5]] == ["loss", "ce", "dice", "dsc"]
    assert lines[-2].endswith("dsc hurts.")
    assert lines[-1] == "runs/my-compare/comparison.json, runs/my-compare/comparison.csv"
    assert captured.err == ""


def test_failed_cells_are_listed_and_exit_is_1(recipe, capsys, monkeypatch):
    # `fail` is an option of the stand-in that no encoder has.
    monkeypatch.setattr("softf1.recipe.check_recipe", lambda *_, **__: None)
    monkeypatch.setattr("softf1.experiments.search.check_losses", lambda rows, *_: ("ce", *rows))
    arguments = ["--losses", "dice,dsc", "--seeds", "2", "--tune", "none", "--quiet"]
    assert main(["compare", recipe(fail="dice"), *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "failed: dice-s0: RuntimeError: no memory for dice",
        "failed: dice-s1: RuntimeError: no memory for dice",
    ]
    assert "dsc" in captured.out


def test_values_change_the_recipe_for_every_run(recipe, tmp_path):
    arguments = ["train.epochs=2", "--losses", "dice", "--seeds", "1", "--tune", "none", "--quiet"]
    assert main(["compare", recipe(), *arguments, "--out", "grid", "--no-models"]) == 0
    text = (tmp_path / "grid/cells/dice-s0/result.json").read_text("utf-8")
    assert '"steps": 20' in text
    assert not list((tmp_path / "grid").rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "0"], "wanted --seeds from 1 up, got 0"),
        (["--jobs", "0"], "wanted --jobs from 1 up, got 0"),
        (["--max-seeds", "3"], "wanted --max-seeds from --seeds (5) to 1000, got 3"),
        (["--max-seeds", "0", "--width", "1"], "--max-seeds from --seeds (5) to 1000, got 0"),
        (["--max-seeds", "9" * 20], f"--max-seeds from --seeds (5) to 1000, got {'9' * 20}"),
        (["--seeds", "1001"], "wanted --seeds up to 1000, got 1001"),
        (["--jobs", "9" * 20], f"wanted --jobs up to 1000, got {'9' * 20}"),
        (["--width", "0"], "wanted --width between 0 and 100 points, got 0"),
        (["--losses", "ce[train.seed=3]"], "wanted a key in which rows may differ, got train.seed"),
        (["--losses", "ce[train.epochz=3]"], "unknown key (did you mean epochs?)"),
        (["--gain", "0"], "wanted --gain between 0 and 100 points, got 0"),
        (["--losses", "dise"], "unknown loss 'dise' (did you mean dice?); known: auto, "),
        (["--losses", ""], "unknown loss ''; known: auto, "),
        (["--losses", "dice,,ce"], "unknown loss ''; known: auto, "),
        (["--losses", "ce+auto"], "wanted auto alone, got it in the sum 'ce+auto'"),
        (["train.lrr=1"], "unknown key"),
        (
            ["encoder.filtres=8"],
            "(did you mean filters?)",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(recipe, capsys, arguments, said):
    assert main(["compare", recipe(), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "--losses", "dice[exclude=ZZZ]"], "loss.exclude: wanted one of no, yes, got"),
        (["compare", "--losses", "wce,ce+dice[dice.exclude=ZZZ]"], "loss.exclude: wanted one of"),
        (["compare", "--losses", "ce[weight=[1,2,3]]"], "loss.weight: wanted 2 weights, one for"),
        (["sweep", "loss.name=dice", "loss.exclude=ZZZ,no"], "loss.exclude: wanted one of no, yes"),
    ],
)
def test_options_about_labels_are_checked_before_a_grid_begins(
    recipe, arguments, said, tmp_path, capsys
):
    assert main([arguments[0], recipe(), *arguments[1:]]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"softf1 {arguments[0]}: {said}")
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("verb", [["compare"], ["sweep", "train.lr=0.1,0.2"]])
def test_files_are_read_before_a_grid_begins(recipe, verb, tmp_path, capsys):
    (tmp_path / "test.tsv").write_text("", "utf-8")
    assert main([verb[0], recipe(), *verb[1:]]) == 2
    assert (
        capsys.readouterr().err == f"softf1 {verb[0]}: test.tsv: wanted data, got an empty file\n"
    )
    assert not (tmp_path / "runs").exists()  # so that the same command does once it is mended


@pytest.mark.parametrize("verb", [["compare"], ["sweep", "train.lr=0.1,0.2"]])
def test_labels_that_cannot_be_learned_are_refused_before_a_grid_begins(
    verb, recipe, tmp_path, capsys
):
    command = [verb[0], recipe(), *verb[1:]]
    assert main([*command, "task.positive=perhaps"]) == 2
    said = "train.tsv: wanted positive to be one of no, yes, got 'perhaps'"
    assert capsys.readouterr().err == f"softf1 {verb[0]}: {said}\n"
    texts = [f"text {number}\tno\n" for number in range(20)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(texts), "utf-8")
    assert main(command) == 2
    said = "train.tsv: wanted 2 labels or more in the training data, got no"
    assert capsys.readouterr().err == f"softf1 {verb[0]}: {said}\n"
    assert not (tmp_path / "runs").exists()


def test_files_that_a_sweep_names_are_read_before_it_begins(recipe, tmp_path, capsys):
    assert main(["sweep", recipe(), "task.train=train.tsv,none.tsv", "train.lr=0.1,0.2"]) == 2
    said = "softf1 sweep: none.tsv: wanted a file to read, got: No such file or directory\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "runs").exists()


def test_a_grid_that_began_needs_no_files_to_be_shown_again(recipe, tmp_path, capsys):
    command = ["compare", recipe(), "--losses", "dice", "--seeds", "2", "--tune", "none", "--quiet"]
    assert main(command) == 0
    (tmp_path / "train.tsv").unlink()
    before = capsys.readouterr().out
    assert main(command) == 0
    assert capsys.readouterr().out == before


def test_rows_that_cost_nothing_stand_beside_the_losses(recipe, capsys):
    arguments = ["--losses", "dice", "--seeds", "2", "--tune", "none", "--quiet"]
    assert main(["compare", recipe(), *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[:2] for line in lines[2:6]] == [
        ["ce", "2"],
        ["dice", "2"],
        ["majority", ""],
        ["tfidf", ""],
    ]


def test_sweep_prints_a_row_for_every_value(recipe, capsys):
    words = ["loss.name=tversky", "loss.alpha=0.1,0.9", "--complement", "loss.alpha:loss.beta"]
    assert main(["sweep", recipe(), *words, "--seeds", "2", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines[1:4]] == ["values", "alpha=0.1", "alpha=0.9"]
    assert lines[-1].startswith("runs/my-sweep/comparison.json")


def test_a_sweep_over_nothing_is_refused(recipe, capsys):
    assert main(["sweep", recipe(), "loss.gamma=2"]) == 2
    assert "wanted key=a,b,… with two values or more" in capsys.readouterr().err


@pytest.mark.parametrize(("values", "shown"), [("0.1,0.2,0.1", "0.1"), (",", "the default")])
def test_a_value_that_a_sweep_has_twice_is_refused(values, shown, recipe, capsys):
    assert main(["sweep", recipe(), f"train.lr={values}"]) == 2
    said = f"softf1 sweep: wanted different values of train.lr, got {shown} twice\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("verb", [["compare"], ["sweep", "train.lr=0.1,0.2"]])
def test_a_mistake_in_the_recipe_is_named_with_its_line(verb, recipe, capsys):
    path = recipe()
    text = Path(path).read_text("utf-8").replace("[encoder]", "[encoder]\nfiltres = 8")
    Path(path).write_text(text, "utf-8")
    line = text.splitlines().index("filtres = 8") + 1
    assert main([verb[0], path, *verb[1:]]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"softf1 {verb[0]}: {path}:{line}: encoder.filtres: ")
    # What the command line says is not in the file.
    assert main([verb[0], path, *verb[1:], "encoder.filtres=", "encoder.filters=no"]) == 2
    assert capsys.readouterr().err.startswith(f"softf1 {verb[0]}: encoder.filters: ")


def test_errors_of_failed_runs_are_escaped_whatever_verb_prints_them(capsys):
    assert report_failed({"ce-s0": "no \x1b[2Jmemory"}) == 1
    assert capsys.readouterr().err == "failed: ce-s0: no \\x1b[2Jmemory\n"
    assert report_failed({}) == 0
