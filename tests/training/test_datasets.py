"""Files read, split and encoded."""

import os

import pytest

from softf1.data.examples import QAExample, TaggedSentence
from softf1.data.splits import text_of
from softf1.data.stats import describe, look_over
from softf1.errors import InputError
from softf1.recipe import read_recipe, with_values
from softf1.training.datasets import load_datasets, read_parts
from softf1.training.predict import rescore
from softf1.training.run import CachingTrainer, train_run
from tests.training.test_run import case
from tests.training.toys import make_data, make_recipe, write_recipe


def test_files_are_read_with_their_hashes(tmp_path):
    datasets = load_datasets(read_recipe(write_recipe(tmp_path)))
    assert {name: len(found) for name, found in datasets.examples.items()} == {
        "train": 60,
        "dev": 18,
        "test": 12,
    }
    assert set(datasets.task.labels) == {"B-LOC", "B-PER", "O"}
    hashes = {source["sha256"] for source in datasets.sources.values()}
    assert len(hashes) == 3
    (tmp_path / "dev.txt").write_text((tmp_path / "train.txt").read_text())
    changed = load_datasets(read_recipe(tmp_path / "toy.toml")).sources
    assert changed["dev"]["sha256"] == changed["train"]["sha256"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"tset": []}, "data: wanted train, dev, test, got 'tset'"),
        ({"dev": ["a text"]}, "data: wanted TaggedSentence in 'dev', got str"),
        ({"train": [QAExample("1", "Who?", "Ann", (), line=1)]}, "in 'train', got QAExample"),
    ],
)
def test_given_examples_that_the_task_cannot_use(data, said, tmp_path):
    recipe = read_recipe(write_recipe(tmp_path))
    given = {"train": load_datasets(recipe).examples["train"]} | data
    with pytest.raises(InputError, match=said):
        load_datasets(recipe, given)


def test_what_runs_share_is_read_once(tmp_path):
    cache, recipe = CachingTrainer(), read_recipe(write_recipe(tmp_path))
    first = cache.load(recipe)
    other = with_values(recipe, {"loss.name": "dice", "train.seed": 3, "train.lr": 0.5})
    assert cache.load(other) is first
    assert cache.load(with_values(recipe, {"task.max_length": 32})) is not first
    again = cache.load(recipe)
    (tmp_path / "dev.txt").write_text((tmp_path / "train.txt").read_text())
    assert len(again.examples["dev"]) == 18
    assert len(cache.load(recipe).examples["dev"]) == 60


def test_a_file_edited_without_a_trace_is_read_anew(tmp_path):
    """Of the same size and time as before: only its content tells."""
    recipe, cache = read_recipe(write_recipe(tmp_path)), CachingTrainer()
    path = tmp_path / "dev.txt"
    state, text = path.stat(), path.read_text()
    word = cache.load(recipe).examples["dev"][0].words[0]
    path.write_text(text.replace(word, word.swapcase(), 1))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert cache.load(recipe).examples["dev"][0].words[0] == word.swapcase()


def test_a_second_run_on_the_same_datasets_gives_the_same(tmp_path):
    recipe, trainer = read_recipe(write_recipe(tmp_path)), CachingTrainer()
    runs = [trainer(recipe, tmp_path / name, quiet=True)["scores"] for name in "ab"]
    alone = train_run(recipe, tmp_path / "c", quiet=True)["scores"]
    assert runs == [alone, alone]


def split(kind="tagging", share=0.25, train=None):
    data = {"train": train or make_data(kind)["train"]}
    recipe = with_values(make_recipe(), {"task.dev_share": share})
    return load_datasets(recipe, data) if kind == "tagging" else data


def test_without_a_dev_file_a_share_of_train_is_put_aside():
    datasets = split()
    train, dev = datasets.examples["train"], datasets.examples["dev"]
    assert (len(train), len(dev)) == (45, 15)
    everything = make_data()["train"]
    assert sorted(train + dev, key=str) == sorted(everything, key=str)
    assert train != everything[:45]  # not the end of the file
    assert datasets.sources["dev"]["share"] == 0.25
    assert split().examples["dev"] == dev


def test_the_share_is_the_same_for_every_seed():
    recipes = [make_recipe(train={"seed": seed}) for seed in (0, 1)]
    first, second = (load_datasets(r, {"train": make_data()["train"]}) for r in recipes)
    assert first.examples["dev"] == second.examples["dev"]


def test_questions_about_one_text_stay_together(bert):
    recipe, data = case("qa", bert)
    train = [
        QAExample(f"{e.id}.{i}", e.question, e.context, e.answers)
        for e in data["train"]
        for i in range(3)
    ]
    found = load_datasets(with_values(recipe, {"task.dev_share": 0.2}), {"train": train}).examples
    assert len(found["dev"]) == 36
    assert not {e.context for e in found["dev"]} & {e.context for e in found["train"]}


