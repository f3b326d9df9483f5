import json
import sys

import pytest

from softf1.data.examples import (
    Answer,
    MrcExample,
    PairExample,
    QAExample,
    TaggedSentence,
    TextExample,
)
from softf1.experiments.compare import compare
from softf1.experiments.references import fit_tfidf, list_references
from softf1.recipe import build_recipe
from softf1.tasks import make_task
from tests.experiments import fake
from tests.experiments.fake import run_inline

WORDS = {"yes": ("gold", "prize", "claim"), "no": ("lunch", "home", "train")}


def texts(count, *, multi=False):
    """Texts whose words tell their labels; one of four is positive."""
    found = []
    for n in range(count):
        label = "yes" if n % 4 == 0 else "no"
        words = f"the {WORDS[label][n % 3]} number {n % 5}"
        found.append(TextExample(words, (label,) if not multi or n % 5 else ("yes", "no"), n))
    return found


def parts(examples):
    return {"train": examples[: len(examples) // 2], "dev": examples[len(examples) // 2 :]}


def test_majority_gives_every_text_the_most_frequent_label():
    task = make_task("classification", labels=("no", "yes"))
    examples = parts(texts(80))
    found = task.fit_majority(examples["train"])(examples["dev"])
    assert {line["label"] for line in found} == {"no"}
    assert found[0]["probabilities"]["yes"] == pytest.approx(0.25)
    scores = task.score(found, examples["dev"])
    assert (scores["f1"], scores["accuracy"]) == (0.0, 0.75)


def test_majority_of_several_labels_gives_those_that_most_texts_have():
    task = make_task("classification", labels=("no", "yes"), multi_label=True)
    examples = parts(texts(80, multi=True))
    assert task.fit_majority(examples["train"])(examples["dev"])[0]["labels"] == ["no"]


def test_majority_of_taggers_is_the_most_frequent_tag():
    task = make_task("tagging", labels=("O", "B-PER"))
    sentence = TaggedSentence(("Ann", "sat", "down"), ("B-PER", "O", "O"), 1)
    predict = task.fit_majority([sentence])
    (found,) = predict([sentence])
    assert (found["tags"], found["confidence"]) == (["O"] * 3, [2 / 3] * 3)
    words = TaggedSentence(("a", "b", "c"), ("NOUN", "NOUN", "VERB"), 1)
    assert task.fit_majority([words])([words])[0]["tags"] == ["NOUN"] * 3


def test_majority_of_queries_finds_nothing():
    task = make_task("mrc_ner")
    example = MrcExample("1.0", "who?", "PER", ("Ann", "sat"), ((0, 1),))
    predict = task.fit_majority([example])
    assert predict([example])[0]["spans"] == []
    assert task.score(predict([example]), [example])["f1"] == 0


def test_majority_of_questions_is_no_answer_or_the_first_words():
    answer = Answer(((0, 8),), ("Ann Lee",))
    asked = QAExample("1", "who?", "Ann Lee sat down.", (answer,))
    nothing = QAExample("2", "when?", "Ann Lee sat down.", ())
    task = make_task("qa")
    found = task.fit_majority([asked])([asked])
    assert found[0]["answer"] == "Ann Lee"
    assert task.score(found, [asked])["f1"] == 1.0
    task = make_task("qa", no_answer=True)
    found = task.fit_majority([asked, nothing, nothing])([asked, nothing])
    assert [line["answer"] for line in found] == ["", ""]
    assert task.score(found, [asked, nothing])["f1"] == 0.5


def test_tfidf_learns_what_words_tell():
    pytest.importorskip("sklearn")
    task = make_task("classification", labels=("no", "yes"))
    examples = parts(texts(120))
    found = fit_tfidf(task, examples, "f1")(examples["dev"])
    assert task.score(found, examples["dev"])["f1"] > 0.95
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1)


def test_tfidf_of_several_labels_and_of_texts_without_spaces():
    pytest.importorskip("sklearn")
    task = make_task("classification", labels=("no", "yes"), multi_label=True)
    joined = [
        TextExample(f"{one.text} {one.text}".replace(" ", ""), one.labels, one.line)
        for one in texts(120)
    ]
    examples = parts(joined)
    found = fit_tfidf(task, examples, "f1")(examples["dev"])
    assert task.score(found, examples["dev"])["f1"] > 0.95


def test_tfidf_of_pairs_sees_what_the_two_texts_share():
    pytest.importorskip("sklearn")
    task = make_task("pairs", labels=("0", "1"))
    words = ("red", "blue", "green", "grey", "pink")
    pairs = [
        PairExample(f"a {words[n % 5]} house", f"a {words[(n * m) % 5]} house", same, n)
        for n in range(60)
        for m in (1, 2)
        for same in (str(int(words[n % 5] == words[(n * m) % 5])),)
    ]
    examples = parts(pairs)
    found = fit_tfidf(task, examples, "f1")(examples["dev"])
    assert task.score(found, examples["dev"])["f1"] > 0.95


def test_rows_are_offered_where_they_make_sense():
    def offered(kind):
        values = {"name": "a", "task": {"kind": kind, "train": "a"}, "encoder": {"name": "bilstm"}}
        return list_references(build_recipe(values))

    assert offered("classification") == offered("pairs") == ("majority", "tfidf")
    assert offered("tagging") == offered("qa") == offered("mrc_ner") == ("majority",)


@pytest.fixture
def grid(tmp_path, monkeypatch):
    """A comparison whose stand-in was tested on the same 400 texts."""
    monkeypatch.chdir(tmp_path)
    for part, split in (("train", 0), ("test", 1)):
        lines = fake.draw(fake.make_recipe(), split=split)
        gold = [one["gold"][0] for one in lines]
        rows = [f"{WORDS[label][n % 3]} in {part} {n}\t{label}" for n, label in enumerate(gold)]
        (tmp_path / f"{part}.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n", "utf-8")

    def run(*references, **encoder):
        here = lambda jobs: run_inline(fake.train_run, jobs)  # noqa: E731
        how = {"losses": ("ce", "dice"), "seeds": range(3), "tune": "none", "quiet": True}
        recipe = fake.make_recipe(**encoder)
        return compare(recipe, tmp_path / "grid", execute=here, references=references, **how)

    return run


def test_references_have_one_run_and_intervals_over_the_test_examples(grid, tmp_path):
    pytest.importorskip("sklearn")
    found = grid("majority", "tfidf")
    rows = {row["loss"]: row for row in found["rows"]}
    assert list(rows) == ["ce", "dice", "majority", "tfidf"]
    for name, verdict in (("majority", "significantly below"), ("tfidf", "significantly above")):
        row = rows[name]
        assert (row["n"], row["sd"], row["role"]) == (1, None, "reference")
        assert row["verdict"] == verdict
        assert row["sd_examples"] > 0
    assert rows["tfidf"]["mean"] == 1.0  # the words tell all
    assert "the row tfidf, which trains no encoder, is significantly ahead of ce" in found["notes"]
    assert "majority" not in found["verdict"]
    alone = {row["loss"]: row for row in grid()["rows"]}
    assert rows["dice"]["p_holm"] == alone["dice"]["p_holm"]  # they are no tries of luck
    before = (tmp_path / "grid/cells/tfidf/result.json").stat().st_mtime_ns
    (tmp_path / "train.tsv").unlink()  # what is done needs no data
    assert {row["loss"] for row in grid("majority", "tfidf")["rows"]} == set(rows)
    assert (tmp_path / "grid/cells/tfidf/result.json").stat().st_mtime_ns == before


def test_without_scikit_learn_a_note_says_so(grid, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    found = grid("majority", "tfidf")
    assert [row["loss"] for row in found["rows"]] == ["ce", "dice", "majority"]
    assert any("tfidf: it needs scikit-learn" in note for note in found["notes"])
    assert found["failed"] == {}


def test_a_reference_that_cannot_be_read_fails_alone(grid, tmp_path):
    (tmp_path / "train.tsv").unlink()
    found = grid("majority")
    assert list(found["failed"]) == ["majority"]
    assert [row["loss"] for row in found["rows"]] == ["ce", "dice"]
    cells = json.loads((tmp_path / "grid/grid.json").read_text("utf-8"))["cells"]
    assert cells[-1]["state"] == "failed"
