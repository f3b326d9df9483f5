"""The classifier of texts is a scikit-learn estimator: its checks, its tools, its habits."""

import importlib.util
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks, get_tags

from softf1.data import TextExample
from softf1.integrations.sklearn import (
    SoftF1Classifier,
    choose_encoder,
    make_example,
    split_dev,
)
from tests.models.families import write_encoder

GOOD = ["a fine day", "a fine meal", "so fine", "all was fine", "fine food here", "a fine room"]
BAD = ["an awful day", "awful food", "so awful", "all was awful", "awful rooms", "an awful bed"]
DULL = ["a plain day", "plain food", "so plain", "all was plain", "plain rooms", "a plain bed"]
TEXTS, LABELS = GOOD + BAD, ["good"] * 6 + ["bad"] * 6
QUICK = {"encoder": "textcnn", "epochs": 8, "random_state": 0, "lr": 3e-3}


@pytest.fixture(scope="module")
def fitted():
    return SoftF1Classifier(**QUICK).fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_valid_tag_types,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_mixin_order,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
    ],
    ids=lambda check: check.__name__,
)
def test_checks_that_need_no_numbers(check):
    check("SoftF1Classifier", SoftF1Classifier())


@pytest.mark.filterwarnings("ignore:Can't test estimator:sklearn.exceptions.SkipTestWarning")
def test_the_tags_say_that_the_input_is_texts():
    tags = get_tags(SoftF1Classifier())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert is_classifier(SoftF1Classifier())
    results = estimator_checks.check_estimator(SoftF1Classifier())
    assert {result["status"] for result in results} == {"passed"}


def test_fit_learns_and_returns_itself(fitted):
    assert fitted.score(TEXTS, LABELS) == 1.0
    assert fitted.classes_.tolist() == ["bad", "good"]
    np.testing.assert_array_equal(fitted.predict(["fine", "awful"]), ["good", "bad"])


