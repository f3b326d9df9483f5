"""Mutated recipes and model folders end in a result or in one line, never in anything else."""

import json
import pickle
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from softf1.data.problems import Problems
from softf1.errors import InputError, RunError
from softf1.recipe import build_recipe, check_recipe, read_recipe
from softf1.recipe.loading import format_toml
from softf1.training.predict import predict_lines, read_input
from softf1.training.publish import load_model
from softf1.training.run import train_run

LINE = (InputError, RunError)
"""What the command line prints as one line."""
VALUES = (
    *(0, 1, 2, 7, -1, -100, 0.5, 1e5, 1e-30, 1e300, -0.5, 3.0, 2**40, True, False),
    *(float("nan"), float("inf"), 10**400),
    *("", "x", "O", "B-PER", "7", "ce", "macro", "\x1b[1m", "\ufeff", "é" * 200),
    *([], [0], [7], [0.5], ["O"], [[]], [1, 2, 3], {}, {"a": 1}, {"O": 2.0}),
)
OPTIONS = (
    *("exclude", "smooth", "alpha", "beta", "gamma", "mix", "schedule", "over", "average"),
    *("ohem_ratio", "weight", "ignore_index", "label_smoothing", "reduction", "squared", "tau"),
    *("min_kept", "backend", "decay", "check_labels", "dice", "ce", "keys", "weights"),
    *("max_fpr", "gamma_positive", "gamma_negative", "clip", "name", "statistics"),
)
LOSSES = (
    *("ce", "wce", "focal", "dice", "tversky", "dsc", "la", "ce+dice", "focal+tversky", "auto"),
    *("smooth_ap", "pauc", "asymmetric", "ce+smooth_ap", "ce+pauc", "asymmetric+dice"),
)
OWN = {
    "name": (*LOSSES, "auto+dice", "ce+ce", "+"),
    "target": (
        *("f1", "f2", "f0", "f1e5", "precision>=0.5", "precision>=1", "recall>=0.9", "recall>=nan"),
        *("cost:fp=1,fn=10", "cost:fp=inf,fn=0", "cost:fp=0,fn=0", {"spam": "f2"}, {"PER": "f2"}),
        *({"ham": "recall>=0.5", "spam": "precision>=0.9"}, {"O": "f1"}, {"x": "f1"}, {"PER": 3}),
    ),
    "decoder": ("crf", "crf-marginals", "argmax", "viterbi"),
    "adversarial_direction": ("gradient", "random"),
    "lora": (
        *({}, {"rank": 2}, {"rank": 2**40}, {"rank": 2, "alpha": 1e300}, {"dropout": 0.9}),
        *({"targets": ["query"]}, {"targets": ["x"]}, {"targets": []}, {"targets": "all"}),
    ),
}
"""Values of a key that mean something to it."""
ROWS = "".join(f"{'ham' if i % 3 else 'spam'},see {i % 5} you {i}\n" for i in range(18))


def write_data(folder):
    (folder / "a.csv").write_text(f"label,text\n{ROWS}")
    (folder / "a.conll").write_text("Ann B-PER\nran O\nto O\nOslo B-LOC\n\nit O\nran O\n\n" * 6)


SIZES = {"bilstm": {"hidden_size": 4}, "textcnn": {"filters": 2, "embedding_size": 4}}


def base(rng, folder, bert):
    """Sections of a small recipe that trains."""
    kind, encoder, file = rng.choice(
        [("tagging", "bilstm", "a.conll"), ("classification", "textcnn", "a.csv")]
    )
    sections = {
        "task": {"kind": kind, "train": str(folder / file), "dev_share": 0.3},
        "encoder": {"name": encoder, **SIZES[encoder]},
        "loss": {"name": rng.choice(LOSSES)},
        "train": {"epochs": 1.0, "max_steps": 2, "lr": 1e-3, "batch_size": 4},
        "eval": {"tune": rng.random() < 0.5},
    }
    if rng.random() < 0.2:
        sections["encoder"] = {"name": str(bert), "lora": {"rank": 2}}
    if kind == "tagging" and rng.random() < 0.3:
        sections["task"]["decoder"] = rng.choice(["crf", "crf-marginals"])
    if kind == "classification" and rng.random() < 0.3:
        sections["task"]["multi_label"] = True
    if rng.random() < 0.2:
        sections["train"][rng.choice(["adversarial", "adversarial_relative"])] = 0.5
    if rng.random() < 0.15:
        sections["train"]["consistency"] = 1.0
    return sections


