"""What every registered task keeps, run over all of them with every encoder that they take."""

import json

import numpy as np
import pytest
import torch

from softf1.models.encoders import make_tokenizer
from softf1.tasks import join, list_tasks, load_task, save_task
from tests.tasks.cases import CASES, OPTIONS, build_case


@pytest.fixture
def case(request):
    return build_case(*request.param, request)


def run(task, features, tokenizer, model, items):
    batch = task.collate(features, items, tokenizer)
    with torch.no_grad():
        return batch, task.logits(model.eval()(**batch.inputs), batch)


every_case = pytest.mark.parametrize("case", CASES, indirect=True)


def test_every_registered_task_is_here():
    assert {kind for kind, _ in OPTIONS} == set(list_tasks())


@every_case
def test_every_target_has_logits_and_a_head(case):
    task, features, tokenizer, model, _ = case
    batch, logits = run(task, features, tokenizer, model, range(len(features)))
    assert batch.targets.keys() <= logits.keys()
    assert batch.targets.keys() == task.heads(model).keys()
    assert task.class_counts(features).keys() <= batch.targets.keys()
    for key, target in batch.targets.items():
        assert target.shape in (logits[key].shape, logits[key].shape[:-1]), key
        if target.shape == logits[key].shape:
            assert target.is_floating_point()
        else:
            assert target.max() < logits[key].shape[-1]


@every_case
def test_predictions_are_json_one_an_example_and_scored(case):
    task, features, tokenizer, model, examples = case
    found = []
    for item in reversed(range(len(features))):
        batch, logits = run(task, features, tokenizer, model, [item])
        found.append(task.gather(logits, batch))
    predictions = task.decode(join(found), features, examples)
    assert len(json.loads(json.dumps(predictions))) == len(examples)
    scores = task.score(predictions, examples)
    assert 0 <= scores[task.primary_metric] <= 1
    json.dumps(scores)


@every_case
def test_a_model_folder_gives_the_same_logits_again(case, tmp_path):
    task, features, tokenizer, model, examples = case
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    save_task(task, tmp_path)
    assert not list(tmp_path.glob("*.bin"))
    loaded, again = load_task(tmp_path), make_tokenizer(tmp_path)
    assert loaded == task
    repeated = loaded.encode(examples, again)
    for key, array in features.arrays.items():
        np.testing.assert_array_equal(repeated[key], array)
    items = range(len(features))
    _, wanted = run(task, features, tokenizer, model, items)
    _, got = run(loaded, repeated, again, loaded.build_model(tmp_path, again), items)
    for key, value in wanted.items():
        torch.testing.assert_close(got[key], value)


@every_case
def test_a_wider_batch_changes_nothing_that_counts(case):
    task, features, tokenizer, model, _ = case
    model.eval()
    found = []
    for width in (None, int(features["length"].max()) + 7):
        batch = task.collate(features, range(len(features)), tokenizer, width=width)
        with torch.no_grad():
            found.append(task.gather(task.logits(model(**batch.inputs), batch), batch))
    for key, value in found[0].items():
        np.testing.assert_allclose(found[1][key], value, atol=1e-5)