def test_probabilities_are_in_the_order_of_the_classes(fitted):
    probabilities = fitted.predict_proba(["fine", "awful", "what"])
    assert probabilities.shape == (3, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    assert probabilities[0, 1] > 0.5 > probabilities[1, 1]
    assert fitted.predict_proba([]).shape == (0, 2)


def test_fit_changes_no_parameter(fitted):
    assert fitted.get_params() == SoftF1Classifier(**QUICK).get_params()


def test_the_same_seed_gives_the_same_model(fitted):
    again = clone(fitted).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    refitted = again.fit(TEXTS, LABELS)  # nothing is left of the first time
    np.testing.assert_array_equal(refitted.predict_proba(TEXTS), fitted.predict_proba(TEXTS))


def test_refit_forgets_old_labels():
    model = SoftF1Classifier(encoder="textcnn", epochs=1).fit(TEXTS, LABELS)
    model.fit(GOOD + DULL, [3] * 6 + [1] * 6)
    assert model.classes_.tolist() == [1, 3]
    assert model.predict(GOOD).dtype == np.int64


def test_rows_do_not_depend_on_each_other(fitted):
    order = np.random.default_rng(0).permutation(len(TEXTS))
    whole = fitted.predict_proba(TEXTS)
    mixed = fitted.predict_proba([TEXTS[i] for i in order])
    np.testing.assert_allclose(mixed, whole[order], atol=1e-6)
    single = np.concatenate([fitted.predict_proba([text]) for text in TEXTS])
    np.testing.assert_allclose(single, whole, atol=1e-6)


def test_pickled_it_is_the_same(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    assert again.get_params() == fitted.get_params()


@pytest.mark.parametrize("hold", [np.array, pd.Series, tuple, lambda x: np.array(x, dtype=object)])
def test_whatever_holds_the_texts(fitted, hold):
    np.testing.assert_array_equal(fitted.predict(hold(TEXTS)), fitted.predict(TEXTS))


def test_labels_of_a_series_and_bools():
    model = SoftF1Classifier(**QUICK).fit(
        pd.Series(TEXTS), pd.Series([x == "good" for x in LABELS])
    )
    assert model.classes_.tolist() == [False, True]
    assert model.predict(["fine", "awful"]).tolist() == [True, False]


def test_it_works_in_a_pipeline():
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    model = Pipeline([("lower", lower), ("classify", SoftF1Classifier(**QUICK))])
    model.fit([text.upper() for text in TEXTS], LABELS)
    assert model.predict(["FINE", "AWFUL"]).tolist() == ["good", "bad"]


def test_it_works_in_a_grid_search():
    search = GridSearchCV(
        SoftF1Classifier(**QUICK),
        {"loss": ["ce", "ce+dice"], "weights": ["balanced"]},
        scoring="f1_macro",
        cv=2,
        error_score="raise",
    )
    search.fit(np.array(TEXTS), np.array(LABELS))
    assert set(search.cv_results_["param_loss"]) == {"ce", "ce+dice"}
    assert search.best_score_ > 0.6
    assert search.predict(["fine"]).tolist() == ["good"]


def test_numbers_of_numpy_are_searched_like_those_of_python():
    grid = {
        "epochs": np.array([1]),
        "batch_size": np.array([2, 4]),
        "lr": np.array([0.01], np.float32),
        "tune": np.array([True]),
        "max_length": np.array([30]),
        "train_options": [{"clip": np.float32(0.5)}],
    }
    search = GridSearchCV(SoftF1Classifier(**QUICK), grid, cv=2, error_score="raise")
    search.fit(np.array(TEXTS), np.array(LABELS))
    assert list(search.cv_results_["param_batch_size"]) == [2, 4]


def test_its_threshold_can_be_tuned():
    model = TunedThresholdClassifierCV(SoftF1Classifier(**QUICK), scoring="accuracy", cv=2)
    model.fit(np.array(TEXTS), np.array(LABELS))
    reached = model.predict_proba(TEXTS)[:, 1] >= model.best_threshold_
    np.testing.assert_array_equal(model.predict(TEXTS), np.where(reached, "good", "bad"))
    assert model.best_score_ > 0.6


@pytest.mark.parametrize(
    ("names", "positive"),
    [
        (("a rare one", "frequent"), "a rare one"),
        (("rare", "frequent"), "rare"),
        ((0, 1), "1"),
        ((1, 0), "1"),
        ((True, False), "True"),
        ((1.0, 0.0), "1.0"),
        ((0.0, 1.0), "1.0"),
    ],
    ids=str,
)
def test_the_positive_class_is_the_rarer_one_or_the_one_named_1(names, positive):
    labels = [names[0]] * 4 + [names[1]] * 8
    fitted = SoftF1Classifier(**{**QUICK, "epochs": 1}).fit(TEXTS, labels)
    assert fitted.loaded_.task.positive_label == positive
    assert fitted.result_["headline"] == "f1"
    assert set(fitted.predict(TEXTS)) <= set(names)


@pytest.mark.parametrize(
    ("names", "given", "positive"),
    [(("rare", "often"), "often", "often"), ((1, 0), 0, "0"), ((1.0, 0.0), 0, "0.0")],
    ids=str,
)
def test_the_positive_class_can_be_given(names, given, positive):
    labels = [names[0]] * 4 + [names[1]] * 8
    fitted = SoftF1Classifier(**{**QUICK, "epochs": 1}, pos_label=given).fit(TEXTS, labels)
    assert fitted.loaded_.task.positive_label == positive
    assert fitted.result_["headline"] == "f1"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b"] * 6, "wanted pos_label among ['a', 'b'], got 'c'"),
        (["a", "b", "c"] * 4, "pos_label is for two classes, got 3"),
        (
            np.eye(2, dtype=int)[[0, 1] * 6],
            "pos_label is for two classes, got several labels a text",
        ),
    ],
    ids=["unknown", "three", "several labels a text"],
)
def test_a_positive_class_that_cannot_be_is_an_error(labels, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SoftF1Classifier(**QUICK, pos_label="c").fit(TEXTS, labels)


def test_the_positive_class_is_the_rarer_one_of_all_texts():
    """Without the part put aside, 26 are left of each."""
    texts = [f"text {number}" for number in range(61)]
    labels = ["cat"] * 31 + ["dog"] * 30
    fitted = SoftF1Classifier(**{**QUICK, "epochs": 1, "dev_share": 0.15}).fit(texts, labels)
    assert fitted.result_["class_counts"]["labels"] == {"cat": 26, "dog": 26}
    assert fitted.loaded_.task.positive_label == "dog"


def test_decisions_tuned_on_the_part_put_aside():
    model = SoftF1Classifier(**QUICK, tune=True, dev_share=0.4)
    model.fit(TEXTS + DULL, [*LABELS, *["dull"] * 6])
    assert set(model.predict(TEXTS + DULL)) == {"good", "bad", "dull"}
    assert "tuned" in model.result_


def test_several_labels_each():
    matrix = np.array([["fine" in text, "day" in text or "food" in text] for text in TEXTS], int)
    model = SoftF1Classifier(**(QUICK | {"epochs": 30}), loss="dice", dev_share=0.2)
    model.fit(TEXTS, matrix)
    predicted = model.predict(TEXTS)
    assert predicted.shape == matrix.shape
    assert (predicted == matrix).mean() > 0.8
    assert model.predict_proba(TEXTS).max() <= 1
    assert model.classes_.tolist() == [0, 1]


def test_pairs_in_two_columns():
    pairs = [(a, b) for a in ("fine", "awful") for b in ("fine", "awful")] * 4
    same = [int(a == "fine") for a, _ in pairs]
    frame = pd.DataFrame(pairs, columns=["first", "second"])
    model = SoftF1Classifier(**QUICK).fit(frame, same)
    np.testing.assert_array_equal(model.predict(frame.to_numpy()), same)
    with pytest.raises(ValueError, match="wanted pairs"):
        model.predict(["fine"])


def test_the_part_put_aside_has_all_frequent_classes_and_leaves_some_of_each():
    labels = ["a"] * 40 + ["b"] * 20 + ["c"]
    texts = [TextExample(f"text {n}", (label,), n) for n, label in enumerate(labels)]
    parts = split_dev(texts, labels, share=0.25, seed=0)
    count = {name: [one.labels[0] for one in part] for name, part in parts.items()}
    assert [count["dev"].count(x) for x in "abc"] == [10, 5, 0]
    assert [count["train"].count(x) for x in "abc"] == [30, 15, 1]
    assert split_dev(["x", "y"], ["a", "b"], share=0.1, seed=0) == {
        "train": ["x", "y"],
        "dev": ["x", "y"],
    }


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ([[0.5, 1.0], [1.0, 0.5]], [0, 1], r"wanted texts, or two columns of them, got \[0.5"),
        ([1.0, 2.0], [0, 1], "got 1.0"),
        ("one text", [0, 1], "got one text"),
        (None, [0, 1], "wanted a list of texts, got None"),
        (["fine", None], [0, 1], "wanted texts, got None in row 1"),
        (["fine", float("nan")], [0, 1], "wanted texts, got nan in row 1"),
        (pd.Series(["fine", pd.NA], dtype=object), [0, 1], "wanted texts, got <NA> in row 1"),
        (["fine", 7], [0, 1], "wanted texts, or two columns of them, got 7 in row 1"),
        (["fine", ("a", "b")], [0, 1], r"two columns of them, got \('a', 'b'\) in row 1"),
        ([], [], "wanted texts with their labels, got none"),
        (["fine", "awful"], ["a", float("nan")], "wanted a label for each text, got nan in row 1"),
        (["fine", "awful"], ["a", pd.NA], "wanted a label for each text, got <NA> in row 1"),
        (["fine", "awful"], [0, None], "wanted a label for each text, got None in row 1"),
        (pd.DataFrame({"body": TEXTS}), LABELS, r"one column: give the column .* X\['body'\]"),
        (np.array(TEXTS)[:, None], LABELS, "got a table of one column"),
        (TEXTS, LABELS[1:], "inconsistent numbers of samples"),
        (TEXTS, ["good"] * 12, "one class"),
        (TEXTS, np.linspace(0, 1, 12), "continuous"),
        (TEXTS, None, "requires y to be passed, but the target is None"),
    ],
)
def test_what_is_wrong_is_told(texts, labels, message):
    with pytest.raises(ValueError, match=message):
        SoftF1Classifier().fit(texts, labels)


