"""Class weights in one call, from rows and from datasets."""

import datasets
import numpy as np
import pytest
import torch

from softf1.integrations.transformers import class_weights_from, weights
from softf1.losses import class_weights

TAGS = [[-100, 0, 0, 1], [0, 2, -100], [0, 0, 0]]  # 6 of 0, 1 of 1, 1 of 2


@pytest.mark.parametrize("scheme", ["balanced", "inverse", "log", "effective"])
def test_tags_of_every_source(scheme):
    wanted = class_weights([6, 1, 1], scheme)
    rows = [{"labels": tags} for tags in TAGS]
    for dataset in (
        rows,
        iter(rows),
        [{"labels": np.array(tags)} for tags in TAGS],
        [{"labels": torch.tensor(tags)} for tags in TAGS],
        datasets.Dataset.from_list(rows),
        datasets.Dataset.from_list(rows).with_format("torch"),
        datasets.Dataset.from_list([{"other": "x", **row} for row in rows]).to_iterable_dataset(),
    ):
        torch.testing.assert_close(class_weights_from(dataset, scheme=scheme), wanted)


def test_selected_rows_only():
    rows = datasets.Dataset.from_list([{"label": number % 2} for number in range(10)])
    chosen = rows.select([0, 2, 4, 1])
    torch.testing.assert_close(class_weights_from(chosen, column="label"), class_weights([3, 1]))


def test_names_of_the_dataset_count_classes_that_do_not_occur():
    label = datasets.ClassLabel(names=["no", "maybe", "yes"])
    features = datasets.Features({"tags": datasets.List(label), "one": label})
    rows = datasets.Dataset.from_dict({"tags": [[0, 0], [1]], "one": [0, 1]}, features=features)
    torch.testing.assert_close(class_weights_from(rows, column="tags"), class_weights([2, 1, 0]))
    torch.testing.assert_close(class_weights_from(rows, column="one"), class_weights([1, 1, 0]))


def test_names_in_the_rows():
    rows = [{"label": "no"}, {"label": "no"}, {"label": "yes"}, {"label": None}]
    found = class_weights_from(rows, column="label", classes=["yes", "no"])
    torch.testing.assert_close(found, class_weights([1, 2]))
    with pytest.raises(ValueError, match=r"unknown label 'no' in 'label'; known are none: give cl"):
        class_weights_from(rows, column="label")


def test_label_sets_give_weights_of_positives():
    rows = [{"labels": [1.0, 0.0]}, {"labels": [0.0, 0.0]}, {"labels": [0.0, 1.0]}]
    found = class_weights_from([*rows, rows[0]], multi_label=True)
    torch.testing.assert_close(found, class_weights([[2, 2], [3, 1]], sigmoid=True))
    missing = [*rows, {"labels": [-100.0, 1.0]}]  # a label that nobody looked at
    found = class_weights_from(missing, multi_label=True)
    torch.testing.assert_close(found, class_weights([[2, 1], [2, 2]], sigmoid=True))


def test_options_go_to_class_weights():
    rows = [{"labels": TAGS[0]}]
    found = class_weights_from(rows, scheme="log", k=3.0)
    torch.testing.assert_close(found, class_weights([2, 1], "log", k=3.0))


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"label": 0}], {}, "wanted a column 'labels', got label"),
        ([{"labels": 3}], {"classes": 2}, "from 0 to 1 in 'labels', got 3"),
        ([{"labels": -1}], {}, "from 0 up, or -100, in 'labels', got -1"),
        ([], {"multi_label": True}, "got none"),
        ([{"labels": [1, 0]}, {"labels": [1]}], {"multi_label": True}, "of one length"),
    ],
)
def test_what_is_wrong_is_told(rows, options, message):
    with pytest.raises(ValueError, match=message):
        class_weights_from(rows, **options)


def test_the_number_of_classes_of_several_labels_is_compared_with_the_rows(monkeypatch):
    rows = [{"labels": [1, 0]}, {"labels": [0, 1]}]
    assert class_weights_from(rows, multi_label=True, classes=["a", "b"]).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="wanted 3 values in every row of 'labels', got 2"):
        class_weights_from(rows, multi_label=True, classes=3)
    monkeypatch.setattr(weights, "CHUNK", 1)
    with pytest.raises(ValueError, match="of one length in every row"):
        class_weights_from([{"labels": [1, 0]}, {"labels": [1]}], multi_label=True)