def mutate(rng, sections):
    """One or two values exchanged, taken out, or put in."""
    for _ in range(rng.choice((1, 1, 2))):
        section = rng.choice(["loss", "loss", "train", "task", "encoder", "eval"])
        known = {"loss": OPTIONS, "train": TRAIN, "task": TASK, "encoder": ENCODER, "eval": EVAL}
        key = rng.choice(known[section])
        at = sections[section]
        parts = str(at.get("name")).split("+") if section == "loss" else []
        if len(parts) > 1 and rng.random() < 0.5:
            at = at.setdefault(rng.choice(parts), {})
        if not isinstance(at, dict):
            continue
        if rng.random() < 0.1:
            at.pop(key, None)
        else:
            own = OWN.get(key, ()) if rng.random() < 0.7 else ()
            at[key] = rng.choice(own or VALUES)
    sections["train"]["max_steps"] = 2  # whatever else
    return sections


TRAIN = (
    *("epochs", "batch_size", "batch_tokens", "accumulate", "lr", "head_lr", "weight_decay"),
    *("betas", "eps", "schedule", "warmup", "lr_end", "power", "clip", "precision", "compile"),
    *("head_bias", "sampler", "step_weights", "seed", "patience", "eval_every", "trackers"),
    *("adversarial", "adversarial_relative", "adversarial_direction", "consistency"),
    *("micro_tokens", "deterministic", "checkpoint_seconds", "group_by_length"),
)
TASK = (
    *("kind", "train", "dev", "test", "dev_share", "format", "reader", "unit", "scheme"),
    *("max_length", "overlap", "positive", "multi_label", "encoding", "labels", "biases"),
    *("decoder", "decoder", "folds", "fold", "drop_leaks"),
)
ENCODER = (
    *("name", "dropout", "hidden_size", "filters", "embedding_size", "allow_pickle", "widths"),
    *("lora", "lora", "gradient_checkpointing"),
)
EVAL = ("metric", "tune", "batch_tokens", "target", "target", "target")


def try_recipe(rng, folder, number, bert):
    path = folder / f"{number}.toml"
    text = format_toml({"name": "a", **mutate(rng, base(rng, folder, bert))})
    if rng.random() < 0.15:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(["", "\n", "=", '"', "[", "\x00", "é"]) + text[at + 1 :]
    path.write_text(text, encoding="utf-8")
    with suppress(*LINE):
        recipe = read_recipe(path)
        check_recipe(recipe, path=path)
        train_run(recipe, folder / f"run{number}", quiet=True)
        return True
    return False


def check_recipes(folder, seeds, bert):
    write_data(folder)
    trained = 0
    for seed in seeds:
        try:
            trained += try_recipe(Random(seed), folder, seed, bert)
        except Exception as error:
            text = (folder / f"{seed}.toml").read_text()
            raise AssertionError(f"seed {seed}: {error!r} of\n{text}") from error
    assert 0 < trained < len(seeds)
    return trained


@pytest.mark.filterwarnings("ignore")
def test_some_mutated_recipes(tmp_path, bert):
    check_recipes(tmp_path, range(60), bert)


@pytest.mark.slow
@pytest.mark.attack
@pytest.mark.filterwarnings("ignore")
def test_many_mutated_recipes(tmp_path, attacked, bert):
    trained = check_recipes(tmp_path, range(3_000), bert)
    attacked("mutated recipes", 3_000, used=trained, refused=3_000 - trained)


# Model folders and folders of encoders


class Hostile:
    """Runs something where it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("was-run"),)


@pytest.fixture(scope="module")
def models(tmp_path_factory, bert):
    """Model folders of encoders from scratch and of a small BERT, and the encoder's own folder."""
    root = tmp_path_factory.mktemp("models")
    write_data(root)
    for name, kind, file, encoder, more in (
        ("bilstm", "tagging", "a.conll", "bilstm", {}),
        ("crf", "tagging", "a.conll", "bilstm", {"decoder": "crf"}),
        ("textcnn", "classification", "a.csv", "textcnn", {}),
        ("bert", "classification", "a.csv", str(bert), {}),
    ):
        task = {"kind": kind, "train": str(root / file), **more}
        recipe = {"name": name, "task": task, "encoder": {"name": encoder}}
        train_run(build_recipe(recipe | {"train": {"max_steps": 1}}), root / name, quiet=True)
    return root


