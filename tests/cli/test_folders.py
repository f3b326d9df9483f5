"""What commands write where: nothing of others is touched, no work ends with its display."""

import io
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from softf1.cli import options, reproduce
from softf1.cli.main import main
from softf1.experiments import demo, grid, workers
from softf1.experiments.workers import Pool
from softf1.recipe import format_recipe
from tests.experiments import fake
from tests.experiments.fake import run_inline
from tests.training.toys import write_recipe

ROOT = Path(__file__).parents[2]
SOURCE = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
GRIDS = {
    "compare": ["compare", "my.toml", "--losses", "dice", "--seeds", "2", "--tune", "none"],
    "sweep": ["sweep", "my.toml", "train.lr=0.1,0.2", "--seeds", "2"],
    "reproduce": ["reproduce", "7", "--data", "data", "encoder.name=textcnn", "--seeds", "2"],
    "demo": ["demo", "--seeds", "1", "--jobs", "1"],
}
"""Commands whose folder is `out`, which is added."""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The current folder, with recipes and data for every verb; runs take no time."""

    @contextmanager
    def here(_options, _folder):
        yield partial(run_inline, fake.train_run)

    for module in (options, reproduce):
        monkeypatch.setattr(module, "choose_executor", here)
    monkeypatch.setattr(
        workers, "Pool", lambda *_, **__: closing_call(partial(run_inline, fake.train_run))
    )
    monkeypatch.setattr(demo, "write_corpus", write_corpus)
    monkeypatch.chdir(tmp_path)
    texts = [f"text {n}\t{label}\n" for n in range(20) for label in fake.LABELS]
    for name in ("train.tsv", "test.tsv"):
        Path(name).write_text("text\tlabel\n" + "".join(texts), "utf-8")
    Path("my.toml").write_text(format_recipe(fake.make_recipe("my")), "utf-8")
    Path("data/sst2").mkdir(parents=True)
    for name in ("train", "dev", "test"):
        Path(f"data/sst2/stsa.binary.{name}").write_text("1 good\n0 bad\n", "utf-8")


def closing_call(run):
    """What `Pool` is: something to call and to close."""

    class Here:
        def __call__(self, jobs):
            return run(jobs)

        def close(self):
            pass

    return Here()


def write_corpus(folder):
    """In place of the corpus, which takes seconds to read."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.txt" for name in ("train", "dev", "test")}
    for path in paths.values():
        path.write_text("Ann B-PER\n\n", "utf-8")
    return paths


def command(verb, *more):
    return [*GRIDS[verb], "--out", "out", "--quiet", *more]


def comparisons():
    return sorted(Path("out").rglob("comparison.json"))


def snapshot(folder):
    return {p: p.read_bytes() if p.is_file() else None for p in sorted(Path(folder).rglob("*"))}


DATA = {
    "compare": "train.tsv",
    "sweep": "test.tsv",
    "reproduce": "data/sst2/stsa.binary.dev",
}


@pytest.mark.parametrize("verb", DATA)
def test_the_same_command_after_a_file_was_edited_is_refused(verb, capsys):
    assert main(command(verb)) == 0
    before = snapshot("out")
    capsys.readouterr()
    with Path(DATA[verb]).open("a", encoding="utf-8") as file:
        file.write("1 fine\n" if verb == "reproduce" else "fine\tyes\n")
    assert main(command(verb)) == 2
    error = capsys.readouterr().err
    assert f"{DATA[verb]} has changed: use --out for another folder, or --force to" in error
    assert error.count("\n") == 1
    changed = {p for p, content in snapshot("out").items() if content != before.get(p)}
    assert not changed
    assert main(command(verb, "--force")) == 0
    assert main(command(verb)) == 0


@pytest.mark.parametrize("verb", GRIDS)
def test_a_finished_grid_says_when_that_was(verb, capsys):
    assert main(command(verb)) == 0
    assert capsys.readouterr().err == ""
    assert main([word for word in command(verb) if word != "--quiet"]) == 0
    today = rf"{datetime.now(UTC):%Y-%m-%d} \d\d:\d\d UTC"
    pattern = rf"all \d+ runs were finished before, the last on {today}\n"
    assert re.fullmatch(pattern, capsys.readouterr().err)


def test_seeds_of_different_data_are_never_averaged(capsys, monkeypatch):
    """The file changes while the grid runs: the cells after that do not count."""
    run = fake.train_run

    def edit_after_the_first(recipe, folder, **how):
        result = run(recipe, folder, **how)
        if recipe.train.seed == 0 and recipe.loss.name == "ce":
            with Path("train.tsv").open("a", encoding="utf-8") as file:
                file.write("text\tyes\n")
        return result

    monkeypatch.setattr(fake, "train_run", edit_after_the_first)
    assert main(command("compare")) == 1
    captured = capsys.readouterr()
    failed = [line for line in captured.err.splitlines() if line.startswith("failed: ")]
    names = ["ce-s1", "dice-s0", "dice-s1", "majority", "tfidf"]
    assert [line.split(": ")[1] for line in failed] == names
    assert all("train.tsv has changed since this command began" in line for line in failed)
    rows = json.loads(Path("out/comparison.json").read_text("utf-8"))["rows"]
    assert [(row["loss"], row["n"]) for row in rows] == [("ce", 1)]


