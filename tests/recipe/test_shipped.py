"""The shipped recipes: all datasets of the paper, each with its command, figure and files."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

import softf1
from softf1.errors import InputError
from softf1.recipe import check_recipe, format_recipe, read_recipe
from softf1.recipe.loading import list_recipes, read_header, recipe_folder
from softf1.tasks import make_task

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("SOFTF1_SHARED", ROOT.parent / "shared"))
FIGURES = {  # the paper's best row for the recipe's model, or what its source says
    "conll03": "F1 93.33",
    "conll03-tagger": "F1 92.8",
    "ctb5": "F1 97.92",
    "ctb6": "F1 96.57",
    "mrpc": "F1 88.92",
    "msra": "F1 96.72",
    "msra-tagger": "F1 94.80",
    "news20": "macro F1 0.75",
    "ontonotes4": "F1 84.47",
    "ontonotes4-tagger": "F1 79.16",
    "ontonotes5": "F1 92.07",
    "ontonotes5-tagger": "F1 89.16",
    "qqp": "F1 91.57",
    "quoref": "F1 67.52",
    "squad1.1": "F1 91.97",
    "squad2.0": "F1 82.95",
    "sst2": "accuracy 94.9",
    "sst5": "accuracy 55.57",
    "tnews": "no figure",
    "tnews-textcnn": "no figure",
    "tversky-ontonotes4": "F1 84.67",
    "tversky-quoref": "F1 68.44",
    "tweets": "F1 92.58",
    "ud1.4": "F1 96.98",
    "wsj": "F1 99.38",
}
every_recipe = pytest.mark.parametrize("name", list_recipes())


def comments(name):
    """The header of a recipe, down to its first section."""
    return list_recipes()[name].read_text("utf-8").partition("\n[")[0]


def test_every_dataset_has_a_recipe():
    assert set(list_recipes()) == set(FIGURES)
    assert recipe_folder() == ROOT / "recipes"


@every_recipe
def test_options_are_right_and_nothing_is_lost_in_writing(name, tmp_path):
    recipe = read_recipe(name)
    assert recipe.name == name
    check_recipe(recipe, path=name)
    (tmp_path / "again.toml").write_text(format_recipe(recipe), "utf-8")
    assert read_recipe(tmp_path / "again.toml") == recipe


@every_recipe
def test_header_has_command_figure_and_files(name):
    header, recipe = read_header(list_recipes()[name]), read_recipe(name)
    verb = "sweep" if name.startswith("tversky") else "train"
    assert header.run.startswith(f"softf1 {verb} {name}")
    assert header.run.split()[2] == name
    assert header.title
    assert re.match(rf"{re.escape(FIGURES[name])}\b", header.paper)
    for path in filter(None, (recipe.task.train, recipe.task.dev, recipe.task.test)):
        assert Path(path).parts[0] == "data"
        assert Path(path).name in comments(name)


@every_recipe
def test_dice_of_the_paper_is_over_the_batch(name):
    loss = read_recipe(name).loss
    if loss.name == "ce":
        return
    assert loss.options["over"] == "batch"
    assert loss.options["squared"] is True
    if loss.name == "dsc":
        assert (loss.options["alpha"], loss.options["decay"]) == (0.01, "paper")
    else:
        assert loss.options["alpha"] + loss.options["beta"] == 1


@every_recipe
def test_commands_in_comments_are_right(name):
    """What a header proposes to type is a recipe that passes."""
    commands = re.findall(r"^# +softf1 train (\S+)((?: \S+=\S+)+)", comments(name), re.MULTILINE)
    for shown, words in commands:
        assert shown == name
        check_recipe(read_recipe(name, words.split()))


@pytest.mark.skipif(not (SHARED / "seeds").is_dir(), reason="the paper's text is not here")
@every_recipe
def test_figures_stand_in_the_sources(name):
    text = "".join(path.read_text("utf-8") for path in (SHARED / "seeds").glob("*.txt"))
    block = re.search(r"# Paper: (.*?)# Files:", comments(name), re.DOTALL)[1]
    block = re.sub(r"repository says \d+\.\d+", "", block)  # not the paper's
    figures = re.findall(r"\b\d{2}\.\d+\b|\b0\.\d{2}\b", block)
    assert figures or "no figure" in block
    assert all(figure in text for figure in figures)


def test_a_name_that_is_nearly_right():
    with pytest.raises(InputError, match=r"got 'conll3' \(did you mean conll03\?\); known: conll0"):
        read_recipe("conll3")


def test_a_file_goes_before_a_name_and_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mrpc").mkdir()  # such as a run of that name
    assert read_recipe("mrpc").name == "mrpc"
    (tmp_path / "msra").write_text((ROOT / "recipes/mrpc.toml").read_text("utf-8"), "utf-8")
    assert read_recipe("msra").task.kind == "pairs"


def test_an_installed_package_has_them_inside(tmp_path, monkeypatch):
    inside = tmp_path / "softf1/recipes"
    inside.mkdir(parents=True)
    (inside / "only.toml").touch()
    monkeypatch.setattr(softf1, "__file__", str(tmp_path / "softf1/__init__.py"))
    assert list(list_recipes()) == ["only"]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"recipes": "softf1/recipes"}


COLUMNS = "{} NN I-NP {}\n"
OPENING = "-DOCSTART- -X- O O\n\n"


def conll(tags):
    """Words in the four columns of CoNLL-2003."""
    return OPENING + "".join(COLUMNS.format(f"w{i}", tag) for i, tag in enumerate(tags)) + "\n"


def conll2012():
    rows = [("Ann", "(PERSON"), ("Lee", "*)"), ("slept", "*")]
    lines = [f"a/b 0 {i} {w} NN * - - - - {tag} -" for i, (w, tag) in enumerate(rows)]
    return "#begin document (a/b); part 000\n" + "\n".join(lines) + "\n\n#end document\n"


def conllu():
    rows = [("1", "我们", "PRON"), ("2", "走", "VERB")]
    lines = [f"{i}\t{w}\t_\t{tag}\t_\t_\t0\troot\t_\t_" for i, w, tag in rows]
    return "\n".join(lines) + "\n\n"


def squad(several=False):
    context = "Ann and Bo went home."
    spans = ["Ann", "Bo"] if several else ["Ann"]
    answers = [{"text": text, "answer_start": context.index(text)} for text in spans]
    questions = [{"id": "1", "question": "Who went?", "answers": answers}]
    paragraphs = [{"context": context, "qas": questions}]
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})


MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tIt rains .\tRain falls .\n"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhy?\tWhy so?\t1\n"
BMES = "张 B-PER\n三 E-PER\n在 O\n京 S-GPE\n\n"
TNEWS = {"label": "100", "label_desc": "news_story", "sentence": "小猫回家", "keywords": ""}
# What each recipe's file looks like, and what must come out of it.
FILES = {
    "conll03": (conll(["I-PER", "I-PER", "O", "B-LOC", "B-LOC"]), 4),
    "conll03-tagger": (conll(["I-PER", "B-PER", "O", "I-LOC"]), 1),
    "ctb5": ("我们_PN 走_VV\n", 1),
    "ctb6": ("我们_PN 走_VV\n", 1),
    "mrpc": (MRPC, 1),
    "msra": ("张\tB-PER\n三\tI-PER\n在\tO\n\n", 3),
    "msra-tagger": ("张\tB-PER\n三\tI-PER\n在\tO\n\n", 1),
    "news20": ("Sports\t我们赢了\nLaw\t新的法律\n", 2),
    "ontonotes4": (BMES, 4),
    "ontonotes4-tagger": (BMES, 1),
    "ontonotes5": (conll2012(), 18),
    "ontonotes5-tagger": (conll2012(), 1),
    "qqp": (QQP, 1),
    "quoref": (squad(several=True), 1),
    "squad1.1": (squad(), 1),
    "squad2.0": (squad(), 1),
    "sst2": ("1 it was good .\n0 it was not .\n", 2),
    "sst5": ("4 it was very good .\n0 it was not .\n", 2),
    "tnews": (json.dumps(TNEWS, ensure_ascii=False) + "\n", 1),
    "tnews-textcnn": (json.dumps(TNEWS, ensure_ascii=False) + "\n", 1),
    "tversky-ontonotes4": (BMES, 4),
    "tversky-quoref": (squad(several=True), 1),
    "tweets": ("so\tRB\ngood\tJJ\n\n@you\tUSR\n", 2),
    "ud1.4": (conllu(), 1),
    "wsj": ("1/2/CD and/CC so/RB on/RB\n", 1),
}
READ = {
    "conll03": lambda examples: [e.spans for e in examples if e.label == "PER"] == [((0, 2),)],
    "conll03-tagger": lambda examples: examples[0].tags == ("I-PER", "B-PER", "O", "I-LOC"),
    "mrpc": lambda examples: examples[0].label == "1",
    "msra": lambda examples: [e.spans for e in examples if e.label == "PER"] == [((0, 2),)],
    "news20": lambda examples: examples[1].labels == ("Law",),
    "ontonotes4": lambda examples: [e.spans for e in examples if e.label == "GPE"] == [((3, 4),)],
    "ontonotes5": lambda examples: [e.spans for e in examples if e.spans] == [((0, 2),)],
    "qqp": lambda examples: examples[0].label == "1",
    "tnews": lambda examples: examples[0].labels == ("news_story",),
    "wsj": lambda examples: examples[0].words[0] == "1/2",
}


@every_recipe
def test_files_of_the_named_format_are_read(name, tmp_path):
    recipe = read_recipe(name)
    content, count = FILES[name]
    path = tmp_path / Path(recipe.task.train).name
    path.write_text(content, "utf-8")
    task = make_task(recipe.task.kind, **recipe.task.options)
    examples = list(task.read(path))
    assert len(examples) == count
    assert READ.get(name, bool)(examples)


PUBLISHED = {
    "conll03": {"conll2003_en/eng.train": 4 * 14041},
    "conll03-tagger": {"conll2003_en/eng.testb": 3453},
    "msra": {"msra_ner/msra_test_bio": 3 * 3442},
    "msra-tagger": {"msra_ner/msra_test_bio": 3442},
    "ud1.4": {"ud_zh_1.4/zh-ud-train.conllu": 3997},
    "tweets": {"ritter_twitter_pos/pos.txt": 787},
    "squad1.1": {"squad_dev/dev-v1.1.rebuilt.json": 10570},
    "squad2.0": {"squad_dev/dev-v2.0.rebuilt.json": 11873},
    "quoref": {"quoref_dev/quoref-dev-v0.1.json": 2418},
    "mrpc": {"mrpc/train.tsv": 3668, "mrpc/dev.tsv": 408, "mrpc/msr_paraphrase_test.txt": 1725},
    "sst2": {"sst2_sentence/stsa.binary.train": 6920},
    "sst5": {"sst5/stsa.fine.test": 2210},
    "tnews": {"tnews/train.json": 53360},
}


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the corpora are not here")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_read_whole(name):
    recipe = read_recipe(name)
    task = make_task(recipe.task.kind, **recipe.task.options)
    for file, count in PUBLISHED[name].items():
        assert sum(1 for _ in task.read(SHARED / "data" / file)) == count


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("conll03-tagger", ["B-PER", "B-PER", "O", "B-LOC"]),  # of IOB1
        ("ontonotes4-tagger", ["B-PER", "I-PER", "O", "B-GPE"]),  # of BMES
        ("ontonotes5-tagger", ["B-PERSON", "I-PERSON", "O"]),  # of brackets
        ("ctb5", ["B-PN", "E-PN", "S-VV"]),
        ("ud1.4", ["B-PRON", "E-PRON", "S-VERB"]),
        ("tweets", ["RB", "JJ"]),
    ],
)
def test_tags_become_those_that_are_learned(name, tags, tmp_path):
    recipe = read_recipe(name)
    path = tmp_path / "train"
    path.write_text(FILES[name][0], "utf-8")
    task = make_task(recipe.task.kind, **recipe.task.options)
    assert list(task.units(next(iter(task.read(path))))[1]) == tags