def damage(rng, file):
    """A file cut, with other bytes, with another value, or gone."""
    how = rng.choice(["gone", "cut", "insert", "other", "flip", "value", "value", "value"])
    if how == "gone":
        file.unlink()
    elif how == "value" and file.suffix == ".json":
        exchange(rng, file)
    else:
        file.write_bytes(scramble(rng, file.read_bytes(), how))


def exchange(rng, file):
    """Another value somewhere in a JSON file."""
    value = json.loads(file.read_text("utf-8"))
    at = value
    for _ in range(rng.randrange(4)):
        parts = at.values() if isinstance(at, dict) else at
        inner = [one for one in parts if one and isinstance(one, (dict, list))]
        at = rng.choice(inner) if inner else at
    keys = list(at) if isinstance(at, dict) else range(len(at))
    at[rng.choice(keys)] = rng.choice(VALUES)
    file.write_text(json.dumps(value), "utf-8")


def scramble(rng, data, how):
    at = rng.randrange(min(len(data), 2000) + 1)
    if how == "cut":
        return data[: rng.randrange(len(data) + 1)]
    if how == "insert":
        more = rng.choice([b"\xff\xfe", b"{", b"[" * 2000, b"\x00", b'"'])
        return data[:at] + more + data[at:]
    if how == "other":
        return rng.choice([b"", b"[]", b"null", b"{}", b"\xff", b'{"a": 1}', b"[" * 100_000])
    return data[:at] + rng.randbytes(3) + data[at + 3 :]


def try_model(rng, models, folder):
    """A damaged copy of a model: predicts, or is refused."""
    name = rng.choice(["bilstm", "crf", "textcnn", "bert"])
    made = folder / "model"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(models / name / "model", made)
    if rng.random() < 0.6:  # as if it were meant so: the checksums do not help
        task = json.loads((made / "softf1.json").read_text("utf-8"))
        del task["files"]
        (made / "softf1.json").write_text(json.dumps(task), "utf-8")
    damage(rng, rng.choice(sorted(p for p in made.iterdir() if p.name != "README.md")))
    if rng.random() < 0.1 and (made / "model.safetensors").exists():
        (made / "model.safetensors").unlink()
        (made / "pytorch_model.bin").write_bytes(pickle.dumps(Hostile()))
    path = models / ("a.conll" if name in ("bilstm", "crf") else "a.csv")
    with suppress(*LINE):
        loaded = load_model(made)
        list(predict_lines(loaded, read_input(loaded.task, path, problems=Problems())))
        return True
    return False


def try_encoder(rng, models, folder):
    """A recipe with a damaged folder as its encoder: trains, or is refused."""
    made = folder / "encoder"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(models / "bert" / "model", made)
    (made / "softf1.json").unlink()
    damage(rng, rng.choice(sorted(p for p in made.iterdir() if p.name != "README.md")))
    task = {"kind": "classification", "train": str(models / "a.csv")}
    values = {"name": "a", "task": task, "encoder": {"name": str(made)}, "train": {"max_steps": 1}}
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    with suppress(*LINE):
        train_run(build_recipe(values), run, quiet=True)
        return True
    return False


def check_folders(models, folder, seeds, attempt):
    done = 0
    for seed in seeds:
        try:
            done += attempt(Random(seed), models, folder)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    assert not Path("was-run").exists()
    assert done < len(seeds)
    return done


ATTEMPTS = [try_model, try_encoder]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_some_damaged_folders(models, tmp_path, monkeypatch, attempt):
    monkeypatch.chdir(tmp_path)
    check_folders(models, tmp_path, range(30), attempt)


@pytest.mark.slow
@pytest.mark.attack
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_many_damaged_folders(models, tmp_path, monkeypatch, attempt, attacked):
    monkeypatch.chdir(tmp_path)
    done = check_folders(models, tmp_path, range(700), attempt)
    attacked("damaged folders of models and encoders", 700, used=done, refused=700 - done)
