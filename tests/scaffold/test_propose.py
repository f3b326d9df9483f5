import re
import tomllib

import pytest

from softf1.errors import InputError
from softf1.experiments.search import check_losses
from softf1.recipe import check_recipe, read_recipe, with_values
from softf1.scaffold import propose_recipe
from softf1.scaffold.sections import SCRATCH
from softf1.training.datasets import read_parts
from softf1.training.dry_run import describe_cost, describe_run
from softf1.training.run import train_run
from tests.recipe.test_shipped_runs import ROOM
from tests.scaffold import files

KINDS = {
    "names": ("train.conll", files.tagged(), "tagging", "ce"),
    "parts of speech": ("train.pos", files.parts_of_speech(), "tagging", "ce+dice"),
    "headlines": ("news.csv", files.headlines(), "classification", "wce"),
    "two labels": ("spam.jsonl", files.spam(), "classification", "wce"),
    "several labels": ("topics.jsonl", files.topics(), "classification", "ce+dice"),
    "pairs": ("pairs.tsv", files.pairs(), "pairs", "wce"),
    "questions": ("squad.json", files.questions(), "qa", "ce+dice"),
    "BERT-MRC": ("mrc.json", files.queries(), "mrc_ner", "dsc"),
}
"""A file of each kind, its task, and the loss that auto chooses for it."""

UNTUNED = ("names", "questions", "BERT-MRC")
"""Kinds with no threshold or bias: a CRF decodes names, and all questions have an answer."""

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return name


@every_kind
def test_the_recipe_is_checked_described_and_trains(kind, here, bert):
    name, text, task, loss = KINDS[kind]
    made = propose_recipe([write(here, name, text)])
    assert (made.recipe.task.kind, made.recipe.loss.name) == (task, "auto")
    assert f"#   loss.name = {loss}, " in made.text
    assert " train.adversarial_relative = 0.5" in made.text
    write(here, "recipe.toml", made.text)
    assert read_recipe("recipe.toml") == made.recipe
    check_recipe(made.recipe, path="recipe.toml")

    small = {"encoder.name": SCRATCH.get(task, str(bert)), **ROOM.get(task, {})}
    recipe = with_values(made.recipe, {**small, "train.epochs": 1, "train.max_steps": 2})
    described = describe_run(recipe, here / "run").splitlines()
    assert described[0].startswith(f"auto: loss.name={loss}, ")  # as the comment says
    assert described[-1].startswith("would write")
    assert re.fullmatch(
        r"about \d+ (s|min) and [\d.]+ (MiB|GiB) of memory on \w+, on top of Python and torch",
        describe_cost(recipe, made.examples),
    )
    result = train_run(recipe, here / "run", quiet=True)
    assert result["steps"] >= 1
    assert result["loss"] == loss
    assert 0 <= result["scores"]["dev"][result["headline"]] <= 1
    assert ("tuned" in result) == (kind not in UNTUNED) == made.recipe.eval.tune


@every_kind
def test_tuning_is_proposed_where_the_task_has_something_to_tune(kind, here):
    name, text, *_ = KINDS[kind]
    made = propose_recipe([write(here, name, text)])
    tunes = kind not in UNTUNED
    assert ("tune = true" in made.text) == made.recipe.eval.tune == tunes
    losses = made.commands("recipe.toml")[1].partition("--losses ")[2].split()[0].split(",")
    assert ("auto+tuned" in losses) == tunes
    assert ("ce+tuned" in losses) == (kind not in ("questions", "BERT-MRC"))  # ce has no CRF
    assert check_losses(losses, made.recipe) == ("ce", *losses)


def test_tuning_is_not_proposed_for_a_span_classifier(here):
    made = propose_recipe([write(here, "train.conll", files.tagged())], task="span_ner")
    assert "[eval]" not in made.text
    assert "--losses auto,wce,dice,ce+dice" in made.commands("recipe.toml")[1]


def test_the_rarer_of_two_labels_is_positive(here):
    recipe = propose_recipe([write(here, "spam.jsonl", files.spam(400))]).recipe
    assert recipe.task.options["positive"] == "hate"  # the last in order would be none


def test_even_labels_are_said_and_get_no_weights(here):
    text = files.spam(40).replace("see you at 9 ", "").replace('"none"', '"hate"', 15)
    made = propose_recipe([write(here, "even.jsonl", text)])  # 20 of 40
    assert 'name = "auto"               # the labels are about even' in made.text
    assert "#   loss.name = ce, " in made.text
    assert "Why: the metric asks for no class weights" in made.text


