import resource
import subprocess
import sys

import pytest

from softf1.cli.main import VERBS, build_parser, main


def test_help_imports_neither_torch_nor_numpy():
    code = (
        "import sys; from softf1.cli.main import build_parser; build_parser().format_help();"
        "assert not {'torch', 'numpy', 'transformers', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_verb_loads_its_own_options_only():
    code = (
        "import sys; from softf1.cli.main import parse_arguments;"
        "assert parse_arguments(['report', 'runs/a', '--out', 'a.html']).folders == ['runs/a'];"
        "assert not {'softf1.cli.train', 'softf1.cli.compare'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_is_light():
    code = "import sys, softf1; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_python_m_answers_at_once():
    best = min(_seconds([sys.executable, "-m", "softf1", "--help"]) for _ in range(3))
    bare = min(_seconds([sys.executable, "-c", "pass"]) for _ in range(3))
    assert best - bare < 0.4


def test_version_and_usage(capsys):
    with pytest.raises(SystemExit) as exit_code:
        main(["--version"])
    assert exit_code.value.code == 0
    with pytest.raises(SystemExit) as exit_code:
        main(["no-such-verb"])
    assert exit_code.value.code == 2
    assert "invalid choice: 'no-such-verb'" in capsys.readouterr().err


def test_without_a_verb_all_verbs_are_shown(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([])
    said = capsys.readouterr().err
    assert all(f"\n    {verb}" in said for verb in VERBS)
    assert said.endswith("Start with: softf1 new YOUR-FILE, or softf1 demo\n")


def test_bad_input_is_one_line_and_exit_2(capsys):
    assert main(["demo", "--seeds", "0"]) == 2
    assert capsys.readouterr().err == "softf1 demo: wanted --seeds from 1 up, got 0\n"
    assert main(["demo", "--jobs", "-1"]) == 2
    assert capsys.readouterr().err == "softf1 demo: wanted --jobs from 0 up, got -1\n"


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_only_the_recipe_is_required(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        main([verb])
    assert ended.value.code == 2
    said = f"softf1 {verb}: the following arguments are required: recipe; see softf1 {verb} --help"
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "r", "--seeds", ""], "argument --seeds: wanted a whole number, got ''"),
        (["compare", "r", "--seeds", "1.5"], "argument --seeds: wanted a whole number, got '1.5'"),
        (["compare", "r", "--width", ""], "argument --width: wanted a number, got ''"),
        (["sweep", "r", "a=1,2", "--gain", "x"], "argument --gain: wanted a number, got 'x'"),
        (["demo", "--jobs", ""], "argument --jobs: wanted a whole number, got ''"),
        (["suspects", "d", "--epochs", "é"], "argument --epochs: wanted a number, got 'é'"),
        (["stats", "d", "--batch-size", "9" * 5000], "argument --batch-size: wanted a whole"),
        (["predict", "r"], "the following arguments are required: INPUT"),
    ],
)
def test_bad_usage_is_one_line_and_names_the_help(words, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    out, err = capsys.readouterr()
    assert err.startswith(f"softf1 {words[0]}: {said}")
    assert err.endswith(f"; see softf1 {words[0]} --help\n")
    assert (out, err.count("\n")) == ("", 1)
    assert len(err) < 1200


def test_a_full_disk_is_one_line_and_exit_1(capsys, monkeypatch):
    def full(_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("softf1.cli.demo.run", full)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "softf1 demo: [Errno 28] No space left on device\n"


def _seconds(command):
    start = _processor_seconds()
    subprocess.run(command, check=True, capture_output=True)
    return _processor_seconds() - start


def _processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # other processes may keep the cores busy
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("verb", ["compare", "sweep", "reproduce"])
def test_help_names_the_default_number_of_seeds(verb, capsys):
    seeds = build_parser().parse_args([verb, "recipe", "train.lr=1"]).seeds
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert f"seeds per row (default: {seeds})" in capsys.readouterr().out