def test_bad_parameters_are_told_in_fit():
    with pytest.raises(ValueError, match="dise"):
        SoftF1Classifier(encoder="textcnn", loss="dise").fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_options": {"clipp": 1.0}}, r"train.clipp: unknown key \(did you mean clip\?\)"),
        ({"encoder_options": {"drop": 0.1}}, "drop"),
        ({"encoder_options": {"name": "bilstm"}}, "set 'name' by the parameter encoder"),
        ({"encoder_options": {"lora": {"rank": 8}}}, "set 'lora' by the parameter lora"),
        ({"lora": 8}, "encoder.lora: wanted a pretrained encoder, got textcnn"),
        ({"encoder_options": {"gradient_checkpointing": True}}, "wanted a pretrained encoder"),
        ({"lora": 0}, "encoder.lora.rank: wanted a number from 1, got 0"),
        ({"lora": {"rnk": 8}}, "rnk"),
    ],
)
def test_a_bad_option_is_named_in_fit(options, message):
    with pytest.raises(ValueError, match=message):
        SoftF1Classifier(encoder="textcnn", **options).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_encoder("roberta", tmp_path_factory.mktemp("roberta"))


def test_lora_moves_the_linear_layers_alone_and_is_merged(tiny):
    pytest.importorskip("peft", reason="LoRA wants the package peft")
    how = {"encoder": str(tiny), "epochs": 2, "random_state": 0, "lr": 0.05}
    more = {"encoder_options": {"gradient_checkpointing": True}}
    model = SoftF1Classifier(**how, **more, lora={"rank": 4, "dropout": 0.1}).fit(TEXTS, LABELS)
    trained = model.result_["recipe"]["encoder"]
    assert (trained["lora"]["rank"], trained["lora"]["dropout"]) == (4, 0.1)
    assert trained["gradient_checkpointing"] is True
    found = model.loaded_.model.state_dict()
    assert not any("lora" in name for name in found)
    before = load_file(tiny / "model.safetensors")
    moved = {
        name
        for name, value in before.items()
        if not torch.equal(value, found.get(f"roberta.{name}", value))
    }
    linear = {n for n, value in before.items() if value.ndim == 2 and "embed" not in n}
    assert moved == {name for name in linear if f"roberta.{name}" in found}
    assert moved
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(TEXTS), model.predict_proba(TEXTS))


