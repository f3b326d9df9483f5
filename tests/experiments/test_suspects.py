"""Folds, the ranking of suspects over them, the files that are left, and what is refused."""

import csv
import json
import random

import pytest

from softf1.cli import suspects as command
from softf1.cli.main import build_parser, main
from softf1.errors import InputError, RunError
from softf1.experiments.suspects import find_suspects, join_words, list_examples
from softf1.recipe import build_recipe, format_recipe, with_values
from softf1.reports.suspects import write_suspects
from softf1.training.run import CachingTrainer
from tests.experiments.fake import run_inline

GOOD, BAD = ("fine", "good", "lovely"), ("dull", "bad", "weak")
FILL = ("the", "film", "was", "a", "story", "with", "<b>&")
WRONG = {7, 40, 71}
TINY = {"name": "textcnn", "embedding_size": 8, "filters": 8}
TINY_TAGGER = {"name": "bilstm", "hidden_size": 8, "word_size": 8, "char_size": 4}


def write_texts(path):
    """Texts whose words give their label away; three labels are wrong."""
    rng = random.Random(0)
    rows = []
    for number in range(90):
        label = number % 2
        words = [*rng.choices(GOOD if label else BAD, k=3), *rng.choices(FILL, k=2), f"n{number}"]
        rng.shuffle(words)
        rows.append((" ".join(words), "yes" if label != (number in WRONG) else "no"))
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


def write_tags(path):
    """Names that are always the same; one is dropped, one has another label."""
    lines = []
    for number in range(60):
        tags = {"Ann": "B-PER", "Rome": "B-LOC"}
        tags |= {10: {"Ann": "O"}, 20: {"Rome": "B-PER"}}.get(number, {})
        words = ["Ann", "saw", "Rome", f"w{number}"][:: 1 if number % 3 else -1]
        lines += [f"{word} {tags.get(word, 'O')}" for word in words] + [""]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def make_recipe(path, kind="classification", encoder=None, **options):
    return build_recipe(
        {
            "name": "toy",
            "task": {"kind": kind, "train": str(path), **options},
            "encoder": encoder or TINY,
            "train": {"epochs": 12.0, "lr": 0.02, "batch_size": 8, "seed": 1},
        }
    )


