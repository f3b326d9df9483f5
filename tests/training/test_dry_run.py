"""A dry run finds what is wrong, says what would be done, and writes nothing."""

import re
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from softf1.errors import InputError
from softf1.recipe import EncoderSection, build_recipe, read_recipe, with_values
from softf1.training.dry_run import activation_bytes, describe_cost, describe_run
from softf1.training.run import train_run
from tests.training.toys import write_recipe


@pytest.fixture
def recipe(tmp_path):
    return read_recipe(write_recipe(tmp_path))


def test_it_says_what_would_be_done_and_writes_nothing(recipe, tmp_path, bert):
    before = sorted(tmp_path.rglob("*"))
    changed = replace(recipe, encoder=EncoderSection(name=str(bert)))
    text = describe_run(changed, tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before
    first, second, *_ = text.splitlines()
    assert "60 train, 18 dev, 12 test examples; 40 steps on cpu" in first
    assert 0.2 < float(second.removeprefix("loss of the first batch: ")) < 5
    assert re.search(r"tags: 3 outputs, the rarest [\d.]+% of the targets", text)
    memory = re.search(r"memory: about ([\d.]+) MiB, ([\d.]+) MiB of them weights and opt", text)
    assert memory is not None
    assert float(memory[1]) > float(memory[2]) > 0  # a tiny model takes something too
    assert text.endswith(f"would write {tmp_path / 'run'}")


def read_size(text):
    size, unit = re.search(r"memory: about ([\d.]+) (GiB|MiB)", text).groups()
    return float(size) * (1024 if unit == "GiB" else 1)


def test_one_text_of_553_words_is_named_and_does_not_decide_the_memory(recipe, tmp_path):
    path = tmp_path / "train.txt"
    words = "\n".join(["big O"] * 553)
    path.write_text(f"{path.read_text()}\n{words}\n")
    texts = {
        bound: describe_run(with_values(recipe, {"train.micro_tokens": bound}), tmp_path / "run")
        for bound in (0, 600)
    }
    line = path.read_text().count("\n") - 552
    assert re.search(
        rf"note: train: the longest row has 553 ids \(line {line}\), 99% of the others at most 14;",
        texts[0],
    )
    assert read_size(texts[600]) < read_size(texts[0])


def test_the_time_of_all_steps_is_estimated(recipe, tmp_path):
    text = describe_run(recipe, tmp_path / "run")
    assert int(re.search(r"time: about (\d+) s\n", text)[1]) < 60  # 40 steps of a tiny model
    long = describe_run(with_values(recipe, {"train.epochs": 1_000_000}), tmp_path / "run")
    assert re.search(r"time: about \d+ h \d+ min\n", long)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"eval.metric": "f3"}, "got 'f3'"),
        ({"train.trackers": ["paper"]}, "got 'paper'"),
        ({"loss.dice.exclude": ["B-ORG"]}, "got 'B-ORG'"),
        ({"loss.keys": {"start": 1.0}}, "wanted one of tags, got 'start'"),
        ({"task.test": "not there.txt"}, "not there.txt"),
        ({"train.precision": "fp16"}, "needs a GPU"),
    ],
)
def test_it_finds_what_is_wrong(recipe, tmp_path, values, message):
    if "train.precision" in values and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(InputError, match=message):
        describe_run(with_values(recipe, values), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_encoder_that_is_not_there_is_named(recipe, tmp_path):
    changed = replace(recipe, encoder=EncoderSection(name=str(tmp_path / "nothing")))
    with pytest.raises(InputError, match=r"wanted an encoder .* got '.*nothing'"):
        describe_run(changed, tmp_path / "run")


def test_folders_that_a_training_would_refuse_are_refused(recipe, tmp_path):
    short = with_values(recipe, {"train.max_steps": 1})
    train_run(short, tmp_path / "run", quiet=True)
    assert describe_run(short, tmp_path / "run").endswith("is finished: there is nothing to do")
    with pytest.raises(InputError, match="max_steps was 1 and is 0"):
        describe_run(recipe, tmp_path / "run")


def test_a_token_of_bert_base_takes_about_two_thirds_of_a_megabyte():
    """12 layers · (17 · 768 + 2 · 12 heads · 128) numbers of 4 bytes."""
    from transformers import BertConfig, BertModel

    with torch.device("meta"):
        model = BertModel(BertConfig())
    assert activation_bytes(model, 128) == 12 * (17 * 768 + 2 * 12 * 128) * 4


def test_the_cost_of_a_long_file_is_that_of_a_sample_times_its_length(recipe):
    def seconds(examples):
        text = describe_cost(recipe, examples)
        found = re.fullmatch(
            r"about ([\w ]+) and [\d.]+ MiB of memory on \w+, on top of Python and torch", text
        )
        assert found is not None, text
        units = {"s": 1, "min": 60, "h": 3600}
        return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+) (\w+)", found[1]))

    assert seconds(78_000_000) > 1000 * seconds(78)


def test_a_sample_is_from_all_over_a_file_whose_labels_are_in_order(tmp_path):
    path = tmp_path / "sorted.csv"
    rows = [f"it is text {n},{'a' if n < 3_000 else 'b'}" for n in range(6_000)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    task = {"kind": "classification", "train": str(path)}
    made = build_recipe({"name": "sorted", "task": task, "encoder": {"name": "textcnn"}})
    assert describe_cost(made, 6_000).startswith("about ")


def test_an_estimate_silences_transformers_before_the_encoder_imports_it(recipe, monkeypatch):
    """What quiet_transformers is told to import first; without a name it silences nothing."""
    silenced = []

    @contextmanager
    def quiet(encoder=None):
        silenced.append(encoder)
        yield

    monkeypatch.setattr("softf1.training.trainer.quiet_transformers", quiet)
    describe_cost(recipe, 78)
    assert silenced == [recipe.encoder.name]


def test_what_cannot_be_estimated_is_said(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", None)  # nobody asks the Hub
    wanted = "not estimated: bert-base-nowhere is not on this machine yet"
    assert describe_cost(with_values(recipe, {"encoder.name": "bert-base-nowhere"}), 78) == wanted
    (tmp_path / "train.txt").write_text("Ann B-PER\n")
    said = describe_cost(replace(recipe, task=replace(recipe.task, dev=None)), 1)
    assert said.startswith(
        "not estimated: wanted two different texts or more, to hold out some as dev"
    )