def test_several_labels_are_seen(here):
    recipe = propose_recipe([write(here, "topics.jsonl", files.topics())]).recipe
    assert recipe.task.options["multi_label"] is True


def test_questions_without_answers_and_chinese_ones_are_seen(here):
    name = write(here, "squad2.json", files.questions(without=2))
    assert propose_recipe([name]).recipe.task.options["no_answer"] is True
    name = write(here, "cmrc.json", files.questions(chinese=True))
    recipe = propose_recipe([name]).recipe
    assert recipe.task.options["rules"] == "cmrc"
    assert recipe.encoder.name == "bert-base-chinese"


def test_a_tagged_file_for_bert_mrc_gets_a_query_for_each_label(here):
    made = propose_recipe([write(here, "train.conll", files.tagged())], task="mrc_ner")
    assert made.recipe.task.options["queries"].keys() == {"LOC", "PER"}
    check_recipe(made.recipe)


@pytest.mark.parametrize("task", ["span_ner", "mrc_ner"])
@pytest.mark.parametrize("before", ["O", "B-LOC"])
def test_tags_that_do_not_fit_their_scheme_are_repaired(task, before, here):
    odd = f"it {before}\nsaw O\nAda {before}\nMoss I-PER\n"
    paths = [
        write(here, "train.conll", files.tagged()),
        write(here, "dev.conll", f"{files.tagged()}\n{odd}"),
    ]
    made = propose_recipe(paths, task=task)
    assert made.recipe.task.options["repair"] is True
    assert "# dev.conll: 1 sentence has tags that BIO does not allow" in made.text
    assert len(read_parts(made.recipe)["dev"]) == (41 if task == "span_ner" else 82)
    wanted = (
        rf"dev.conll:\d+: wanted a tag that can follow '{before}' in BIO, got 'I-PER'; task.repair"
    )
    with pytest.raises(InputError, match=wanted):
        read_parts(with_values(made.recipe, {"task.repair": False}))
    valid = propose_recipe(paths[:1], task=task)
    assert "repair" not in valid.recipe.task.options
    assert "repair" not in propose_recipe(paths).recipe.task.options  # of a tagger


def test_encoder_follows_the_language_and_what_is_installed(here, monkeypatch):
    english = write(here, "spam.jsonl", files.spam())
    german = '{"text": "heute ist ein schöner Tag %d", "label": "%s"}\n'
    german = "".join(german % (n, "ja" if n % 9 else "nein") for n in range(40))
    german = write(here, "de.jsonl", german)
    assert propose_recipe([english]).recipe.encoder.name == "minilm"
    assert propose_recipe([german]).recipe.encoder.name == "textcnn"
    assert propose_recipe([english], encoder="textcnn").recipe.train.lr == 1e-3  # as it needs
    monkeypatch.setattr("softf1.scaffold.sections.find_spec", lambda _name: None)
    made = propose_recipe([english])
    assert made.recipe.encoder.name == "textcnn"
    assert "minilm is not installed (softf1[minilm])" in made.text


def test_comments_on_parts_of_speech_name_no_positives(here):
    text = "dogs NOUN\nbark VERB\n\ncats NOUN\nsleep VERB\nsoundly ADV\n\n" * 10
    made = propose_recipe([write(here, "pos.conll", text)]).text
    assert "# 50 words with 3 labels and no background: NOUN, the most frequent, has 40.0%" in made
    assert "all but" not in made
    assert "positives, counted" not in made


def test_comments_say_how_imbalanced_the_data_is(here):
    name = write(here, "spam.jsonl", files.spam(40))
    text = propose_recipe([name]).text
    assert "# 35 negatives (label none), 5 positives, counted in texts: 7 negatives per" in text
    assert "#   hate           5   12.50%  0%" in text  # 40 rows in batches of 32 have one always


def test_labels_of_dev_only_are_said(here):
    train = write(here, "train.conll", files.tagged())
    dev = write(here, "dev.conll", "the O\nExpo B-EVENT\n\nit O\nwas O\n")
    made = propose_recipe([dev, train])
    assert (made.recipe.task.train, made.recipe.task.dev) == (train, dev)
    assert "# dev.conll: EVENT is not in train.conll: scored, never predicted" in made.text


