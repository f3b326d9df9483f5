import pytest

from softf1.errors import InputError
from softf1.tasks import load_task, make_task

WRONG = [
    ("tagging", {"unit": "letters"}, "unit of task tagging: wanted word or character or joint"),
    ("tagging", {"max_length": "64"}, "max_length of .* wanted a whole number, got '64'"),
    ("tagging", {"max_length": True}, "wanted a whole number, got True"),
    ("tagging", {"scheme": "BOI"}, "wanted BIO, .*, got BOI"),
    ("tagging", {"reader": "x"}, "reader of task tagging: wanted a table, got 'x'"),
    (
        "classification",
        {"multi_label": "yes"},
        "multi_label of .*: wanted true or false",
    ),
    ("classification", {"metric": "auc"}, "wanted f1 or macro_f1 or accuracy or subset_accuracy"),
    ("classification", {"metric": "subset_accuracy"}, "wanted accuracy here"),
    ("classification", {"metric": "accuracy", "multi_label": True}, "wanted subset_accuracy here"),
    ("qa", {"positions": "both"}, "wanted softmax or sigmoid, got 'both'"),
    ("qa", {"several": True}, 'wanted positions = "sigmoid" with it'),
    ("qa", {"rules": "bleu"}, "wanted squad or squad2 or quoref or cmrc, got 'bleu'"),
    ("mrc_ner", {"match": "dot"}, "wanted none or concat or biaffine, got 'dot'"),
    ("mrc_ner", {"candidates": "some"}, "wanted all or gold or gold_random, got 'some'"),
    ("tagging", {"overlap": -1}, "overlap of task tagging: wanted a number from 0, got -1"),
    ("qa", {"n_best": 0}, "n_best of task qa: wanted a number from 1, got 0"),
    ("qa", {"max_answer": -1}, "max_answer of task qa: wanted a number from 1, got -1"),
    ("mrc_ner", {"max_span": 0}, "max_span of task mrc_ner: wanted a number from 1, got 0"),
    ("mrc_ner", {"seed": -1}, "seed of task mrc_ner: wanted a number from 0, got -1"),
    ("taging", {}, "did you mean tagging"),
    ("tagging", {"unitt": "word"}, "did you mean unit"),
]


@pytest.mark.parametrize(("kind", "options", "message"), WRONG)
def test_a_wrong_option_is_said_at_once(kind, options, message):
    with pytest.raises(InputError, match=message):
        make_task(kind, **options)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '"x"', '{"kind": "tagging", "unit": 3}'])
def test_a_broken_model_folder_is_said_in_one_line(tmp_path, text):
    (tmp_path / "softf1.json").write_text(text)
    with pytest.raises(InputError, match="wanted"):
        load_task(tmp_path)


def test_a_label_that_is_a_number_in_a_damaged_folder_is_said():
    with pytest.raises(InputError, match=r"wanted texts as labels of task tagging, got 1\.5"):
        make_task("tagging", labels=["O", 1.5])


def test_labels_that_are_no_tags_of_the_saved_scheme_are_said():
    with pytest.raises(InputError, match=r"labels of task tagging: wanted O or a tag of BIO"):
        make_task("tagging", labels=["O", "odd"], spans="BIO")


def test_a_saved_scheme_that_nobody_knows_is_refused():
    with pytest.raises(InputError, match=r"unknown tag scheme 'BIO\['.*known: BIO, "):
        make_task("tagging", labels=["O", "B-PER"], spans="BIO[")
