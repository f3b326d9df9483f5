import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from softf1.errors import InputError
from softf1.files import new_folder
from softf1.recipe import build_recipe
from softf1.tasks import save_task
from softf1.training.evaluation import evaluate, predict_logits
from softf1.training.publish import find_model, load_model, publish_model
from softf1.training.run import train_run
from tests.tasks.cases import CASES, build_case
from tests.training.conftest import strengthen

RECIPE = '[task]\nkind = "tagging"\n'
RESULT = {
    "name": "names",
    "encoder": "tiny",
    "loss": "dice",
    "headline": "f1",
    "scores": {
        "dev": {"f1": 0.75, "precision": 0.7, "labels": {}},
        "test": {
            "f1": 0.5,
            "precision": 0.25,
            "labels": {"A|B": {"precision": 0.25, "recall": 1.0, "f1": 0.4, "support": 3}},
        },
    },
    "data": {"train": {"path": "/home/somebody/train.txt", "sha256": "ab" * 32, "examples": 9}},
    "class_counts": {"tags": {"O": 100, "B-PER": 3}},
    "seed": 3,
    "warnings": ["B-LOC was never predicted"],
}
every_case = pytest.mark.parametrize("case", CASES, indirect=True)
tagger = pytest.mark.parametrize("case", [("tagging", {}, "bert")], indirect=True)


def publish(case, folder, **changes):
    task, _, tokenizer, model, _ = case
    values = {
        "task": task,
        "tokenizer": tokenizer,
        "model": model,
        "recipe": RECIPE,
        "result": RESULT,
    }
    publish_model(folder, **(values | changes))
    return folder


@every_case
def test_a_loaded_model_finds_the_same(case, tmp_path):
    task, features, tokenizer, model, examples = case
    loaded = load_model(publish(case, tmp_path / "model"))
    assert loaded.task == task
    assert not loaded.model.training
    wanted = predict_logits(model, task, features, tokenizer, device="cpu")
    again = loaded.task.encode(examples, loaded.tokenizer)
    got = predict_logits(loaded.model, loaded.task, again, loaded.tokenizer, device="cpu")
    for key, value in wanted.items():
        np.testing.assert_array_equal(got[key], value)


PLAIN = """
import json, sys
import torch, transformers


def look(folder, kind, auto, texts):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, auto).from_pretrained(folder)
    out = {"labels": model.config.id2label, "problem": model.config.problem_type, "logits": []}
    for text in texts:
        with torch.no_grad():
            found = model(**tokenizer(*text, return_tensors="pt"))
        out["logits"].append([value[0].tolist() for value in found.values()])
    if kind != "question-answering":  # transformers 5 has no such pipeline
        options = {"top_k": None} if kind == "text-classification" else {"ignore_labels": []}
        pipe = transformers.pipeline(kind, model=folder, **options)
        pairs = [{"text": t[0], "text_pair": t[1]} if len(t) == 2 else t[0] for t in texts]
        out["pipeline"] = [pipe(text) for text in pairs]
    return out


found = [look(**one) for one in json.loads(sys.argv[1])]
assert not [name for name in sys.modules if name.startswith("softf1")]
print(json.dumps(found, default=float))
"""
TOKENS, TEXT = "AutoModelForTokenClassification", "AutoModelForSequenceClassification"
AUTO = {
    "tagging": {"kind": "token-classification", "auto": TOKENS},
    "classification": {"kind": "text-classification", "auto": TEXT},
    "pairs": {"kind": "text-classification", "auto": TEXT},
    "qa": {"kind": "question-answering", "auto": "AutoModelForQuestionAnswering"},
}
SPLIT = {
    "tagging": lambda e: [" ".join(e.words)],
    "classification": lambda e: [e.text],
    "pairs": lambda e: [e.first, e.second],
    "qa": lambda e: [e.question, e.context],
}
PROBLEMS = {True: "multi_label_classification", False: "single_label_classification", None: None}