def test_texts_in_train_and_dev_and_a_very_long_one_are_said(here):
    text = files.tagged()
    train = write(here, "train.conll", f"{text}\n" + "the O\n" * 553)
    dev = write(here, "dev.conll", "\n\n".join(text.split("\n\n")[:3]) + "\n")
    made = propose_recipe([train, dev])
    notes = made.survey.notes
    assert any(note == "dev.conll: 3 of 3 texts are also in train.conll" for note in notes)
    assert any("has 553 words, 99% of the others at most" in note for note in notes)
    same = propose_recipe([train, write(here, "test.conll", (here / train).read_text())])
    assert any("is one file given twice?" in note for note in same.survey.notes)


def test_text_of_the_data_cannot_leave_a_comment(here):
    rows = [f'{{"text": "the text {n}", "label": "a\\n[x]\\r\\u2028b"}}' for n in range(20)]
    rows += ['{"text": "another one", "label": "c"}']
    made = propose_recipe([write(here, "odd.jsonl", "\n".join(rows) + "\n")])
    values = tomllib.loads(made.text)
    assert values.keys() == {"task", "encoder", "loss", "train", "eval"}
    assert values["task"]["positive"] == "c"


def test_many_labels_are_not_all_listed(here):
    rows = [f'{{"text": "it is {n}", "label": "l{n % 40:02d}"}}' for n in range(90)]
    text = propose_recipe([write(here, "many.jsonl", "\n".join(rows) + "\n")]).text
    assert "… 28 more …" in text
    assert "l00" in text
    assert "l39" in text
    assert "l20" not in text


def test_format_options_of_a_table_without_names_are_written(here):
    rows = [f"{int(n % 6 == 0)}\tis it so {n}?\tis it not {n}?" for n in range(30)]
    recipe = propose_recipe([write(here, "pairs.txt", "\n".join(rows) + "\n")]).recipe
    assert recipe.task.options["reader"] == {"label": 0, "first": 1, "second": 2, "header": False}
    recipe = propose_recipe(
        [write(here, "odd.csv", "kind,headline\na,it is\nb,it was\na,it will\n")],
        format="csv",
        task="classification",
        options={"label": "kind"},
    ).recipe
    assert recipe.task.options["reader"] == {"label": "kind"}


def test_files_that_do_not_belong_together_are_refused(here):
    train = write(here, "train.conll", files.tagged())
    dev = write(here, "dev.jsonl", files.spam())
    with pytest.raises(InputError, match=r"wanted files of one task, train\.conll is tagging"):
        propose_recipe([train, dev])


def test_one_label_is_refused(here):
    name = write(here, "one.jsonl", '{"text": "it is", "label": "a"}\n' * 3)
    with pytest.raises(InputError, match="wanted two labels or more, got a"):
        propose_recipe([name])


def test_reasons_stand_apart_from_long_values(here):
    folder = here / ("a-long-name-of-a-folder" * 2)
    folder.mkdir()
    path = write(here, f"{folder.name}/train.conll", files.tagged())
    lines = propose_recipe([path]).text.splitlines()
    assert f'train = "{path}" # 40 examples' in lines
    columns = {line.index("# ") for line in lines[lines.index("[task]") + 1 :][:3]}
    assert len(columns) == 1


def test_the_reason_is_what_is_uneven(here):
    rows = "".join(f"w{n} {'B-PER' if n % 20 else 'B-LOC'}\nx O\n\n" for n in range(60))
    made = propose_recipe([write(here, "names.conll", rows)])
    # 57 PER, 3 LOC and 60 O: one negative for a positive, 20 times as many O as LOC.
    assert "# the most frequent label occurs 20 times as often as the rarest" in made.text


def test_52_classes_scored_by_macro_f1_get_weights_and_la_in_the_comparison(here):
    """As the pages advise."""
    sizes = [30 if n < 4 else 2 for n in range(52)]
    rows = [f"l{n:02d},it is text {n} and {i}" for n, size in enumerate(sizes) for i in range(size)]
    made = propose_recipe([write(here, "many.csv", "\n".join(["label,text", *rows]) + "\n")])
    assert "#   loss.name = wce, " in made.text
    assert "Why: macro F1 counts rare classes like frequent ones" in made.text
    (_, compare, _) = made.commands("recipe.toml")
    losses = compare.partition("--losses ")[2].split()[0].split(",")
    assert {"auto", "wce", "la"} <= set(losses)


def test_two_labels_are_compared_without_la(here):
    """F1 of the rare one of two is no average over classes."""
    made = propose_recipe([write(here, "spam.jsonl", files.spam())])
    assert ",la," not in made.commands("recipe.toml")[1]
