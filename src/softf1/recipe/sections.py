"""A recipe and its sections: what each key means, its type, its range and its default."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from softf1.options import OptionError, Range, check_fields, option_types

if TYPE_CHECKING:
    from softf1.metrics.operating import Target

Share = Range(least=0, below=1)
Positive = Range(above=0)
Epochs = Range(above=0, most=1e6)
Counting = Range(least=0)
AtLeastOne = Range(least=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSection:
    """`[task]`: the task and its data files.

    Attributes:
        kind: tagging, mrc_ner, span_ner, qa, pairs, classification, or a task that a plugin adds.
        train: The training file, or hf:NAME.
        dev: The file that chooses the best checkpoint; without it a share of train is held out.
        test: The file that is scored once, at the end.
        dev_share: The share of train to hold out if there is no dev file, stratified by label.
        drop_leaks: Remove examples from train whose text is also in dev or test.
        folds: Number of folds for cross-validation: all files are joined and split into this
            many folds, stratified by label.
        fold: The fold to test on, from 0 up; the model trains on the others.
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
        """Checks types and ranges."""
        check_fields(self, "task")
        _refuse_known(self, "task")
        if (self.fold is None) != (self.folds is None):
            missing = "fold" if self.fold is None else "folds"
            raise OptionError(f"task.{missing}", "wanted task.folds and task.fold, got one of them")
        if self.fold is not None and self.folds is not None and self.fold >= self.folds:
            raise OptionError("task.fold", f"wanted 0 to {self.folds - 1}, got {self.fold}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraSection:
    """`[encoder.lora]`: train two small matrices next to each linear layer instead of its weights.

    Attributes:
        rank: Rank of the update matrices.
        alpha: The update is scaled by alpha / rank; by default alpha is twice the rank.
        dropout: Dropout on the input of the update matrices.
        targets: The linear layers to adapt: all, or a list of names such as
            ["q_proj", "v_proj"].
    """

    rank: Annotated[int, AtLeastOne] = 8
    alpha: Annotated[float | None, Positive] = None
    dropout: Annotated[float, Share] = 0.0
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        check_fields(self, "encoder.lora")
        if not self.targets:
            raise OptionError("encoder.lora.targets", "wanted one name or more, got none")


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSection:
    """`[encoder]`: the network under the head.

    Attributes:
        name: A Hub name, a folder, minilm, bilstm, textcnn, or an encoder that a plugin adds.
        dropout: Dropout of the encoder and its head; by default that of the encoder's config.
        allow_pickle: Load weights from pytorch_model.bin, an old format that can run code.
        lora: Freeze the encoder and train LoRA matrices and the head.
        gradient_checkpointing: Recompute the activations in the backward pass instead of storing
            them: less memory, a third more time.
        options: Every other key: sizes of bilstm or textcnn, such as hidden_size or filters.
    """

    name: str
    dropout: Annotated[float | None, Share] = None
    allow_pickle: bool | None = None
    lora: LoraSection | None = None
    gradient_checkpointing: bool | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        check_fields(self, "encoder")
        _refuse_known(self, "encoder")


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSection:
    """`[loss]`: what training minimises.

    Attributes:
        name: A loss, a sum of losses such as ce+dice, or auto, which chooses the loss,
            train.adversarial_relative, train.consistency and task.decoder by the task, its
            classes and metric.
        weights: Class weights from the counts in the training data; balanced by default for wce,
            wfocal and la.
        statistics: How a loss over the batch handles micro-batches and processes: exact sums over
            all of them before it takes the gradient, running uses sums over past steps.
        keys: The weight of each output of the task, such as start, end, span; 1 by default.
        options: Every other key: options of the loss; in a sum, each loss has its own table, such
            as [loss.dice].
    """

    name: str = "ce"
    weights: Literal["balanced", "inverse", "log", "effective"] | None = None
    statistics: Literal["exact", "running"] = "exact"
    keys: Annotated[dict[str, float], Counting] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks types and ranges; `[loss.dice]` means `[loss]` if the loss is dice alone."""
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
    """`[train]`: how the model is trained.

    Attributes:
        epochs: Passes over the training data; 0.5 is half of one.
        max_steps: Maximum number of optimizer steps; 0 is no limit.
        batch_size: Examples in one optimizer step, over all processes and micro-batches.
        batch_tokens: Padded tokens in one optimizer step, instead of batch_size; 0 is off.
        accumulate: Number of micro-batches into which each process splits its share of a step.
        micro_tokens: Maximum padded tokens in one forward pass, so that a few long texts do not
            set the memory you need: larger steps are split into micro-batches with the same
            gradient; by default 4096 on a CPU, 65536 elsewhere; 0 is off.
        lr: The peak learning rate.
        head_lr: The peak learning rate of the layers on top of the encoder; by default lr.
        weight_decay: Weight decay of AdamW; biases and norms have none.
        betas: The betas of AdamW.
        eps: The epsilon of AdamW.
        schedule: How the learning rate falls after the warm-up.
        warmup: Fraction of the steps for the warm-up.
        lr_end: Final learning rate, as a fraction of lr.
        power: Power of the polynomial schedule.
        clip: Maximum gradient norm; 0 is off.
        precision: Data type of the forward pass; auto is bf16 if the device supports it.
        compile: How steps are compiled; auto uses CUDA graphs where they work.
        head_bias: Initial output bias: the log class prior, or 0.
        sampler: How examples are drawn: each once per epoch, or classes balanced as in the paper.
        group_by_length: Batches of about equally long rows, which need little padding; false is
            for random rows, as the Trainer of transformers draws them.
        step_weights: Weight steps by their number of targets, so that a target in a short row
            weighs the same as one in a long row, or weight all steps equally.
        adversarial: Size ε of an adversarial step on the word embeddings; 0 is off, and so is
            none, unless the loss is auto. 0.2 to 1 suits encoders of the BERT family.
        adversarial_relative: The same, relative to the scale of the embeddings, instead of
            adversarial: one value works for encoders whose embeddings differ in scale.
        adversarial_direction: Along the gradient, or in a random direction (a control).
        consistency: Factor κ of the consistency term, which runs every example twice with
            different dropout and penalises differences between the two predictions; 0 is off,
            and so is none, unless the loss is auto.
        seed: The seed of all random numbers.
        deterministic: Add up in a fixed order on a GPU: the same seed on the same GPU model and
            versions repeats a run to the bit. torch warns of an operation that cannot. None is
            true where it should cost no time: where the attention of the encoder runs fused, as of
            BERT and RoBERTa, and for textcnn if steps are replayed. On a CPU runs repeat without
            it.
        patience: Stop after this many evaluations without improvement; 0 is off.
        eval_every: Epochs between evaluations.
        checkpoint_seconds: Seconds between checkpoints.
        trackers: Where to log metrics besides metrics.jsonl: tensorboard, wandb, mlflow.
    """

    epochs: Annotated[float, Epochs] = 3.0
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
    group_by_length: bool = True
    step_weights: Literal["targets", "equal"] = "targets"
    adversarial: Annotated[float | None, Counting] = None
    adversarial_relative: Annotated[float | None, Counting] = None
    adversarial_direction: Literal["gradient", "random"] = "gradient"
    consistency: Annotated[float | None, Counting] = None
    seed: Annotated[int, Range(least=0, below=2**32)] = 0
    deterministic: bool | None = None
    patience: Annotated[int, Counting] = 0
    eval_every: Annotated[float, Epochs] = 1.0
    checkpoint_seconds: Annotated[float, Counting] = 60.0
    trackers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        check_fields(self, "train")
        if self.adversarial and self.adversarial_relative:
            raise OptionError(
                "train.adversarial_relative", "wanted adversarial or adversarial_relative, got both"
            )
        if self.batch_tokens and not self.group_by_length:
            raise OptionError(
                "train.group_by_length", "wanted true, since batch_tokens groups rows by length"
            )

    @property
    def passes(self) -> int:
        """How often a step runs an example through the model, forward and backward.

        Consistency runs it twice, and an adversarial step repeats the step.
        """
        attacked = bool(self.adversarial or self.adversarial_relative)
        return (1 + attacked) * (1 + bool(self.consistency))


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalSection:
    """`[eval]`: how the model is scored.

    Attributes:
        metric: The score that chooses the checkpoint, such as average_precision where labels are
            ranked; by default the task's primary metric.
        tune: Tune thresholds and biases on dev, and report those scores too.
        target: What to tune thresholds and biases for: f1 (as tune does), f2, precision>=0.95,
            recall>=0.9 or cost:fp=1,fn=10; a table sets a target for each label that it names.
        batch_tokens: Padded tokens in one evaluation batch.
    """

    metric: str | None = None
    tune: bool = False
    target: str | dict[str, str] | None = None
    batch_tokens: Annotated[int, AtLeastOne] = 16384

    def __post_init__(self) -> None:
        """Checks types and ranges, and that a target can be read."""
        check_fields(self, "eval")
        if self.target is not None:
            try:
                _ = self.targets
            except ValueError as error:
                raise OptionError("eval.target", str(error)) from error

    @property
    def targets(self) -> Target | dict[str, Target] | None:
        """The target of tuning: f1 if only `tune` is set; None if nothing is tuned."""
        from softf1.metrics.operating import read_targets  # loads numpy

        if self.target is None and not self.tune:
            return None
        return read_targets("f1" if self.target is None else self.target)

    @property
    def tunes_f1(self) -> bool:
        """Whether the target is plain F1, which every task can tune for: `tune`, `f1` or `f1.0`."""
        if self.target is None:
            return self.tune
        from softf1.metrics.operating import Target

        target = self.targets
        return isinstance(target, Target) and target.kind == "f" and target.beta == 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """All settings of a run.

    Attributes:
        name: The name of the run; by default the name of the file.
        task: The task and its data files.
        encoder: The network under the head.
        loss: What training minimises.
        train: How the model is trained.
        eval: How the model is scored.
    """

    name: str
    task: TaskSection
    encoder: EncoderSection
    loss: LossSection
    train: TrainSection
    eval: EvalSection


SECTIONS: dict[str, type] = {k: cls for k, cls in option_types(Recipe).items() if k != "name"}


def _refuse_known(section: Any, where: str) -> None:
    """Raises for a key of the section among its `options`: writing the recipe would lose it."""
    for name in {one.name for one in fields(section)} & set(section.options):
        raise OptionError(f"{where}.{name}", f"wanted a key of [{where}], got an option")
