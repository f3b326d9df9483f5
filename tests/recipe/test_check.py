"""Deep checks: every wrong option is one line that names its key, and its line in the file."""

from importlib.metadata import entry_points

import pytest

from softf1 import options
from softf1.errors import InputError
from softf1.losses import registry
from softf1.options import OptionError
from softf1.recipe import build_recipe, check_recipe, read_recipe, with_values
from tests.training.toys import make_recipe

TAGGER = build_recipe(
    {"name": "a", "task": {"kind": "tagging", "train": "x"}, "encoder": {"name": "bilstm"}}
)
BERT = with_values(TAGGER, {"encoder.name": "bert-base-cased"})

GOOD = [
    {},
    {"task.unit": "joint", "task.format": "tagged", "task.reader": {"separator": "/"}},
    {"loss.name": "wce"},
    {"loss.name": "ce", "loss.weight": [1, 2]},
    {"loss.name": "ce+dice", "loss.dice": {"weight": [1.0, 2.0, 0.5, 1.0]}},
    {"loss.name": "wfocal+dice", "loss.weights": "log", "loss.dice": {"over": "batch"}},
    {"loss.name": "ce+dice", "loss.schedule": "linear", "loss.mix": [1, 0.5]},
    {"loss.name": "dice", "loss.exclude": ["O"], "loss.over": "batch", "loss.average": "micro"},
    {"encoder.hidden_size": 10},
    {
        "task.kind": "classification",
        "encoder.name": "textcnn",
        "encoder.widths": [2, 3],
        "task.format": "tsv",
    },
    {
        "task.kind": "classification",
        "task.multi_label": True,
        "encoder.name": "textcnn",
        "loss.name": "dice",
        "loss.over": "batch",
        "loss.exclude": ["other"],
    },
    {
        "task.kind": "qa",
        "task.positions": "sigmoid",
        "encoder.name": "bert-base-cased",
        "loss.name": "dsc",
        "loss.over": "batch",
        "loss.ohem_ratio": 0.3,
    },
    {
        "task.kind": "mrc_ner",
        "encoder.name": "bert-base-cased",
        "task.queries": {"PER": "who?"},
        "task.format": "conll",
    },
]
BAD = [
    ("task.kind=taggin", "task.kind: unknown task 'taggin' (did you mean tagging?)"),
    ("task.unti=word", "task.unti: unknown option of task tagging 'unti' (did you mean unit?)"),
    ("task.unit=words", "task.unit: option unit of task tagging: wanted word or"),
    ("task.scheme=BOI", "task.scheme: option scheme of task tagging: wanted"),
    ("task.format=conl", "task.format: unknown format 'conl' (did you mean conll?)"),
    ("task.format=squad", "task.format: format squad serves the tasks qa"),
    ("task.reader=3", "task.reader: option reader of task tagging: wanted a table, got 3"),
    ('task.labels=["a"]', "task.labels: comes from the training data"),
    ("encoder.name=textcnn", "encoder.name: wanted bilstm or a pretrained encoder"),
    (
        "encoder.hidden=3",
        "encoder.hidden: unknown option of encoder bilstm 'hidden' (did you mean hidden_size?)",
    ),
    (
        "encoder.hidden_size=0",
        "encoder.hidden_size: wanted a number from 2",
    ),
    (
        "encoder.hidden_size=[3]",
        "encoder.hidden_size: wanted a whole number",
    ),
    ("loss.name=dic", "loss.name: unknown loss 'dic' (did you mean dice?); known: auto, asym"),
    ("loss.name=ce+", "loss.name: unknown loss ''"),
    ("loss.name=auto+ce", "loss.name: wanted auto alone, got it in the sum 'auto+ce'"),
    ("loss.name=ce+ce", "loss: wanted each part once"),
    ('loss.weight=["a", "b"]', "loss.weight: wanted a number, got 'a'"),
    ("loss.weight=[-1, 2]", "loss: wanted finite class weights from 0 up, got [-1, 2]"),
    ("loss.reduction=sum", "loss.reduction: training sets this itself"),
    ("loss.label_smoothing=[1]", "loss.label_smoothing: wanted a number, got [1]"),
    ("loss.label_smoothing=true", "loss.label_smoothing: wanted a number, got True"),
    ("loss.label_smoothing=2", "loss.label_smoothing: wanted 0 <= label_smoothing < 1, got 2"),
]
BAD_DICE = [
    ("loss.smoth=1", "loss.smoth: dice_loss has no option 'smoth'; it has"),
    ("loss.smooth=-1", "loss.smooth: wanted smooth >= 0, got -1"),
    ("loss.squared=1", "loss.squared: wanted true or false, got 1"),
    ("loss.over=bath", "loss.over: wanted over to be one of"),
    ("loss.ohem_ratio=x", "loss.ohem_ratio: wanted a number, got 'x'"),
    ("loss.ohem_ratio=0.3", "loss.ohem_ratio: ohem_ratio chooses among the rows"),
]
FILE = """\
[task]
kind = "tagging"
train = "x"
unti = "word"

[encoder]
name = "bilstm"
"""


def lines(error):
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("values", GOOD, ids=str)
def test_good_recipes_pass(values):
    check_recipe(with_values(TAGGER, values))