def test_queries_about_one_sentence_stay_together(bert):
    recipe, data = case("mrc_ner", bert)
    found = load_datasets(recipe, {"train": data["train"]}).examples
    sentences = [{e.id.split(".")[0] for e in found[name]} for name in ("train", "dev")]
    assert not sentences[0] & sentences[1]
    assert len(found["dev"]) == 12


def test_labels_come_from_train_alone():
    data = make_data()
    data["test"] = [type(e)(e.words, ("B-NEW", *e.tags[1:]), line=0) for e in data["test"]]
    datasets = load_datasets(make_recipe(), data)
    assert "B-NEW" not in datasets.task.labels
    assert any("NEW" in note and note.startswith("test: ") for note in datasets.notes)


@pytest.mark.parametrize("data", [{}, {"train": []}, {"dev": make_data()["dev"]}])
def test_nothing_to_train_on_is_an_error(data):
    with pytest.raises(InputError, match="wanted examples to use as train, got none"):
        load_datasets(make_recipe(), data)


def test_an_empty_file_is_an_error_that_names_it(tmp_path):
    recipe = read_recipe(write_recipe(tmp_path))
    (tmp_path / "dev.txt").write_text("\n\n")
    with pytest.raises(InputError, match=r"dev\.txt"):
        load_datasets(recipe)


def test_one_example_cannot_be_split():
    with pytest.raises(
        InputError, match="wanted two different texts or more, to hold out some as dev, got 1"
    ):
        load_datasets(make_recipe(), {"train": make_data()["train"][:1]})


def test_a_text_in_train_and_test_is_said_with_its_count():
    data = make_data()
    data["test"] = [*data["test"], *data["train"][:5]]
    datasets = load_datasets(make_recipe(), data)
    leaks = [note for note in datasets.notes if "texts are also in train" in note]
    assert any(note.startswith("test: ") and "drop_leaks" in note for note in leaks)
    given = sum(text_of(e) in set(map(text_of, data["train"])) for e in data["test"])
    assert any(f"test: {given} of {len(data['test'])} texts" in note for note in leaks)


def test_drop_leaks_takes_texts_of_dev_and_test_out_of_train():
    data = make_data()
    data["test"] = [*data["test"], *data["train"][:5]]
    recipe = with_values(make_recipe(), {"task.drop_leaks": True})
    datasets = load_datasets(recipe, data)
    kept = {text_of(e) for e in datasets.examples["train"]}
    assert not kept & {text_of(e) for name in ("dev", "test") for e in data[name]}
    dropped = len(data["train"]) - len(datasets.examples["train"])
    assert dropped >= 5
    assert datasets.notes[0] == (
        f"train: {dropped} examples left out, whose texts are in dev or test"
    )
    assert datasets.sources["train"]["examples"] == len(datasets.examples["train"])
    with pytest.raises(InputError, match=r"task\.drop_leaks: wanted texts in train"):
        load_datasets(recipe, data | {"test": data["train"]})


def test_the_same_file_as_train_and_dev_is_said(tmp_path):
    write_recipe(tmp_path)
    (tmp_path / "dev.txt").write_text((tmp_path / "train.txt").read_text())
    notes = load_datasets(read_recipe(tmp_path / "toy.toml")).notes
    assert any("dev has the same 60 texts as train" in note for note in notes)


def test_folds_cover_all_files_once_and_never_train_on_their_own(tmp_path):
    recipe = read_recipe(write_recipe(tmp_path))
    seen = []
    for number in range(3):
        own = with_values(recipe, {"task.folds": 3, "task.fold": number})
        examples = load_datasets(own).examples
        held = {text_of(one) for one in examples["test"]}
        assert not held & {text_of(one) for name in ("train", "dev") for one in examples[name]}
        assert sum(map(len, examples.values())) == 90  # 60, 18 and 12
        seen += examples["test"]
    assert len(seen) == 90


def write_two_labels(folder, *, cats, dogs):
    """A table in which cat is the label of a few texts more or less than dog."""
    rows = [f"text {n},cat" for n in range(cats)] + [f"other {n},dog" for n in range(dogs)]
    path = folder / "animals.csv"
    path.write_text("\n".join(["text,label", *rows, ""]), "utf-8")
    return path


