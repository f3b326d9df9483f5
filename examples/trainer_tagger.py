"""A rare tag with transformers' Trainer: batch-level dice over 4 micro-batches a step.

python examples/trainer_tagger.py
"""

import torch
from transformers import BertConfig, BertForTokenClassification, TrainingArguments

from softf1.integrations.transformers import (
    SoftF1Trainer,
    TagMetrics,
    Tune,
    class_weights_from,
    loss,
)

LABELS = ["O", "B-X", "I-X"]


def make_rows(count, seed):
    """Return sentences of 12 token ids; a 7 opens an X, and an 8 after it goes on."""
    ids = torch.randint(5, 60, (count, 12), generator=torch.Generator().manual_seed(seed))
    goes_on = (ids == 8) & (ids.roll(1, dims=1) == 7)
    tags = torch.where(ids == 7, 1, torch.where(goes_on, 2, 0))
    return [{"input_ids": row, "labels": tag} for row, tag in zip(ids, tags, strict=True)]


def main(*, accumulate=4, epochs=8, folder="runs/trainer"):
    """Train, print and return the scores on unseen rows."""
    train, dev = make_rows(512, 0), make_rows(256, 1)
    weight = class_weights_from(train, classes=LABELS)
    tune = Tune(TagMetrics(labels=LABELS))
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    trainer = SoftF1Trainer(
        model=BertForTokenClassification(
            BertConfig(vocab_size=60, num_hidden_layers=1, num_labels=len(LABELS), **sizes)
        ),
        args=TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=accumulate,
            num_train_epochs=epochs,
            learning_rate=5e-3,
            report_to=[],
        ),
        train_dataset=train,
        eval_dataset=dev,
        compute_loss_func=loss("wce+dice", weight=weight, dice={"over": "batch"}),
        compute_metrics=tune,
        callbacks=[tune],
    )
    trainer.train()
    return trainer.evaluate()


if __name__ == "__main__":
    print(main())