def test_the_rank_of_lora_can_be_searched(tiny):
    pytest.importorskip("peft", reason="LoRA wants the package peft")
    quick = SoftF1Classifier(encoder=str(tiny), epochs=1, random_state=0)
    search = GridSearchCV(quick, {"lora": [None, 2]}, cv=2, error_score="raise")
    search.fit(np.array(TEXTS), np.array(LABELS))
    assert list(search.cv_results_["param_lora"]) == [None, 2]


def test_lora_has_ten_times_the_learning_rate():
    model = SoftF1Classifier(encoder="other", lora=8)
    model.classes_, model.encoder_, model.multi_label_ = np.array([0, 1]), "other", False
    recipe = model._recipe("classification", 0)
    assert recipe.train.lr == pytest.approx(3e-4)
    assert recipe.encoder.lora.rank == 8


def test_without_peft_fit_says_how_to_install_it(tiny, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "peft" else find(name, *a)
    )
    with pytest.raises(ValueError, match=r"the package peft: pip install"):
        SoftF1Classifier(encoder=str(tiny), lora=8).fit(TEXTS, LABELS)


def test_it_must_be_fitted():
    with pytest.raises(NotFittedError):
        SoftF1Classifier().predict(TEXTS)
    with pytest.raises(NotFittedError):
        SoftF1Classifier().predict_proba(TEXTS)