@pytest.mark.parametrize(
    "parts",
    [
        [{"task.folds": 5, "task.fold": number} for number in range(5)],
        [{"task.dev_share": share} for share in (0.05, 0.1, 0.2, 0.5)],
    ],
    ids=["folds", "dev"],
)
@pytest.mark.parametrize(("cats", "dogs"), [(31, 30), (30, 31), (30, 30)])
def test_the_positive_label_is_that_of_the_whole_file(cats, dogs, parts, tmp_path):
    path = write_two_labels(tmp_path, cats=cats, dogs=dogs)
    task = {"kind": "classification", "train": str(path)}
    recipe = make_recipe(task, encoder={"name": "textcnn"})
    found = {load_datasets(with_values(recipe, values)).task.positive_label for values in parts}
    stats = describe(look_over(path))
    assert stats.negative in ("label cat", "label dog")
    assert found == {"cat", "dog"} - {stats.negative.removeprefix("label ")}


@pytest.mark.parametrize(("yes", "no", "noted"), [(30, 10, False), (31, 10, True), (5, 40, False)])
def test_a_positive_label_that_is_not_the_rare_one_is_noted(yes, no, noted, tmp_path):
    path = tmp_path / "answers.csv"
    rows = [f"text {n},yes" for n in range(yes)] + [f"other {n},no" for n in range(no)]
    path.write_text("\n".join(["text,label", *rows, ""]), "utf-8")
    task = {"kind": "classification", "train": str(path), "dev": str(path)}
    datasets = load_datasets(make_recipe(task, encoder={"name": "textcnn"}))
    assert datasets.task.positive_label == "yes"
    said = "train: 76% have the positive label yes: for the F1 of the rare one, set task.positive ="
    assert [note for note in datasets.notes if "positive" in note] == [f"{said} 'no'"] * noted


def test_the_positive_label_of_folds_is_that_of_all_files(tmp_path):
    """Without folds, dev has no say."""
    path = write_two_labels(tmp_path, cats=10, dogs=9)
    dev = tmp_path / "dev.csv"
    dev.write_text("text,label\n" + "".join(f"new {n},dog\n" for n in range(3)), "utf-8")
    task = {"kind": "classification", "train": str(path), "dev": str(dev)}
    recipe = make_recipe(task, encoder={"name": "textcnn"})
    assert load_datasets(recipe).task.positive_label == "dog"  # 10 cats, 9 dogs
    for number in range(3):
        own = with_values(recipe, {"task.folds": 3, "task.fold": number})
        assert load_datasets(own).task.positive_label == "cat"  # 10 cats, 12 dogs


def test_a_run_of_a_fold_is_trained_and_evaluated_on_it(tmp_path):
    recipe = read_recipe(write_recipe(tmp_path))
    own = with_values(recipe, {"task.folds": 3, "task.fold": 1, "train.epochs": 1})
    result = train_run(own, tmp_path / "run", quiet=True)
    again = rescore(tmp_path / "run")
    assert (again.split, again.examples) == ("test", len(load_datasets(own).examples["test"]))
    assert again.scores == result["scores"]["test"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task.folds": 3}, "task.fold: wanted task.folds and task.fold"),
        ({"task.fold": 0}, "task.folds: wanted task.folds and task.fold"),
        ({"task.folds": 3, "task.fold": 3}, "task.fold: wanted 0 to 2, got 3"),
        ({"task.folds": 1, "task.fold": 0}, "task.folds: wanted"),
    ],
)
def test_folds_that_make_no_sense_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        with_values(make_recipe(), values)


def test_files_of_a_tagger_with_a_scheme_are_checked_before_it_is_fitted(tmp_path):
    recipe = read_recipe(write_recipe(tmp_path), ["task.scheme=BIO", "task.format=conll"])
    read_parts(recipe)
    (tmp_path / "dev.txt").write_text("Ada PER\nsang O\n", "utf-8")
    with pytest.raises(
        InputError, match=r"dev\.txt:1: wanted O or a tag of .* got .PER. for the word .Ada."
    ):
        read_parts(recipe)


@pytest.mark.parametrize(
    ("words", "labels"),
    [([*map(str, range(10)), *["same"] * 90], ["O"] * 100), (range(100), range(100))],
    ids=["repeated texts", "labels of one text"],
)
def test_a_dev_part_that_is_too_small_is_noted_with_what_may_be_why(words, labels):
    pairs = zip(map(str, words), map(str, labels), strict=True)
    train = [TaggedSentence((word,), (tag,), 1) for word, tag in pairs]
    found = load_datasets(make_recipe(), {"train": train})
    assert len(found.examples["dev"]) < 5
    (note,) = (note for note in found.notes if "instead of 10.0%" in note)
    assert "equal texts and questions about one article stay together" in note
    assert "the only text of a label stays in train" in note
    assert not any("instead of" in n for n in load_datasets(make_recipe(), make_data()).notes)