@pytest.mark.parametrize(("word", "problem"), BAD)
def test_bad_options_are_named(word, problem, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(FILE.replace('unti = "word"\n', ""))
    with pytest.raises(InputError) as error:
        check_recipe(read_recipe(path, [word]))
    assert lines(error).startswith(problem)


@pytest.mark.parametrize(("word", "problem"), BAD_DICE)
def test_bad_options_of_a_loss_are_named(word, problem, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(FILE.replace('unti = "word"\n', ""))
    with pytest.raises(InputError) as error:
        check_recipe(read_recipe(path, ["loss.name=dice", word]))
    assert lines(error).startswith(problem)


def test_a_typo_in_an_option_of_a_loss_names_the_nearest():
    with pytest.raises(InputError, match=r"\(did you mean smooth\?\)$"):
        check_recipe(with_values(BERT, {"loss.name": "dice", "loss.smoth": 1}))


def test_options_of_parts_are_named():
    parts = {"loss.name": "ce+dice", "loss.dice.over": "bath"}
    with pytest.raises(InputError, match=r"^loss\.dice\.over: wanted over"):
        check_recipe(with_values(BERT, parts))
    parts = {"loss.name": "ce+dice", "loss.dice": 3}
    with pytest.raises(InputError, match=r"^loss\.dice: wanted a table, got 3"):
        check_recipe(with_values(BERT, parts))


def test_weights_come_from_the_data_or_from_you():
    with pytest.raises(OptionError, match=r"^loss\.weight: wanted no weights of your own for wce"):
        check_recipe(with_values(TAGGER, {"loss.name": "wce", "loss.weight": [1, 2]}))


def test_the_refused_combination_says_why():
    values = {"loss.name": "dice", "loss.over": "batch", "loss.average": "micro"}
    with pytest.raises(InputError, match="refused: every false positive"):
        check_recipe(with_values(BERT, values))


def test_the_asymmetric_loss_is_for_yes_or_no_only():
    one = {"task.kind": "classification", "encoder.name": "textcnn", "loss.name": "asymmetric"}
    with pytest.raises(
        InputError, match=r"^loss: asymmetric loss is refused for .*: wanted 0/1"
    ) as caught:
        check_recipe(with_values(TAGGER, one))
    assert "\n" not in str(caught.value)
    check_recipe(with_values(TAGGER, {**one, "task.multi_label": True}))


def test_hard_negatives_want_a_step_in_one_piece():
    values = {"loss.name": "dice", "loss.over": "batch", "loss.ohem_ratio": 0.3}
    check_recipe(with_values(BERT, values))
    with pytest.raises(InputError, match=r"^loss\.ohem_ratio: ohem_ratio .*refused"):
        check_recipe(with_values(BERT, values | {"train.accumulate": 2}))


def test_options_of_the_reader():
    for reader, problem in [
        ({"tga": 1}, "did you mean tag"),
        ({"tag": "x"}, "wanted a whole number"),
    ]:
        changed = with_values(BERT, {"task.format": "conll", "task.reader": reader})
        with pytest.raises(InputError, match=rf"^task\.reader: .*{problem}"):
            check_recipe(changed)


def test_other_encoders_take_no_options():
    """Above all not trust_remote_code."""
    with pytest.raises(InputError, match=r"^encoder\.trust_remote_code: wanted options for bilstm"):
        check_recipe(with_values(BERT, {"encoder.trust_remote_code": True}))


def test_mrc_wants_an_encoder_without_a_head():
    with pytest.raises(InputError, match="wanted a pretrained encoder"):
        check_recipe(with_values(TAGGER, {"task.kind": "mrc_ner"}))


def test_file_and_line(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(FILE)
    with pytest.raises(InputError) as error:
        check_recipe(read_recipe(path), path=path)
    assert lines(error).startswith(f"{path}:4: task.unti: unknown option")
    word = "task.unti=x"
    with pytest.raises(InputError) as error:
        check_recipe(read_recipe(path, [word]), path=path, overrides=[word])
    assert lines(error).startswith("task.unti: ")


def test_a_missing_file_of_queries_is_named(tmp_path):
    values = {"task.kind": "mrc_ner", "task.queries": str(tmp_path / "none.json")}
    with pytest.raises(InputError, match=r"none\.json"):
        check_recipe(with_values(BERT, values))


def test_a_textcnn_without_widths_is_named():
    recipe = make_recipe(
        {"kind": "classification"}, encoder={"name": "textcnn", "widths": []}, loss={"name": "ce"}
    )
    with pytest.raises(OptionError, match=r"encoder\.widths: wanted one size or more, got none"):
        check_recipe(recipe)


def test_a_check_looks_for_plugins_once_for_each_group(tmp_path, monkeypatch):
    looked = []

    def count(*, group):
        looked.append(group)
        return entry_points(group=group)

    monkeypatch.setattr(options, "entry_points", count)
    monkeypatch.setattr(registry, "entry_points", count)
    monkeypatch.syspath_prepend(str(tmp_path))  # a path that nothing is known about yet
    check_recipe(TAGGER)
    assert "softf1.tasks" in looked
    assert len(looked) == len(set(looked))
    known = list(looked)
    check_recipe(with_values(TAGGER, {"loss.name": "dice"}))
    with pytest.raises(InputError, match="did you mean dice"):
        check_recipe(with_values(TAGGER, {"loss.name": "dicee"}))
    assert len(looked) == len(set(looked))
    assert set(looked) - set(known) <= {"softf1.losses"}