def test_verbose_shows_a_line_for_each_evaluation(capsys):
    SoftF1Classifier(**(QUICK | {"epochs": 2}), verbose=True).fit(TEXTS, LABELS)
    shown = capsys.readouterr().err
    assert shown.count(" · dev f1 ") == 2
    SoftF1Classifier(**(QUICK | {"epochs": 1})).fit(TEXTS, LABELS)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("encoder", "wanted"), [("textcnn", (30, 1e-3)), ("minilm", (5, 1e-4)), ("other", (5, 3e-5))]
)
def test_the_defaults_follow_the_encoder(encoder, wanted):
    model = SoftF1Classifier(encoder=encoder)
    model.classes_, model.encoder_, model.multi_label_ = np.array([0, 1]), encoder, False
    train = model._recipe("classification", 0).train
    assert (train.epochs, train.lr) == wanted


@pytest.mark.parametrize(
    ("installed", "texts", "wanted", "why"),
    [
        (True, ["what is it that you have in the box", "it was an awful day"], "minilm", "English"),
        (True, ["der Zug kam spät an", "wir mussten warten"], "textcnn", "do not look English"),
        (True, [("is it in the box", "it was not in it")], "minilm", "English"),
        (False, ["what is it that you have in the box"], "textcnn", "not installed"),
    ],
)
def test_auto_takes_minilm_where_it_is_installed_and_can_read_the_texts(
    monkeypatch, caplog, installed, texts, wanted, why
):
    monkeypatch.setattr("softf1.integrations.sklearn.is_at_hand", lambda name: installed)  # noqa: ARG005
    examples = [make_example(text, ("a",)) for text in texts]
    with caplog.at_level("INFO", logger="softf1.integrations.sklearn"):
        assert choose_encoder(examples) == wanted
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert caplog.messages[0].startswith(f"encoder {wanted}: ")
    assert why in caplog.messages[0]


def test_the_default_encoder_is_chosen_in_fit_and_stays_a_parameter(monkeypatch):
    monkeypatch.setattr("softf1.integrations.sklearn.is_at_hand", lambda name: False)  # noqa: ARG005
    model = SoftF1Classifier(epochs=1, random_state=0).fit(TEXTS, LABELS)
    assert model.encoder_ == model.result_["recipe"]["encoder"]["name"] == "textcnn"
    assert model.get_params()["encoder"] == clone(model).encoder == "auto"


def test_adversarial_steps_and_consistency_are_options():
    texts = ["fine day", "fine meal", "fine", "awful day", "awful food", "awful"] * 2
    labels = ["good"] * 3 + ["bad"] * 3
    how = QUICK | {"epochs": 2}
    plain = SoftF1Classifier(**how).fit(texts, labels * 2)
    hard = SoftF1Classifier(**how, adversarial=0.5, consistency=1.0).fit(texts, labels * 2)
    train = hard.result_["recipe"]["train"]
    assert (train["adversarial_relative"], train["consistency"]) == (0.5, 1.0)
    assert (plain.predict_proba(texts) != hard.predict_proba(texts)).any()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"loss": "auto"}, (None, 0.5, 1.0)),
        ({"loss": "auto", "adversarial": 0.0}, (None, 0.0, 1.0)),
        ({"loss": "auto", "adversarial": 0.2, "consistency": 0}, (None, 0.2, 0.0)),
        ({"loss": "auto", "train_options": {"adversarial": 0.3}}, (0.3, None, 1.0)),
        ({}, (None, None, None)),
        ({"adversarial": 0.5}, (None, 0.5, None)),
    ],
    ids=str,
)
def test_auto_chooses_what_is_not_set(given, wanted):
    """No class is rare here, for which auto has an adversarial step and consistency."""
    model = SoftF1Classifier(**QUICK | {"epochs": 0.1, **given}).fit(TEXTS, LABELS)
    train = model.result_["recipe"]["train"]
    keys = ("adversarial", "adversarial_relative", "consistency")
    assert tuple(train.get(key) for key in keys) == wanted