@pytest.mark.parametrize("verb", GRIDS)
@pytest.mark.parametrize("name", ["grid.json", "cells/a", "notes.txt", ".lock", "data/train.txt"])
def test_a_folder_of_others_is_refused_and_nothing_in_it_changes(verb, name, capsys):
    path = Path("out") / name
    path.parent.mkdir(parents=True)
    path.write_text("{}", "utf-8")
    before = snapshot("out")
    for more in ((), ("--force",)):
        assert main(command(verb, *more)) == 2
        error = capsys.readouterr().err
        assert "wanted an empty folder or a grid of softf1, found" in error
        assert error.count("\n") == 1
    assert snapshot("out") == before


@pytest.mark.parametrize("verb", GRIDS)
def test_force_starts_afresh_in_a_grid(verb):
    assert main(command(verb)) == 0
    for path in comparisons():
        (path.parent / "notes.txt").write_text("mine", "utf-8")
        (path.parent / "cells/of-before").mkdir()
    assert main(command(verb, "--force")) == 0
    assert comparisons()
    for path in comparisons():
        assert (path.parent / "notes.txt").read_text("utf-8") == "mine"
        assert not (path.parent / "cells/of-before").exists()


def test_a_grid_that_was_killed_at_its_start_is_ours():
    Path("out").mkdir()
    for name in (".lock", ".softf1-0123456789abcdef.tmp"):
        (Path("out") / name).write_text("", "utf-8")
    assert main(command("demo")) == 0
    assert not list(Path("out").glob(".softf1-*"))


def test_a_second_look_follows_the_lock(monkeypatch):
    """Between the look and the lock somebody puts files there."""
    looks = []

    def late(folder, look=grid.refuse_others):
        look(folder)
        looks.append(folder)
        if len(looks) == 1:
            folder.mkdir()
            (folder / "notes.txt").write_text("precious", "utf-8")

    monkeypatch.setattr(grid, "refuse_others", late)
    assert main(command("reproduce")) == 2
    assert sorted(path.name for path in Path("out").iterdir()) == [".lock", "notes.txt"]


# Broken pipes


@pytest.fixture
def unread(monkeypatch):
    """Standard output and error are pipes that nobody reads."""
    opened = []
    for name in ("stdout", "stderr"):
        read, write = os.pipe()
        os.close(read)
        opened.append(io.TextIOWrapper(io.FileIO(write, "w"), write_through=True))
        monkeypatch.setattr(sys, name, opened[-1])
    yield
    for stream in opened:
        stream.close()


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("verb", GRIDS)
def test_a_broken_pipe_ends_the_display_not_the_work(verb):
    words = [word for word in command(verb) if word != "--quiet"]
    assert main(words) == 0
    assert comparisons()
    assert all(json.loads(path.read_text("utf-8"))["rows"] for path in comparisons())


@pytest.mark.usefixtures("unread")
def test_what_fails_fails_with_a_broken_pipe_too():
    Path("train.tsv").write_text("", "utf-8")
    assert main([word for word in command("compare") if word != "--quiet"]) == 2


def test_a_pipe_that_breaks_inside_the_work_is_a_failure(monkeypatch, capsys):
    """Such as that of a tracker: there is no result, so the exit status is not 0."""

    def fail(*_, **__):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("softf1.experiments.compare.compare", fail)
    assert main(command("compare")) == 1
    assert capsys.readouterr().err == "softf1 compare: [Errno 32] Broken pipe\n"


@pytest.mark.usefixtures("unread")
def test_a_broken_pipe_does_not_end_a_training(tmp_path):
    recipe = write_recipe(tmp_path)
    assert main(["train", str(recipe), "train.max_steps=2", "--out", "run"]) == 0
    assert json.loads(Path("run/result.json").read_text("utf-8"))["steps"] == 2


@pytest.mark.slow
def test_train_into_head_goes_on_to_its_end(tmp_path):
    """As `softf1 train … 2>&1 | head -1`."""
    late = "train.checkpoint_seconds=1000"
    recipe = write_recipe(tmp_path)
    words = ["train", str(recipe), "train.max_steps=20", late, "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "softf1", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | SOURCE,
        cwd=tmp_path,
    )
    assert process.stdout.readline().startswith(b"toy: tagging")
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert json.loads((tmp_path / "run/result.json").read_text("utf-8"))["steps"] == 20
    assert (tmp_path / "run/model").is_dir()


# Modules that nobody asked for

PLANTED = "from pathlib import Path\nPath('executed').write_text(__name__)\nraise SystemExit(9)\n"


SAME = [pytest.param(verb, marks=pytest.mark.slow) for verb in ("sweep", "reproduce")]
"""Their workers are those of compare."""


