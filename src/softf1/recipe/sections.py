"""A recipe and its sections: what each key means, its type, its range and its default."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from softf1.options import OptionError, Range, check_fields

if TYPE_CHECKING:
    from softf1.metrics.operating import Target

Share = Range(least=0, below=1)
Positive = Range(above=0)
Counting = Range(least=0)
AtLeastOne = Range(least=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSection:
    """`[task]`: what is learned from which files.

    Attributes:
        kind: tagging, mrc_ner, qa, pairs, classification, or one of another package.
        train: The training file, or hf:NAME.
        dev: The file that chooses the best checkpoint; without it a share of train is put aside.
        test: The file that is scored once, at the end.
        dev_share: The share of train that is put aside where there is no dev, evenly over labels.
        drop_leaks: Take examples out of train whose text is in dev or test too.
        folds: Cross-validation: all files together are cut into so many folds, evenly over labels.
        fold: The fold that is test, from 0 up; the others are train.
        options: Every other key: options of the task, such as format, unit or max_length.
    """

    kind: str
    train: str
    dev: str | None = None
    test: str | None = None
    dev_share: Annotated[float, Range(above=0, below=1)] = 0.1
    drop_leaks: bool = False
    folds: Annotated[int | None, Range(least=2)] = None
    fold: Annotated[int | None, Counting] = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check types and ranges."""
        check_fields(self, "task")
        _refuse_known(self, "task")
        if (self.fold is None) != (self.folds is None):
            missing = "fold" if self.fold is None else "folds"
            raise OptionError(f"task.{missing}", "wanted task.folds and task.fold, got one of them")
        if self.fold is not None and self.folds is not None and self.fold >= self.folds:
            raise OptionError("task.fold", f"wanted 0 to {self.folds - 1}, got {self.fold}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraSection:
    """`[encoder.lora]`: two small matrices beside each linear layer are trained in its place.

    Attributes:
        rank: Width of the two matrices.
        alpha: Their product counts alpha / rank times; by default twice the rank.
        dropout: Dropout before the two matrices.
        targets: The linear layers of the encoder that have them: all, or those of these names,
            such as ["q_proj", "v_proj"].
    """

    rank: Annotated[int, AtLeastOne] = 8
    alpha: Annotated[float | None, Positive] = None
    dropout: Annotated[float, Share] = 0.0
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"

    def __post_init__(self) -> None:
        """Check types and ranges."""
        check_fields(self, "encoder.lora")
        if not self.targets:
            raise OptionError("encoder.lora.targets", "wanted one name or more, got none")


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSection:
    """`[encoder]`: the network below the head.

    Attributes:
        name: A Hub name, a folder, minilm, bilstm, textcnn, or one of another package.
        dropout: Dropout of the encoder and its head; by default what the encoder says.
        allow_pickle: Read weights of the old form, pytorch_model.bin, which may run code.
        lora: Freeze the encoder and train small matrices beside its layers, and the head.
        gradient_checkpointing: Compute the activations of each layer again in the backward pass
            instead of keeping them: less memory, a third more time.
        options: Every other key: sizes of bilstm or textcnn, such as hidden_size or filters.
    """

    name: str
    dropout: Annotated[float | None, Share] = None
    allow_pickle: bool | None = None
    lora: LoraSection | None = None
    gradient_checkpointing: bool | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check types and ranges."""
        check_fields(self, "encoder")
        _refuse_known(self, "encoder")


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSection:
    """`[loss]`: what is minimised.

    Attributes:
        name: A loss, several joined by a plus, such as ce+dice, or auto, which chooses the loss,
            train.adversarial_relative and train.consistency by the task, its classes and metric.
        weights: Class weights from the counts of the training data; wce, wfocal and la take
            balanced where nothing is said.
        statistics: How a loss over the batch sums over micro-batches and processes: exact sums
            first and differentiates then, running keeps sums over past steps.
        keys: The weight of each output of the task, such as start, end, span; 1 where not said.
        options: Every other key: options of the loss; in a sum those of a part are a table of
            its name, such as [loss.dice].
    """

    name: str = "ce"
    weights: Literal["balanced", "inverse", "log", "effective"] | None = None
    statistics: Literal["exact", "running"] = "exact"
    keys: Annotated[dict[str, float], Counting] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check; `[loss.dice]` is the same as `[loss]` where the loss is dice alone."""
        check_fields(self, "loss")
        own = self.options.get(self.name)
        if isinstance(own, dict):
            rest = {key: value for key, value in self.options.items() if key != self.name}
            object.__setattr__(self, "options", rest | own)
        _refuse_known(self, "loss")

    @property
    def scheme(self) -> str | None:
        """The scheme of class weights that applies: that of `weights`, or of the loss itself."""
        from softf1.losses import loss_facts, loss_names  # loads torch

        parts = {*self.name.split("+")} & {*loss_names()}
        weighted = any(loss_facts(part).needs_counts for part in parts)
        return self.weights or ("balanced" if weighted else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSection:
    """`[train]`: how it is minimised.

    Attributes:
        epochs: Passes over the training data; 0.5 is half of one.
        max_steps: Optimizer steps at most; 0 is no limit.
        batch_size: Examples in one optimizer step, over all processes and micro-batches.
        batch_tokens: Padded tokens in one optimizer step, in place of batch_size; 0 is off.
        accumulate: Micro-batches into which each process cuts its share of a step.
        micro_tokens: Padded tokens of one forward pass at most, so that a few long texts do not
            decide the memory: a step that has more is cut into micro-batches, its gradient stays
            the same; by default 4096 on a CPU, 65536 elsewhere; 0 is off.
        lr: The highest learning rate.
        head_lr: The same for the layers above the encoder; by default lr.
        weight_decay: Decay of AdamW; biases and norms have none.
        betas: Decay of AdamW's two averages.
        eps: Constant of AdamW.
        schedule: How the learning rate falls after the warm-up.
        warmup: Share of the steps over which the learning rate rises.
        lr_end: Share of lr that is left at the end.
        power: Power of the polynomial schedule.
        clip: Largest norm of the gradient; 0 is off.
        precision: Type of the computation; auto is bf16 where the device has it.
        compile: How steps are compiled; auto chooses what pays.
        head_bias: Where output biases start: at the log class prior, or at 0.
        sampler: How examples are drawn: each once, or classes balanced in the ways of the paper.
        step_weights: What a step weighs: as much as it has targets, so that a target weighs the
            same in long and in short rows, or the same as any other.
        adversarial: Size ε of an adversarial step on the word embeddings; 0, and none but for
            the loss auto, is off. 0.2 to 1 suits encoders of the BERT family.
        adversarial_relative: The same in units of the embeddings' own scale, in place of
            adversarial: one value for encoders whose embeddings differ in scale.
        adversarial_direction: Along the gradient, or in a random direction (a control).
        consistency: Factor κ of the consistency term: every example is seen twice with other
            dropout, and the two predictions are drawn together; 0, and none but for the loss
            auto, is off.
        seed: Of everything random.
        deterministic: Use only operations of torch that give the same bits every time, and warn
            where it has none: the same seed on the same GPU model and versions is meant to give
            the same run, at the cost of speed. On a CPU runs repeat without it.
        patience: Evaluations without gain before training stops; 0 is off.
        eval_every: Epochs between two evaluations.
        checkpoint_seconds: Seconds between two checkpoints.
        trackers: Where metrics go besides metrics.jsonl: tensorboard, wandb, mlflow.
    """

    epochs: Annotated[float, Positive] = 3.0
    max_steps: Annotated[int, Counting] = 0
    batch_size: Annotated[int, AtLeastOne] = 32
    batch_tokens: Annotated[int, Counting] = 0
    accumulate: Annotated[int, AtLeastOne] = 1
    micro_tokens: Annotated[int | None, Counting] = None
    lr: Annotated[float, Positive] = 2e-5
    head_lr: Annotated[float | None, Positive] = None
    weight_decay: Annotated[float, Counting] = 0.01
    betas: Annotated[tuple[float, float], Share] = (0.9, 0.999)
    eps: Annotated[float, Positive] = 1e-8
    schedule: Literal["linear", "cosine", "polynomial", "constant"] = "linear"
    warmup: Annotated[float, Share] = 0.1
    lr_end: Annotated[float, Range(least=0, most=1)] = 0.0
    power: Annotated[float, Positive] = 1.0
    clip: Annotated[float, Counting] = 1.0
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    compile: Literal["auto", "off", "graphs", "inductor"] = "auto"
    head_bias: Literal["prior", "zero"] = "prior"
    sampler: Literal["shuffle", "balanced", "oversample", "undersample"] = "shuffle"
    step_weights: Literal["targets", "equal"] = "targets"
    adversarial: Annotated[float | None, Counting] = None
    adversarial_relative: Annotated[float | None, Counting] = None
    adversarial_direction: Literal["gradient", "random"] = "gradient"
    consistency: Annotated[float | None, Counting] = None
    seed: Annotated[int, Range(least=0, below=2**32)] = 0
    deterministic: bool = False
    patience: Annotated[int, Counting] = 0
    eval_every: Annotated[float, Positive] = 1.0
    checkpoint_seconds: Annotated[float, Counting] = 60.0
    trackers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check types and ranges."""
        check_fields(self, "train")
        if self.adversarial and self.adversarial_relative:
            raise OptionError(
                "train.adversarial_relative", "wanted adversarial or adversarial_relative, got both"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalSection:
    """`[eval]`: how it is judged.

    Attributes:
        metric: The score that chooses the checkpoint; by default the task's primary metric.
        tune: Tune thresholds and biases on dev, and report those scores too.
        target: What they are tuned for: f1 (as tune does), f2, precision>=0.95, recall>=0.9 or
            cost:fp=1,fn=10; a table has a target for each label that it names.
        batch_tokens: Padded tokens in one batch of an evaluation.
    """

    metric: str | None = None
    tune: bool = False
    target: str | dict[str, str] | None = None
    batch_tokens: Annotated[int, AtLeastOne] = 16384

    def __post_init__(self) -> None:
        """Check types and ranges, and that a target can be read."""
        check_fields(self, "eval")
        if self.target is not None:
            try:
                _ = self.targets
            except ValueError as error:
                raise OptionError("eval.target", str(error)) from error

    @property
    def targets(self) -> Target | dict[str, Target] | None:
        """What is tuned for, f1 where nothing but `tune` is said; None where nothing is tuned."""
        from softf1.metrics.operating import read_targets  # loads numpy

        if self.target is None and not self.tune:
            return None
        return read_targets("f1" if self.target is None else self.target)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """All that decides a run.

    Attributes:
        name: What the run is called; by default the name of the file.
        task: What is learned from which files.
        encoder: The network below the head.
        loss: What is minimised.
        train: How it is minimised.
        eval: How it is judged.
    """

    name: str
    task: TaskSection
    encoder: EncoderSection
    loss: LossSection
    train: TrainSection
    eval: EvalSection


SECTIONS: dict[str, type] = {
    "task": TaskSection,
    "encoder": EncoderSection,
    "loss": LossSection,
    "train": TrainSection,
    "eval": EvalSection,
}


def _refuse_known(section: Any, where: str) -> None:
    """A key of the section under `options` would be lost when it is written."""
    for name in {one.name for one in fields(section)} & set(section.options):
        raise OptionError(f"{where}.{name}", f"wanted a key of [{where}], got an option")
