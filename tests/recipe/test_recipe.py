"""Recipes: what is read, what is refused and where, what is written back."""

import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import softf1
from softf1.errors import InputError
from softf1.recipe import (
    EncoderSection,
    EvalSection,
    LossSection,
    Recipe,
    TaskSection,
    TrainSection,
    build_recipe,
    describe_recipe,
    format_recipe,
    hash_recipe,
    read_recipe,
    with_values,
)

TEXT = """\
[task]
kind = "tagging"
train = "train.conll"
unit = "word"

[encoder]
name = "bilstm"
hidden_size = 100

[loss]
name = "focal"
weights = "log"
gamma = 3

[loss.keys]
tags = 2

[train]
lr = 1
betas = [0.8, 0.9]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TEXT, "utf-8")
    return path


def test_sections_and_defaults(file):
    recipe = read_recipe(file)
    assert recipe.name == "mine"
    assert recipe.task == TaskSection(kind="tagging", train="train.conll", options={"unit": "word"})
    assert recipe.encoder == EncoderSection(name="bilstm", options={"hidden_size": 100})
    assert recipe.loss.options == {"gamma": 3}
    assert recipe.loss.keys == {"tags": 2.0}
    assert type(recipe.train.lr) is float  # an int is a float, so that equal recipes hash alike
    assert recipe.train.betas == (0.8, 0.9)
    assert recipe.train == TrainSection(lr=1.0, betas=(0.8, 0.9))
    assert recipe.eval == EvalSection()
    with pytest.raises(FrozenInstanceError):
        recipe.name = "other"


def test_reading_does_not_import_torch(file):
    code = (
        "import sys; from softf1.recipe import read_recipe; read_recipe(sys.argv[1]);"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    source = str(Path(softf1.__file__).parents[1])
    command = [sys.executable, "-c", code, str(file)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": source})


def test_overrides_are_toml_or_words(file):
    recipe = read_recipe(
        file,
        [
            "train.lr=3e-5",
            "train.epochs = 2",
            "eval.tune=true",
            "train.trackers=[\"a\", 'b']",
            "loss.name=ce+dice",
            "loss.dice.smooth=1",
            "loss.mix=[1, 0.5]",
            "task.train=a folder/x=1.txt",
            "task.dev=2020-01-01",
            "name='quoted'",
        ],
    )
    assert (recipe.train.lr, recipe.train.epochs) == (3e-5, 2.0)
    assert recipe.eval.tune is True
    assert recipe.train.trackers == ("a", "b")
    assert recipe.loss.options == {"dice": {"smooth": 1}, "mix": [1, 0.5]}  # gamma has gone
    assert recipe.loss.weights is None
    assert recipe.loss.keys == {"tags": 2.0}
    assert (recipe.task.train, recipe.task.dev) == ("a folder/x=1.txt", "2020-01-01")
    assert recipe.name == "quoted"


def test_an_empty_override_is_the_default(file):
    recipe = read_recipe(file, ["train.lr=", "loss.gamma="])
    assert recipe.train.lr == TrainSection().lr
    assert recipe.loss.options == {}


def test_overrides_are_never_evaluated(file, tmp_path):
    target = tmp_path / "touched"
    word = f"__import__('pathlib').Path('{target}').touch()"
    assert read_recipe(file, [f"encoder.name={word}"]).encoder.name == word
    assert not target.exists()
    assert read_recipe(file, ["name=1\nname2=2"]).name == "1\nname2=2"  # one value, no second key


def test_a_missing_key_may_come_from_the_command_line(file):
    file.write_text('[encoder]\nname = "bilstm"\n')
    with pytest.raises(InputError, match=r"mine.toml: task.kind: wanted this key in \[task\]"):
        read_recipe(file)
    recipe = read_recipe(file, ["task.kind=qa", "task.train=x.json"])
    assert (recipe.task.kind, recipe.task.train) == ("qa", "x.json")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[train]\nlrr = 1", "3: train.lrr: unknown key (did you mean lr?); known: epochs, "),
        ("[trian]\nlr = 1", "2: trian: unknown section (did you mean train?); known: task, "),
        ("[train]\nlr = 0", "3: train.lr: wanted a number above 0, got 0.0"),
        ("[train]\nlr = inf", "3: train.lr: wanted a number above 0, got inf"),
        ("[train]\nepochs = 1e300", "3: train.epochs: wanted a number above 0 to 1000000, got"),
        (
            "[train]\neval_every = 1e308",
            "3: train.eval_every: wanted a number above 0 to 1000000",
        ),
        (
            "[train]\nbatch_tokens = 800\ngroup_by_length = false",
            "4: train.group_by_length: wanted true, since batch_tokens groups rows by length",
        ),
        ("[train]\nlr = '1'", "3: train.lr: wanted a number, got '1'"),
        ("[train]\nlr = true", "3: train.lr: wanted a number, got True"),
        ("[train]\nbatch_size = 2.0", "3: train.batch_size: wanted a whole number, got 2.0"),
        ("[train]\nwarmup = 1", "3: train.warmup: wanted a number from 0, below 1, got 1.0"),
        ("[train]\nbetas = [0.9, 1]", "3: train.betas: wanted a number from 0, below 1, got 1.0"),
        ("[train]\nbetas = [0.9]", "3: train.betas: wanted a list of 2, got [0.9]"),
        ("[train]\ntrackers = 'a'", "3: train.trackers: wanted a list, got 'a'"),
        (
            "[train]\n\nschedule = 'x'",
            "4: train.schedule: wanted linear or cosine or polynomial or constant, got 'x'",
        ),
        ("[eval]\ntune = 1", "3: eval.tune: wanted true or false, got 1"),
        ("[loss.keys]\ntags = -1", "2: loss.keys: wanted a number from 0, got -1.0"),
        ("[loss.keys]\ntags = 'a'", "3: loss.keys.tags: wanted a number, got 'a'"),
        ("train.lr = 0", "2: train.lr: wanted a number above 0, got 0.0"),
        ("train = 1", "2: train: wanted a section [train], got 1"),
        ("name = 1", '2: name: wanted a string in quotes ("1"), got 1'),
        ("[loss]\nday = 2020-01-01", "3: loss.day: wanted a string, a number, true or false, a"),
        ("[train]\nlr = 1\nlr = 2", "4: wanted TOML, got: Cannot overwrite a value"),
        ("[train]\nlr = [", "wanted TOML, got: Invalid value"),
        ("train = " + "[" * 5000, "wanted TOML, got"),
        ("train = " + "9" * 5000, "wanted TOML, got"),
        ("[train]\nlr = " + "9" * 400, "3: train.lr: wanted a number of 64 bits, got one of 1,329"),
        ("[train]\nmax_steps = 0x" + "f" * 17, "3: train.max_steps: wanted a number of 64 bits"),
        ("[task]\nmax_length = 0x" + "f" * 5000, "3: task.max_length: wanted a number of 64 bits"),
        ("[eval]\nmetric = 0x" + "f" * 5000, "3: eval.metric: wanted a string, got a number that"),
        ("[loss]\nkeys = 0x" + "f" * 5000, "3: loss.keys: wanted a table, got a number that is"),
        ("train = 0x" + "f" * 5000, "2: train: wanted a section [train], got"),
        ("name = 0x" + "f" * 5000, "2: name: wanted a string, got"),
        ("[train]\ncompile = 0x" + "f" * 5000, "3: train.compile: wanted auto or off or"),
    ],
)
def test_what_is_wrong_and_where(line, problem, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(f"# {'x' * 10}\n{line}\n")
    with pytest.raises(InputError) as error:
        read_recipe(path, ["task.kind=tagging", "task.train=a", "encoder.name=bilstm"])
    message = str(error.value)
    assert message.startswith(f"{path}:")
    assert problem in message.partition(f"{path}:")[2]
    assert "\n" not in message


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("train.lrr=1", "train.lrr: unknown key (did you mean lr?)"),
        ("trian.lr=1", "trian: unknown section (did you mean train?)"),
        ("trian=1", "trian: wanted name or section.key, such as train.lr (did you mean train?)"),
        ("train=1", "train: wanted name or section.key, such as train.lr"),
        ("train.lr", "wanted key=value, such as train.lr=3e-5, got 'train.lr'"),
        ("=1", "wanted key=value"),
        ("train.betas=[1", "train.betas: wanted a value in TOML, got '[1'"),
        ("train.lr=fast", "train.lr: wanted a number, got 'fast'"),
        ("train.lr.x=1", "train.lr.x: wanted a table lr, got 1"),
        ("loss.gamma.x=1", "loss.gamma.x: wanted a table gamma, got 3"),
    ],
)
def test_a_wrong_word_is_not_blamed_on_the_file(word, problem, file):
    with pytest.raises(InputError) as error:
        read_recipe(file, [word])
    assert str(error.value).startswith(problem)


@pytest.mark.parametrize(("content", "line"), [(b"\xff\xfe", 1), (b'[task]\nkind = "\xe9"\n', 2)])
def test_not_utf8(content, line, tmp_path):
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(InputError, match=f"bad.toml:{line}: wanted text in UTF-8"):
        read_recipe(tmp_path / "bad.toml")


def test_a_name_that_is_not_utf8_is_refused(file):
    """The name of the file is the name of the run, which is written to JSON and TOML."""
    other = file.rename(file.with_name(os.fsdecode(b"\xe9.toml")))
    with pytest.raises(InputError, match="name: wanted a string that UTF-8 can encode"):
        read_recipe(other)
    assert read_recipe(other, ["name=mine"]).name == "mine"


def test_a_byte_order_mark_and_windows_lines_are_read(file):
    file.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert read_recipe(file) == build_recipe({"name": "mine"} | describe_recipe(read_recipe(file)))
    file.write_bytes(file.read_bytes().replace(b"lr = 1", b"lr = 0"))
    with pytest.raises(InputError, match=r"mine.toml:19: train.lr"):
        read_recipe(file)


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml: wanted a recipe, found no such file"):
        read_recipe(tmp_path / "none.toml")


def test_a_name_that_no_file_can_have():
    with pytest.raises(InputError, match="wanted a recipe file or one of the shipped recipes"):
        read_recipe("x" * 5000)


def test_files_beside_the_recipe_are_found(file, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert read_recipe(file).task.train == "train.conll"  # nowhere: as it was written
    (tmp_path / "train.conll").touch()
    assert read_recipe(file).task.train == str(tmp_path / "train.conll")
    (here / "train.conll").touch()
    assert read_recipe(file).task.train == "train.conll"  # the current folder goes first


def test_an_encoder_beside_the_recipe_is_found(file, tmp_path):
    for name in ("bilstm", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    assert read_recipe(file).encoder.name == "bilstm"  # a run of that name is not the encoder
    assert read_recipe(file, ["encoder.name=own"]).encoder.name == str(tmp_path / "own")


def test_with_values_changes_a_copy(file):
    old = read_recipe(file, ["loss.name=ce+dice", "loss.dice.over=batch"])
    new = with_values(old, {"train.seed": 3, "loss.dice.smooth": 0.5, "task.dev": None})
    assert new.train.seed == 3
    assert new.loss.options == {"dice": {"over": "batch", "smooth": 0.5}}
    assert old.loss.options == {"dice": {"over": "batch"}}
    assert with_values(new, {"loss.name": "ce+dice"}) == new  # the same loss keeps its options


def test_another_loss_drops_the_options_whatever_the_order(file):
    old = read_recipe(file)
    for values in (
        {"loss.name": "dice", "loss.over": "batch"},
        {"loss.over": "batch", "loss.name": "dice"},
    ):
        loss = with_values(old, values).loss
        assert loss == LossSection(name="dice", options={"over": "batch"}, keys={"tags": 2})


def test_the_table_of_a_single_loss_is_its_options():
    options = {"over": "batch", "dice": {"smooth": 2}}
    assert LossSection(name="dice", options=options).options == {"over": "batch", "smooth": 2}
    assert LossSection(name="ce+dice", options=options).options == options


@pytest.mark.parametrize(
    ("name", "weights", "scheme"),
    [
        ("ce", None, None),
        ("wce", None, "balanced"),
        ("wce", "log", "log"),
        ("wfocal+dice", None, "balanced"),
        ("la", None, "balanced"),
        ("dice", "inverse", "inverse"),
    ],
)
def test_scheme_of_class_weights(name, weights, scheme):
    assert LossSection(name=name, weights=weights).scheme == scheme


def test_options_cannot_hide_a_key():
    with pytest.raises(InputError, match=r"task.dev: wanted a key of \[task\], got an option"):
        TaskSection(kind="qa", train="a", options={"dev": "b"})


def test_a_loss_that_is_no_section(file):
    file.write_text("loss = 3\n" + TEXT.replace("[loss", "[encoder.x"))
    with pytest.raises(InputError, match=r"^loss\.name: wanted a table loss, got 3"):
        read_recipe(file, ["loss.name=dice"])


def test_hash_follows_what_decides_the_result(file):
    recipe = read_recipe(file)
    same = {"name": "x", "train.checkpoint_seconds": 1, "train.trackers": ["wandb"], "train.lr": 1}
    assert hash_recipe(with_values(recipe, same)) == hash_recipe(recipe)
    changes = [
        {"train.seed": 1},
        {"loss.gamma": 2},
        {"task.unit": "joint"},
        {"task.train": "b"},
        {"eval.metric": "f1"},
    ]
    hashes = {hash_recipe(with_values(recipe, change)) for change in changes}
    assert len(hashes | {hash_recipe(recipe)}) == len(changes) + 1
    reordered = replace(recipe, task=replace(recipe.task, options={"z": 1, "unit": "word"}))
    turned = replace(recipe, task=replace(recipe.task, options={"unit": "word", "z": 1}))
    assert hash_recipe(reordered) == hash_recipe(turned)


words = st.text(min_size=1)
numbers = st.floats(allow_nan=False)
leaves = st.booleans() | st.integers(-(2**63), 2**63 - 1) | numbers | st.text()
options = st.dictionaries(
    st.text().map(lambda key: f"x{key}"),  # no key of a section
    st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)
recipes = st.builds(
    Recipe,
    name=words.filter(lambda name: not {*name} & {*"/\\\0"}),
    task=st.builds(
        TaskSection, kind=words, train=words, dev=st.none() | words, test=words, options=options
    ),
    encoder=st.builds(
        EncoderSection, name=words, dropout=st.none() | st.floats(0, 0.99), options=options
    ),
    loss=st.builds(
        LossSection,
        name=words.map(lambda name: f"y{name}"),
        keys=st.dictionaries(st.text(), st.floats(0, 1e300), max_size=2),
        options=options,
    ),
    train=st.builds(
        TrainSection,
        lr=st.floats(1e-300, 1e300),
        max_steps=st.integers(0, 2**63 - 1),
        betas=st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)),
        trackers=st.lists(words, max_size=2).map(tuple),
    ),
    eval=st.builds(EvalSection, metric=st.none() | words, tune=st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(recipe=recipes)
def test_what_is_written_is_read_back_equal(recipe, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "written.toml"
    path.write_text(format_recipe(recipe), "utf-8", newline="")
    back = read_recipe(path)
    assert back == recipe
    assert hash_recipe(back) == hash_recipe(recipe)
    assert build_recipe(describe_recipe(recipe)) == recipe


def test_written_form_is_readable(file):
    text = format_recipe(with_values(read_recipe(file), {"train.lr": 3e-5}))
    assert '\n[task]\nkind = "tagging"\ntrain = "train.conll"\ndev_share = 0.1\n' in text
    assert "\nlr = 3e-5\n" in text
    assert "\n[loss.keys]\ntags = 2.0\n" in text


def test_an_empty_name_on_the_command_line_is_that_of_the_file(tmp_path):
    path = tmp_path / "mine.toml"
    task = '[task]\nkind = "tagging"\ntrain = "a"\n[encoder]\nname = "bilstm"\n'
    path.write_text(f'name = "other"\n{task}')
    assert read_recipe(path).name == "other"
    assert read_recipe(path, ["name="]).name == "mine"
