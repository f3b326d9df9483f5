"""The section `[task]`: what is learned, from which files, and what the kind of task wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softf1.data.counts import NO_ANSWER
from softf1.errors import InputError
from softf1.metrics.schemes import OUTSIDE
from softf1.scaffold.lines import Line, Section
from softf1.scaffold.losses import background, has_several

if TYPE_CHECKING:
    from softf1.scaffold.survey import Survey

KINDS = {
    "tagging": "a tag for each word",
    "classification": "a label for each text",
    "pairs": "a label for two texts",
    "qa": "an answer to a question, in a text",
    "mrc_ner": "names as answers to a query for each label (BERT-MRC)",
}


def propose_task(found: Survey) -> list[Section]:
    """Files, format and the options that the data asks for."""
    lines = [Line("kind", found.task, KINDS.get(found.task, "")), *_files(found)]
    if found.format is not None:
        lines.append(Line("format", found.format, found.reason))
    sections = [Section("task", [*lines, *_options(found)])]
    if found.reader:
        reader = [Line(key, value) for key, value in found.reader.items()]
        sections.append(Section("task.reader", reader))
    if found.task == "mrc_ner" and found.corpus.task == "tagging":
        sections.append(Section("task.queries", _queries(found), ["Say what each label means."]))
    return sections


def _files(found: Survey) -> list[Line]:
    lines = [Line("train", found.roles["train"], f"{found.stats.examples:,} examples")]
    if "dev" in found.roles:
        lines.append(Line("dev", found.roles["dev"], "chooses the best epoch"))
    else:
        lines.append(Line("dev_share", 0.1, "no dev file: this share of train is put aside"))
    if "test" in found.roles:
        lines.append(Line("test", found.roles["test"], "scored once, at the end"))
    else:
        why = "without it scores are those of dev, which chose the epoch"
        lines.append(Line("test", "…", why, used=False))
    return lines


def _options(found: Survey) -> list[Line]:
    if found.task == "qa":
        return _options_of_questions(found)
    if found.task in ("classification", "pairs"):
        return _options_of_labels(found)
    return []


def _options_of_questions(found: Survey) -> list[Line]:
    counts = found.corpus.counts
    if counts.several:
        why = "answers have several spans, so every position is decided alone"
        return [Line("several", value=True, why=why), Line("positions", "sigmoid")]
    lines = []
    without = counts.labels[NO_ANSWER]
    if without:
        lines.append(Line("no_answer", value=True, why=f"{without:,} questions have no answer"))
    if found.language == "Chinese":
        lines.append(Line("rules", "cmrc", "answers are scored by characters"))
    return lines


def _options_of_labels(found: Survey) -> list[Line]:
    labels = found.corpus.counts.labels
    if has_several(found.corpus):
        return [Line("multi_label", value=True, why="texts have several labels, or none")]
    if len(labels) < 2:
        raise InputError(
            f"wanted two labels or more, got {', '.join(labels)}", path=found.corpus.path
        )
    negative = background(found.corpus)
    if negative is None:
        return []
    positive = next(label for label in labels if label != negative)
    return [Line("positive", positive, f"its F1 is the score; the other is {negative}")]


def _queries(found: Survey) -> list[Line]:
    labels = sorted(label for label in found.corpus.counts.labels if label != OUTSIDE)
    return [Line(label, f"Find {label} in the text.") for label in labels]