def run_plain(work, cwd):
    """What plain transformers makes of folders, in a process that never heard of softf1."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, json.dumps(work)],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_plain_transformers_gives_the_same_logits_and_decisions(request, tmp_path):
    cases = [
        strengthen(build_case(kind, options, "bert", request))
        for kind, options in [
            ("tagging", {}),
            ("classification", {}),
            ("classification", {"multi_label": True}),
            ("pairs", {}),
            ("qa", {}),
        ]
    ]
    work = [
        {
            "folder": str(publish(case, tmp_path / str(number))),
            **AUTO[case[0].kind],
            "texts": [SPLIT[case[0].kind](example) for example in case[4]],
        }
        for number, case in enumerate(cases)
    ]
    for case, plain in zip(cases, run_plain(work, tmp_path), strict=True):
        compare_logits(case, plain)
        if case[0].kind != "qa":
            compare_decisions(case, plain)


def compare_logits(case, plain):
    task, features, tokenizer, model, examples = case
    assert len(features) == len(examples)  # every example is one item here
    for item, found in enumerate(plain["logits"]):
        batch = task.collate(features, [item], tokenizer)
        with torch.no_grad():
            own = model.eval()(**batch.inputs)
        for got, want in zip(found, own.values(), strict=True):
            np.testing.assert_allclose(got, want[0].numpy(), atol=1e-5)


def compare_decisions(case, plain):
    task, features, tokenizer, model, examples = case
    assert list(plain["labels"].values()) == list(task.labels)
    assert plain["problem"] == PROBLEMS[getattr(task, "multi_label", None)]
    decided = evaluate(model, task, features, examples, tokenizer, device="cpu").predictions
    for said, own, example in zip(plain["pipeline"], decided, examples, strict=True):
        if task.kind == "tagging":
            tags = {piece["start"]: piece["entity"] for piece in said}
            starts = np.cumsum([0, *(len(word) + 1 for word in example.words[:-1])])
            assert [tags[start] for start in starts.tolist()] == own["tags"]
        else:
            (scored,) = said if isinstance(said[0], list) else [said]
            scores = {one["label"]: one["score"] for one in scored}
            assert scores == pytest.approx(own["probabilities"], abs=1e-5)


@tagger
def test_the_card_is_what_the_hub_reads(case, tmp_path):
    card = ModelCard.load(publish(case, tmp_path / "model") / "README.md")
    data = card.data
    assert data.pipeline_tag == "token-classification"
    assert data.library_name == "transformers"
    assert data.metrics == ["f1", "precision"]
    scores = {(r.dataset_split, r.metric_type): r.metric_value for r in data.eval_results}
    assert scores["test", "f1"] == 0.5
    assert scores["dev", "precision"] == 0.7
    assert "language" not in data.to_dict()
    text = card.text
    assert "| `A\\|B` | 0.2500 | 1.0000 | 0.4000 | 3 |" in text
    assert "O 100, B-PER 3" in text
    assert "somebody" not in text
    assert "train.txt" in text
    assert "- B-LOC was never predicted" in text
    assert 'pipeline("token-classification"' in text
    assert RECIPE.strip() in text
    assert "No threshold or bias is used" in text


def card_of(case, folder, **changes):
    task = replace(case[0], **changes)
    return (publish(case, folder, task=task) / "README.md").read_text()


@tagger
def test_the_card_says_what_was_tuned(case, tmp_path):
    biases = (-0.5,) + (0.0,) * (len(case[0].labels) - 1)
    text = card_of(case, tmp_path / "model", biases=biases)
    assert "(0 for labels that are not listed): `O` -0.5." in text
    assert "so transformers pipelines give the tuned predictions" in text
    assert "No threshold or bias is used" not in text


@pytest.mark.parametrize("case", [("classification", {}, "bert")], indirect=True)
def test_the_card_of_a_binary_task_names_its_threshold(case, tmp_path):
    text = card_of(case, tmp_path / "model", positive="work", thresholds=(0.25,))
    assert "`work` is predicted from a probability of 0.25 up, tuned on dev." in text
    text = card_of(case, tmp_path / "model", positive="work", thresholds=(0.5,))
    assert "0.5 up, here and in transformers: dev had no better threshold." in text
    assert "tuned on dev" not in text


@pytest.mark.parametrize(
    "case", [("classification", {"multi_label": True}, "textcnn")], indirect=True
)
def test_the_card_of_a_network_of_our_own_leads_to_softf1(case, tmp_path):
    text = card_of(case, tmp_path / "model", thresholds=(0.25, 0.5))
    assert "from transformers" not in text
    assert "library_name: softf1" in text
    assert "`travel` 0.25, `work` 0.5" in text


@tagger
def test_the_card_tells_nothing_of_where_files_were(case, tmp_path):
    recipe = build_recipe(
        {
            "name": "names",
            "task": {"kind": "tagging", "train": "/home/somebody/train.txt", "test": "data/test"},
            "encoder": {"name": "/home/somebody/encoder"},
        }
    )
    text = (publish(case, tmp_path / "model", recipe=recipe) / "README.md").read_text()
    assert "somebody" not in text
    assert 'train = "train.txt"' in text
    assert 'test = "test"' in text
    assert 'name = "encoder"' in text


@tagger
def test_a_card_can_do_without_a_result(case, tmp_path):
    card = ModelCard.load(publish(case, tmp_path / "model", result={}) / "README.md")
    assert card.data.eval_results is None
    assert "## Use it" in card.text


@tagger
def test_a_run_is_loaded_by_its_model(case, tmp_path):
    publish(case, tmp_path / "run" / "model")
    assert find_model(tmp_path / "run") == find_model(tmp_path / "run" / "model")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["model"]


@tagger
def test_an_older_model_stays_until_the_new_one_is_whole(case, tmp_path, monkeypatch):
    folder = publish(case, tmp_path / "model")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("softf1.training.publish.write_card", full)
        with pytest.raises(OSError, match="No space"):
            publish(case, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert list(tmp_path.iterdir()) == [folder]
    publish(case, folder, result={**RESULT, "name": "newer"})
    assert "# newer" in (folder / "README.md").read_text()
    assert list(tmp_path.iterdir()) == [folder]


def test_what_an_interrupted_attempt_left_is_removed(tmp_path):
    stale = tmp_path / ".softf1-0123456789abcdef.tmp"
    stale.mkdir()
    (stale / "half").write_text("")
    with new_folder(tmp_path / "model") as made:
        (made / "whole").write_text("")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["whole"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


DAMAGE = {
    "no folder": shutil.rmtree,
    "no task": lambda folder: (folder / "softf1.json").unlink(),
    "cut task": lambda folder: (folder / "softf1.json").write_text('{"kind": "tag'),
    "a list": lambda folder: (folder / "softf1.json").write_text("[]"),
    "other task": lambda folder: (folder / "softf1.json").write_text('{"kind": "stars"}'),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "cut weights": lambda folder: os.truncate(folder / "model.safetensors", 1000),
    "empty weights": lambda folder: os.truncate(folder / "model.safetensors", 0),
    "no config": lambda folder: (folder / "config.json").unlink(),
    "cut config": lambda folder: (folder / "config.json").write_text('{"model_type": "be'),
    "other config": lambda folder: (folder / "config.json").write_text('{"model_type": "nil"}'),
    "no tokenizer": lambda folder: [p.unlink() for p in folder.glob("tokenizer*")],
    "cut tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{"),
}


@tagger
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_said_in_one_line(case, tmp_path, damage):
    folder = publish(case, tmp_path / "model")
    DAMAGE[damage](folder)
    with pytest.raises(InputError) as error:
        load_model(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


@tagger
def test_fewer_labels_than_weights_are_damage(case, tmp_path):
    folder = publish(case, tmp_path / "model")
    save_task(replace(case[0], labels=case[0].labels[:-1]), folder)
    with pytest.raises(InputError, match=r"wanted (a whole model|an encoder)"):
        load_model(folder)


@tagger
def test_a_bare_encoder_is_no_model(case, tmp_path, bert):
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    save_task(case[0], folder)
    with pytest.raises(InputError, match=r"wanted weights of classifier\.weight, got none"):
        load_model(folder)


@tagger
def test_code_in_a_folder_is_never_run(case, tmp_path):
    folder, ran = publish(case, tmp_path / "model"), tmp_path / "ran"
    config = json.loads((folder / "config.json").read_text())
    names = ("AutoConfig", "AutoModelForTokenClassification")
    config |= {"model_type": "mine", "auto_map": {name: f"mine.{name}" for name in names}}
    (folder / "config.json").write_text(json.dumps(config))
    code = f"open({str(ran)!r}, 'w')\n" + "".join(f"class {name}:\n    pass\n" for name in names)
    (folder / "mine.py").write_text(code)
    with pytest.raises(InputError):
        load_model(folder)
    assert not ran.exists()


@pytest.fixture
def published(tmp_path, bert):
    """A model folder of a small BERT."""
    rows = "".join(f"{'a' if i % 2 else 'b'},see {i} ann\n" for i in range(8))
    (tmp_path / "x.csv").write_text(f"label,text\n{rows}")
    task = {"kind": "classification", "train": str(tmp_path / "x.csv"), "dev_share": 0.5}
    recipe = {"name": "x", "task": task, "encoder": {"name": str(bert)}}
    train_run(build_recipe(recipe | {"train": {"max_steps": 1}}), tmp_path / "run", quiet=True)
    return tmp_path / "run" / "model"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_one_damaged_bit_is_noticed(published, name):
    load_model(published)
    data = bytearray((published / name).read_bytes())
    data[-40] ^= 1
    (published / name).write_bytes(data)
    with pytest.raises(InputError, match=rf"{name} has another checksum: damaged, or changed"):
        load_model(published)


def test_a_truncated_file_of_weights_is_noticed(published):
    path = published / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"model.safetensors has \d+ bytes instead of \d+"):
        load_model(published)


def test_changed_weights_are_taken_where_the_entry_is_gone(published):
    content = json.loads((published / "softf1.json").read_text("utf-8"))
    assert sorted(content.pop("files")) == ["model.safetensors", "tokenizer.json"]
    (published / "softf1.json").write_text(json.dumps(content), "utf-8")
    load_model(published)


class Hostile:
    """Makes a file where it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("was-run"),)


def test_weights_in_a_pickle_are_refused(published, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights = load_file(published / "model.safetensors")
    for name in ("model.safetensors", "softf1.json"):
        (published / name).unlink()
    task = {"kind": "classification", "train": str(tmp_path / "x.csv"), "dev_share": 0.5}
    values = {"name": "x", "task": task, "train": {"max_steps": 1}}
    encoder = {"name": str(published)}
    (published / "pytorch_model.bin").write_bytes(pickle.dumps(Hostile()))
    for more in ({}, {"allow_pickle": True}):
        with pytest.raises(InputError, match="wanted an encoder"):
            train_run(build_recipe(values | {"encoder": encoder | more}), "new", quiet=True)
    torch.save(weights, published / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"a pickle, are not read.*encoder.allow_pickle=true"):
        train_run(build_recipe(values | {"encoder": encoder}), "new", quiet=True)
    train_run(
        build_recipe(values | {"encoder": encoder | {"allow_pickle": True}}), "new", quiet=True
    )
    assert not Path("was-run").exists()
