"""Tiny random models, the batches they train on, and steps of the Trainer with them."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn.utils import parameters_to_vector
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

from softf1.integrations.transformers import AnswerLabels, SoftF1Trainer, loss
from softf1.losses import make_loss

ITEMS, STEP, VOCABULARY, CLASSES, LONGEST = 16, 8, 30, 4, 9
WEIGHT = [0.3, 2.0, 1.0, 1.5]
FIRST = [1.0, 3.0] + [1.0] * (VOCABULARY - 2)
LR = 0.5


@dataclass(frozen=True)
class Case:
    """A loss for a kind of model, and the class of Trainer that makes it exact."""

    kind: str
    loss: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    exact: bool = False

    @property
    def id(self):
        how = "mixin" if self.exact else "function"
        level = "batch" if "'batch'" in str(self.options) else "example"
        weighted = "-weighted" if "weight" in self.options else ""
        return f"{self.kind}-{self.loss}{weighted}-{level}-{how}"


BATCH = {"over": "batch"}
WEIGHTED = {"weight": WEIGHT}
FUNCTION = [
    Case("tags", "ce"),
    Case("tags", "dsc", {"alpha": 0.5}),
    Case("tags", "dice", WEIGHTED),
    Case("tags", "ce+dice", {"mix": (1.0, 0.5)}),
    Case("classes", "focal"),
    Case("sets", "dice", {"exclude": (0,)}),
    Case("sets", "wce", WEIGHTED),
    Case("answers", "dsc"),
    Case("language", "ce"),
]
MIXIN = [
    Case("tags", "ce", exact=True),
    Case("tags", "wce", WEIGHTED, exact=True),
    Case("tags", "dice", BATCH | WEIGHTED, exact=True),
    Case("tags", "wce+dice", WEIGHTED | {"dice": BATCH}, exact=True),
    Case("classes", "wfocal", WEIGHTED, exact=True),
    Case("classes", "dsc", BATCH, exact=True),
    Case("sets", "tversky", BATCH | {"alpha": 0.3, "beta": 0.7}, exact=True),
    Case("answers", "dice", exact=True),
    Case("language", "wce+dice", {"weight": FIRST, "dice": BATCH}, exact=True),
]
# A step that is one micro-batch a process needs no second pass over it.
ONE_EACH = [
    Case("tags", "wce", WEIGHTED),
    Case("tags", "dice", BATCH),
    Case("sets", "dice", BATCH | {"average": "micro"}),
]


def make_model(kind):
    torch.manual_seed(0)
    if kind == "language":
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        tokens = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2}
        return LlamaForCausalLM(LlamaConfig(intermediate_size=32, **tokens, **sizes))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(
        vocab_size=VOCABULARY, intermediate_size=32, num_labels=CLASSES, **sizes, **still
    )
    if kind == "sets":
        config.problem_type = "multi_label_classification"
    if kind == "answers":
        config.num_labels = 2
    models = {"tags": BertForTokenClassification, "answers": BertForQuestionAnswering}
    return models.get(kind, BertForSequenceClassification)(config)


def make_items(kind):
    """Returns items of uneven lengths, with uneven shares of labels that do not count."""
    generator = torch.Generator().manual_seed(1)

    def draw(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator)

    items = []
    for number in range(ITEMS):
        length = 3 + number * 7 % (LONGEST - 3)
        ids = draw(1, VOCABULARY, length)
        item = {"input_ids": ids}
        if kind == "tags":
            counts = draw(0, 10, length) >= number * 3 % 8
            item["labels"] = draw(-4, CLASSES, length).clamp(min=0).where(counts, -100)
        elif kind == "classes":
            item["labels"] = draw(-3, CLASSES).clamp(min=0)
        elif kind == "sets":
            item["labels"] = (draw(0, 3, CLASSES) == 0).float()
        elif kind == "answers":
            item["start_positions"], item["end_positions"] = draw(0, length + 2, 2).unbind()
        else:
            counts = draw(0, 10, length) >= number % 5
            item["labels"] = ids.where(counts, -100)
        items.append(item)
    return items


def collate(items, *, width=None):
    """Pads to the longest, or to `width`."""
    width = width or max(len(item["input_ids"]) for item in items)

    def fill(row, value):
        return torch.nn.functional.pad(row, (0, width - len(row)), value=value)

    batch = {"input_ids": torch.stack([fill(item["input_ids"], 0) for item in items])}
    lengths = [torch.ones(len(item["input_ids"]), dtype=torch.int64) for item in items]
    batch["attention_mask"] = torch.stack([fill(ones, 0) for ones in lengths])
    for name in items[0].keys() - {"input_ids"}:
        rows = [item[name] for item in items]
        tokens = rows[0].dim() == 1 and len(rows[0]) == len(items[0]["input_ids"])
        batch[name] = torch.stack([fill(row, -100) for row in rows] if tokens else rows)
    return batch


def collator(case):
    if case.kind == "answers" and not case.exact:  # a compute_loss_func knows of no padding
        return AnswerLabels(partial(collate, width=LONGEST))
    return collate


def whole_batches(case):
    """Returns the weights after steps of a plain loop over whole batches."""
    model = make_model(case.kind)
    loss_of = make_loss(case.loss, **case.options)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    items = make_items(case.kind)
    for first in range(0, ITEMS, STEP):
        batch = collator(case)(items[first : first + STEP])
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        optimizer.zero_grad()
        output = model(**inputs)
        if case.kind == "answers":
            logits = torch.stack([output.start_logits, output.end_logits])
            target = torch.stack([batch["start_positions"], batch["end_positions"]])
            room = torch.tensor(LONGEST)
            if case.exact:
                logits = logits.masked_fill(batch["attention_mask"] == 0, -torch.inf)
                room = batch["attention_mask"].sum(1)
            target = target.where(target < room, -100)
        elif case.kind == "language":
            logits, target = output.logits[:, :-1], batch["labels"][:, 1:]
        else:
            logits, target = output.logits, batch["labels"]
        loss_of(logits, target).backward()
        optimizer.step()
    return parameters_to_vector(model.parameters()).detach()


def make_trainer(case, folder, *, size, accumulate, average=True, trainer=None, given=None, **more):
    options = {
        "output_dir": str(folder),
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulate,
        "average_tokens_across_devices": average,
        "num_train_epochs": 1,
        "optim": "sgd",
        "learning_rate": LR,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "train_sampling_strategy": "sequential",
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
    }
    shift = True if case.kind == "language" else None
    kind = trainer or (SoftF1Trainer if case.exact else Trainer)
    return kind(
        model=make_model(case.kind),
        args=TrainingArguments(**(options | more)),
        train_dataset=make_items(case.kind),
        data_collator=collator(case),
        compute_loss_func=loss(case.loss, shift=shift, **case.options),
        **(given or {}),
    )


def train(case, folder, **how):
    """Returns the weights after the same steps by the Trainer."""
    trainer = make_trainer(case, folder, **how)
    trainer.train()
    return parameters_to_vector(trainer.model.parameters()).detach()
