"""Gold labels in, perfect scores out, on the real corpora where they are present."""

import pytest
import torch

from softf1.models.encoders import make_codec
from softf1.tasks.base import join
from softf1.tasks.registry import make_task


def tags_of_gold(task, features, codec):
    for start in range(0, len(features), 64):
        batch = task.collate(features, range(start, min(start + 64, len(features))), codec)
        classes = len(task.labels)
        target = batch.targets["tags"].clamp(min=0)
        yield task.gather({"tags": torch.nn.functional.one_hot(target, classes).float()}, batch)


@pytest.mark.parametrize(
    ("path", "encoder", "options"),
    [
        ("conll2003_en/eng.testb", "en-minilm-l6", {"format": "conll"}),
        ("conll2003_en/eng.testb", "en-minilm-l6", {"format": "conll", "scheme": "BIO"}),
        ("resume_ner/test.char.bmes", "zh-minibert-6l", {"format": "chars"}),
        ("msra_ner/msra_test_bio", "zh-minibert-6l", {"format": "chars", "max_length": 64}),
        ("ud_zh_1.4/zh-ud-test.conllu", "zh-minibert-6l", {"format": "conllu", "unit": "joint"}),
        ("ritter_twitter_pos/pos.txt", "en-minilm-l6", {"format": "conll"}),
    ],
)
def test_tagging(shared, path, encoder, options):
    task = make_task("tagging", **options)
    codec = make_codec(shared / "encoders" / encoder)
    examples = list(task.read(shared / "data" / path))
    features = task.encode(examples, codec)
    task = task.fit(features)
    predictions = task.decode(join(tags_of_gold(task, features, codec)), features)
    assert task.score(predictions, examples)["f1"] == 1.0