def train_here(jobs):
    return run_inline(CachingTrainer(), jobs)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder with the texts and what was found in them."""
    folder = tmp_path_factory.mktemp("texts")
    path = write_texts(folder / "texts.csv")
    content = find_suspects(
        make_recipe(path), folder / "out", execute=train_here, folds=3, quiet=True
    )
    return folder, content


def test_wrong_labels_of_texts_come_first(texts):
    _, content = texts
    first = content["suspects"][: len(WRONG)]
    assert {one["line"] for one in first} == {number + 2 for number in WRONG}  # below the heading
    assert {one["kind"] for one in first} == {"wrong label"}
    by_line = {one["line"]: one for one in first}
    assert by_line[9]["given"] == [{"label": "no"}]  # text 7 has good words
    assert by_line[9]["suggested"] == [{"label": "yes"}]
    scores = [one["score"] for one in content["suspects"]]
    assert scores == sorted(scores, reverse=True)
    assert content["found"] == len(scores) == sum(content["kinds"].values())


def test_the_file_to_review_has_a_row_for_each_and_room_for_a_decision(texts):
    folder, content = texts
    with (folder / "out/suspects.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(content["suspects"])
    assert rows[0]["file"] == str(folder / "texts.csv")
    assert {row["decision"] for row in rows} == {""}
    assert {int(row["line"]) for row in rows[:3]} == {9, 42, 73}


def test_the_page_escapes_data_and_needs_no_network(texts):
    folder, content = texts
    page = write_suspects(folder / "out").read_text("utf-8")
    assert "&lt;b&gt;&amp;" in page
    assert "<b>&" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert page.count('class="wrong-label"') == len(content["suspects"])


def test_a_page_of_something_else_is_refused(tmp_path):
    (tmp_path / "suspects.json").write_text('{"kind": "compare"}', "utf-8")
    with pytest.raises(InputError, match="wanted what softf1 suspects wrote"):
        write_suspects(tmp_path)


def test_folds_that_are_done_are_not_trained_again(texts):
    folder, content = texts

    def refuse(jobs):
        raise AssertionError(f"trained again: {jobs}")

    recipe = make_recipe(folder / "texts.csv")
    again = find_suspects(recipe, folder / "out", execute=refuse, folds=3, top=2, quiet=True)
    assert again["suspects"] == content["suspects"][:2]
    assert again["found"] == content["found"]


def test_an_interrupted_command_goes_on_with_the_missing_folds(tmp_path):
    recipe = with_values(make_recipe(write_texts(tmp_path / "t.csv")), {"train.epochs": 1})
    seen = []

    def stop_after_one(jobs):
        yield next(train_here(jobs))
        raise KeyboardInterrupt

    def note(jobs):
        seen.extend(job.id for job in jobs)
        yield from train_here(jobs)

    with pytest.raises(KeyboardInterrupt):
        find_suspects(recipe, tmp_path / "out", execute=stop_after_one, folds=2, quiet=True)
    assert not (tmp_path / "out/suspects.json").exists()
    find_suspects(recipe, tmp_path / "out", execute=note, folds=2, quiet=True)
    assert seen == ["fold-1"]
    assert json.loads((tmp_path / "out/suspects.json").read_text("utf-8"))["folds"] == 2


def test_a_fold_that_fails_ends_the_command_with_its_error(tmp_path):
    recipe = make_recipe(write_texts(tmp_path / "t.csv"))

    def fail(*_, **__):
        raise RuntimeError("out of luck")

    with pytest.raises(RunError, match=r"2 of 2 folds failed; fold-0: RuntimeError: out of luck"):
        find_suspects(
            recipe, tmp_path / "out", execute=lambda jobs: run_inline(fail, jobs), folds=2
        )


def test_wrong_spans_are_found_with_their_kind_and_words(tmp_path):
    recipe = make_recipe(write_tags(tmp_path / "t.txt"), "tagging", TINY_TAGGER, format="conll")
    found = find_suspects(recipe, tmp_path / "out", execute=train_here, folds=2, quiet=True)
    two = sorted(found["suspects"][:2], key=lambda one: one["line"])
    assert [(one["line"], one["kind"]) for one in two] == [
        (51, "missing span"),  # sentence 10, five lines each
        (101, "wrong label"),
    ]
    assert two[0]["suggested"] == [{"label": "PER", "start": 0, "end": 1, "text": "Ann"}]
    assert two[0]["pieces"] == ["", "Ann", "saw Rome w10"]
    assert two[1]["given"][0]["label"] == "PER"
    assert two[1]["suggested"][0]["label"] == "LOC"


def test_all_files_of_a_recipe_are_judged(tmp_path):
    train, test = write_texts(tmp_path / "a.csv"), tmp_path / "b.csv"
    test.write_text("text,label\nquite lovely indeed,yes\nhow dull it is,no\n", "utf-8")
    recipe = make_recipe(train, test=str(test))
    whole = with_values(recipe, {"task.folds": 3, "task.fold": 0})
    examples = list_examples(whole)
    assert len(examples) == 92
    assert [(path, one.line) for path, one in examples[-2:]] == [(str(test), 2), (str(test), 3)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--folds", "1"], "wanted --folds from 2 up, got 1"),
        (["--top", "0"], "wanted --top from 1 up, got 0"),
        (["--folds", "200"], "wanted a text for each of 200 folds, got 90 different texts"),
        (["--task", "tables"], "tables"),
    ],
)
def test_bad_options_are_one_line(words, message, tmp_path, capsys):
    path = write_texts(tmp_path / "t.csv")
    arguments = ["suspects", str(path), "--encoder", "textcnn", "--out", str(tmp_path / "out")]
    assert main([*arguments, *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a fine film,yes", "a dull film,no"], "to hold out some as dev, got 1"),
        (["fine,yes", "good,yes", "lovely,yes", "dull,no"], "wanted 2 labels or more"),
    ],
)
def test_a_fold_that_leaves_too_little_is_refused_before_training(rows, message, tmp_path, capsys):
    path = tmp_path / "few.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
    out = tmp_path / "out"
    arguments = ["suspects", str(path), "--task", "classification", "--encoder", "textcnn"]
    assert main([*arguments, "--folds", "2", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert f"{path}: to train without fold " in error
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_task_without_labels_is_refused_in_one_line(tmp_path, capsys):
    asked = {"question": "who?", "id": "1", "answers": [{"text": "Ann", "answer_start": 0}]}
    passages = [
        {"context": f"Ann ran {n} times", "qas": [asked | {"id": str(n)}]} for n in range(9)
    ]
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": passages}]}
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(content), "utf-8")
    assert main(["suspects", str(path), "--encoder", "bert-base-cased", "--folds", "2"]) == 2
    error = capsys.readouterr().err
    assert "wanted a task that labels texts or words, got qa" in error


def test_a_recipe_stands_alone_and_its_loss_stays(tmp_path, capsys):
    path = write_texts(tmp_path / "t.csv")
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        '[task]\nkind = "classification"\ntrain = "t.csv"\n[encoder]\nname = "textcnn"\n'
        '[loss]\nname = "focal"\n',
        "utf-8",
    )
    parse = build_parser().parse_args
    made = command.make_recipe(parse(["suspects", str(recipe), "--epochs", "2", "--seed", "5"]))
    assert (made.loss.name, made.train.epochs, made.train.seed) == ("focal", 2, 5)
    own = command.make_recipe(parse(["suspects", str(path), "--encoder", "textcnn"]))
    assert (own.loss.name, own.name, own.eval.tune) == ("ce", "t", False)
    assert main(["suspects", str(recipe), "--task", "tagging"]) == 2
    assert "wanted a recipe alone" in capsys.readouterr().err


def test_the_command_prints_the_first_suspects_and_where_the_files_are(texts, capsys):
    folder, content = texts
    recipe = folder / "toy.toml"
    recipe.write_text(format_recipe(make_recipe(folder / "texts.csv")), "utf-8")
    arguments = ["suspects", str(recipe), "--folds", "3", "--out", str(folder / "out"), "--quiet"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("90 examples, 3 folds, f1 ")
    assert lines[1].split("\t") == ["score", "line", "kind", "given", "suggested"]
    first = content["suspects"][0]
    assert lines[2].split("\t")[:3] == [
        f"{first['score']:.4f}",
        f"{first['file']}:{first['line']}",
        "wrong label",
    ]
    assert lines[-2] == f"{content['found']} suspects: wrong label {content['found']}"
    assert lines[-1].endswith("suspects.csv")
    assert (folder / "out/suspects.html").is_file()
    assert main([*arguments[:2], "--folds", "2", *arguments[4:]]) == 2
    assert "fold" in capsys.readouterr().err


def test_folds_that_miss_a_label_are_scored_by_the_metric_of_all_labels(tmp_path):
    """Two labels have the F1 of one, three the mean of all."""
    path = tmp_path / "t.csv"
    rows = [f"{'good' if n % 2 else 'bad'} n{n},{'yes' if n % 2 else 'no'}" for n in range(40)]
    path.write_text("\n".join(["text,label", *rows, "so so,maybe"]) + "\n", "utf-8")
    recipe = with_values(make_recipe(path), {"train.epochs": 1})
    found = find_suspects(recipe, tmp_path / "out", execute=train_here, folds=2, quiet=True)
    results = [json.loads(p.read_text("utf-8")) for p in tmp_path.glob("out/**/result.json")]
    assert sorted(one["headline"] for one in results) == ["f1", "macro_f1"]
    assert found["headline"] == "macro_f1"
    scores = [one["scores"]["test"]["macro_f1"] for one in results]
    assert found["score"] == pytest.approx(sum(scores) / 2)


def test_words_are_joined_as_they_are_written():
    assert join_words(["a", "b"]) == "a b"
    assert join_words(["山", "ab"]) == "山 ab"


@pytest.mark.parametrize(("many", "said"), [(1, "1 example has"), (2_000, "2,000 examples have")])
def test_one_example_has_and_two_have(many, said, capsys):
    one = {"score": 0.9, "file": "a.txt", "line": 1, "kind": "label", "given": [], "suggested": []}
    known = {"headline": "f1", "score": 0.5, "examples": 9, "folds": 2, "found": 1}
    command.print_suspects({**known, "suspects": [one], "kinds": {"label": 1}, "unknown": many})
    assert f"note: {said} a label that no other fold has; " in capsys.readouterr().out


def test_models_that_learned_nothing_are_not_to_be_trusted(tmp_path, texts, capsys):
    path = write_tags(tmp_path / "names.conll")
    recipe = with_values(
        make_recipe(path, "tagging", {"name": "bilstm", "hidden_size": 8}),
        {"train.max_steps": 1, "train.lr": 1e-5},
    )
    found = find_suspects(recipe, tmp_path / "out", execute=train_here, folds=2, quiet=True)
    assert found["collapsed"] == 2
    command.print_suspects(found)
    said = "2 of 2 models predict nothing or only one class: do not trust this list"
    assert said in capsys.readouterr().out
    assert said in write_suspects(tmp_path / "out").read_text("utf-8")
    _, good = texts
    command.print_suspects(good)
    assert "do not trust" not in capsys.readouterr().out