@pytest.mark.parametrize("verb", ["compare", "demo", *SAME])
def test_a_module_in_the_current_folder_is_not_run_by_workers(verb, monkeypatch):
    """Workers import numpy before anything else that is not theirs."""
    for module in (options, reproduce):
        monkeypatch.setattr(module, "choose_executor", real_executor)
    pool = partial(Pool, target=f"{fake.__name__}:train_run", devices=())
    monkeypatch.setattr(workers, "Pool", pool)
    for name in ("accelerate.py", "numpy.py", "torch.py"):
        Path(name).write_text(PLANTED, "utf-8")
    assert main(command(verb)) == 0
    assert not Path("executed").exists()
    assert list(Path("out").rglob("worker-0.log"))


real_executor = options.choose_executor


@pytest.mark.slow
@pytest.mark.parametrize("start", [["-m", "softf1"], ["-P", "-m", "softf1"]])
def test_accelerate_in_the_current_folder_is_not_run(start, tmp_path):
    """The whole way: the command, and a worker that trains."""
    write_recipe(tmp_path)
    for name in ("accelerate.py", "torch.py"):
        (tmp_path / name).write_text(PLANTED, "utf-8")
    words = ["compare", "toy.toml", "train.max_steps=1", "--losses", "ce", "--seeds", "1"]
    found = subprocess.run(
        [sys.executable, *start, *words, "--tune", "none", "--quiet", "--out", "out"],
        env=os.environ | SOURCE,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    assert not (tmp_path / "executed").exists()
    assert (tmp_path / "out/cells/ce-s0/result.json").is_file()


# Names and files


@pytest.mark.parametrize("name", ["../../etc/x", "/abs", "a/b", "a\\b", "a\0b"])
@pytest.mark.parametrize("verb", ["train", "compare", "sweep"])
def test_a_name_that_leaves_runs_is_refused(verb, name, capsys):
    text = Path("my.toml").read_text("utf-8").replace('name = "my"', f"name = {json.dumps(name)}")
    Path("my.toml").write_text(text, "utf-8")
    before = snapshot(".")
    words = ["train.lr=0.1,0.2"] if verb == "sweep" else []
    assert main([verb, "my.toml", *words]) == 2
    assert "my.toml:1: name: wanted a name, not a path, got " in capsys.readouterr().err
    assert snapshot(".") == before


def test_predict_does_not_write_over_its_input(run, tmp_path, capsys):
    text = (tmp_path / "test.txt").read_text("utf-8")
    (tmp_path / "link.txt").symlink_to(tmp_path / "test.txt")
    for out in ("test.txt", "link.txt"):
        words = ["predict", str(run), str(tmp_path / "test.txt"), "--out", str(tmp_path / out)]
        assert main(words) == 2
        assert "wanted another --out: this is the file that is read" in capsys.readouterr().err
    assert (tmp_path / "test.txt").read_text("utf-8") == text


@pytest.mark.parametrize("verb", ["train", *GRIDS])
def test_a_file_in_place_of_a_folder_is_one_line(verb, capsys):
    words = GRIDS.get(verb, ["train", "my.toml"])
    for out in ("train.tsv", "train.tsv/new/run"):
        assert main([*words, "--out", out]) == 2
        said = f"softf1 {verb}: train.tsv: wanted a folder, got a file; use another --out\n"
        assert capsys.readouterr().err == said


@pytest.mark.parametrize("verb", ["predict", "report", "export", "new"])
def test_a_file_cannot_be_written_into_a_file_or_over_a_folder(verb, run, capsys):
    words = {
        "predict": [str(run), "test.txt"],
        "report": ["grid"],
        "export": [str(run), "--onnx"],
        "new": ["train.tsv"],
    }
    if verb == "export":
        pytest.importorskip("onnx")
    if verb == "report":
        assert main([*GRIDS["compare"], "--out", "grid", "--quiet"]) == 0
    capsys.readouterr()
    assert main([verb, *words[verb], "--out", "train.tsv/new.html"]) == 2
    said = f"softf1 {verb}: train.tsv: wanted a folder, got a file; use another --out\n"
    assert capsys.readouterr().err.endswith(said)
    assert main([verb, *words[verb], "--out", "data"]) == 2
    assert capsys.readouterr().err.startswith(f"softf1 {verb}: data: ")


def test_predict_into_a_folder_is_one_line(run, tmp_path, capsys):
    words = ["predict", str(run), str(tmp_path / "test.txt"), "--out", str(tmp_path)]
    assert main(words) == 2
    assert "wanted a file to write to, got a folder" in capsys.readouterr().err


def test_export_does_not_write_over_files_of_others(run, tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="wants onnxruntime (softf1[onnx])")
    for name in ("config.json", "other.onnx"):
        path = tmp_path / name
        path.write_text("precious", "utf-8")
        assert main(["export", str(run), "--onnx", "--out", str(path)]) == 2
        assert f"{path}: exists and is not an export of softf1" in capsys.readouterr().err
        assert path.read_text("utf-8") == "precious"
