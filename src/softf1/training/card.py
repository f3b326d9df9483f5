"""The model card: what the model does, its scores, how to use it, and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.recipe import Recipe, format_recipe, with_values
from softf1.tasks.card import SEEN_ONLY, CardText

if TYPE_CHECKING:
    from softf1.tasks.base import Task

METRICS = {
    "f1": ("f1", "F1"),
    "macro_f1": ("f1", "macro F1"),
    "precision": ("precision", "precision"),
    "recall": ("recall", "recall"),
    "accuracy": ("accuracy", "accuracy"),
    "subset_accuracy": ("accuracy", "subset accuracy"),
    "exact": ("exact_match", "exact match"),
}
"""Scores that the Hub knows: (name on the Hub, our name)."""


def write_card(
    folder: Path, *, task: Task, model: Any, recipe: Recipe | str, result: Mapping[str, Any]
) -> None:
    """Writes the model card, README.md, beside the weights."""
    own = str(model.config.model_type).startswith("softf1-")
    folded = all(head.layer.bias is not None for head in task.heads(model).values())
    text = _task_text(task, pieces=not own, folded=folded)
    parts = [
        f"---\n{front_matter(task, result, pipeline=text.pipeline, own=own)}\n---",
        f"# {result.get('name', 'model')}",
        _summary(task, result),
        *_scores(task, result),
        *_usage(text, own=own),
        "## From logits to decisions",
        *text.decision,
        *_in_pipeline(result),
        *_points(result),
        *_training(recipe, result),
        *_limits(text, result),
    ]
    (folder / "README.md").write_text("\n\n".join(parts) + "\n", "utf-8")


def _task_text(task: Task, *, pieces: bool, folded: bool) -> CardText:
    """The task's own text for the card, or a generic text if the task has none."""
    if hasattr(task, "card"):
        return task.card(pieces=pieces, folded=folded)
    decision = f"The task `{task.kind}` decides, as `softf1 predict` does."
    return CardText([decision], limits=[SEEN_ONLY] if getattr(task, "labels", ()) else [])


def front_matter(task: Task, result: Mapping[str, Any], *, pipeline: str | None, own: bool) -> str:
    """The YAML front matter that the Hub reads: task, tags, metrics and scores."""
    from huggingface_hub import EvalResult, ModelCardData

    name = str(result.get("name", "model"))
    scores = [
        EvalResult(
            task_type=pipeline or task.kind,
            dataset_type=name,
            dataset_name=name,
            dataset_split=split,
            metric_type=METRICS[metric][0],
            metric_name=METRICS[metric][1],
            metric_value=round(value, 4),
        )
        for split, metric, value in _known_scores(result)
    ]
    loss = [f"{result['loss']}-loss"] if "loss" in result else []
    data = ModelCardData(
        library_name="softf1" if own else "transformers",
        pipeline_tag=pipeline,
        tags=["softf1", "imbalanced-data", *loss],
        metrics=sorted({metric.metric_type for metric in scores}) or None,
        model_name=name if scores else None,
        eval_results=scores or None,
    )
    return data.to_yaml().rstrip()


def _known_scores(result: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    final = {**result.get("scores", {}), **result.get("tuned", {})}
    for split, scores in final.items():
        for metric in METRICS:
            if isinstance(scores.get(metric), float):
                yield split, metric, scores[metric]


def _summary(task: Task, result: Mapping[str, Any]) -> str:
    what = f"`{bare(str(result.get('encoder', 'an encoder')))}` trained for {task.kind}"
    loss = f" with the loss `{result['loss']}`" if "loss" in result else ""
    labels = getattr(task, "labels", ())
    named = f" Its labels: {', '.join(f'`{one}`' for one in labels)}." if labels else ""
    return f"{what}{loss} by softf1.{named}"


def _scores(task: Task, result: Mapping[str, Any]) -> Iterator[str]:
    known = list(_known_scores(result))
    if not known:
        return
    metric = result.get("headline", task.primary_metric)
    yield f"## Scores\n\nThe checkpoint was chosen by `{metric}` on dev."
    splits = dict.fromkeys(split for split, _, _ in known)
    names = dict.fromkeys(metric for _, metric, _ in known)
    values = {(split, metric): f"{value:.4f}" for split, metric, value in known}
    rows = [[split, *(values.get((split, name), "") for name in names)] for split in splits]
    yield table(["split", *(METRICS[name][1] for name in names)], rows)
    split = "test" if "test" in splits else next(iter(splits))
    final = {**result.get("scores", {}), **result.get("tuned", {})}[split]
    rows = [
        [f"`{label}`", *(f"{one[k]:.4f}" for k in ("precision", "recall", "f1")), one["support"]]
        for label, one in sorted(
            final.get("labels", {}).items(), key=lambda item: -item[1]["support"]
        )
    ]
    if rows:
        yield f"Scores of each label, on {split}:"
        yield table(["label", "precision", "recall", "F1", "support"], rows)


def _in_pipeline(result: Mapping[str, Any]) -> Iterator[str]:
    """The score of a pipeline of transformers, if it decides otherwise than softf1."""
    if scores := result.get("pipeline_scores"):
        split, metric = ("test" if "test" in scores else "dev"), result["headline"]
        score, own = scores[split], result["scores"][split][metric]
        yield (
            f"With the words of the file, a pipeline would have {metric} {score:.4f} on {split}, "
            f"where softf1 has {own:.4f}; where it splits words, it may have less."
        )


def table(heads: list[str], rows: list[list[Any]]) -> str:
    """Formats a Markdown table.

    >>> print(table(["a"], [["x"]]))
    | a |
    |---|
    | x |
    """
    lines = [heads, *rows]
    out = [f"| {' | '.join(str(c).replace('|', chr(92) + '|') for c in line)} |" for line in lines]
    return "\n".join([out[0], "|" + "---|" * len(heads), *out[1:]])


def _usage(text: CardText, *, own: bool) -> Iterator[str]:
    yield "## Use it"
    if text.code and not own:
        shown = text.code.format(folder="path/to/this")
        yield f"In transformers, without softf1:\n\n```python\n{shown}\n```"
    elif own:
        yield "The network is part of softf1, so load it with softf1."
    yield (
        "In softf1:\n\n```sh\nsoftf1 predict path/to/this input.file\n```\n\n```python\n"
        "from softf1.training.publish import load_model\n\n"
        'model, task, tokenizer = load_model("path/to/this")\n```'
    )


def _points(result: Mapping[str, Any]) -> Iterator[str]:
    """The section about operating points that were chosen on dev."""
    points = result.get("operating_points", [])
    if not points:
        return
    yield (
        "Operating points, chosen on dev. The bound is a 95% lower confidence bound of precision "
        "or recall; cross-fitted figures are of examples that were not used to choose the point:"
    )
    keys = ("precision", "recall")
    rows = [
        [
            f"`{one['label']}`" if one["label"] else "all",
            f"`{one['target']}`" + ("" if one["reached"] is not False else " (not reached)"),
            f"{one['what']} {one['threshold']:.6g}",
            *(f"{one[key]:.4f}" for key in keys),
            "" if one["bound"] is None else f"{one['bound']:.4f}",
            *(f"{one['cross_fitted'][key]:.4f}" for key in keys),
        ]
        for one in points
    ]
    heads = ["label", "target", "chosen", *keys, "bound"]
    yield table([*heads, *(f"cross-fitted {key}" for key in keys)], rows)


def _training(recipe: Recipe | str, result: Mapping[str, Any]) -> Iterator[str]:
    yield "## Training"
    rows = [
        [split, Path(str(one.get("path") or "")).name, one.get("examples", ""), f"`{hashed[:16]}`"]
        for split, one in result.get("data", {}).items()
        for hashed in [str(one.get("sha256") or "")]
    ]
    if rows:
        yield table(["split", "file", "examples", "sha256 begins"], rows)
    counts = result.get("class_counts", {})
    shown = [f"`{key}`: {_counts(one)}" for key, one in counts.items() if one]
    if shown:
        yield "Targets of each class in the training data: " + "; ".join(shown) + "."
    facts = ("steps", "epochs", "seed", "precision", "device")
    yield ", ".join(f"{name} {result[name]}" for name in facts if name in result) + "."
    lora = None if isinstance(recipe, str) else recipe.encoder.lora
    if lora is not None:
        merged = "the adapters are merged into the weights, and peft is not needed to load them"
        yield f"The encoder was trained by LoRA of rank {lora.rank}; {merged}."
    yield f"The recipe:\n\n```toml\n{recipe_text(recipe).strip()}\n```"


def _counts(counts: Mapping[str, Any]) -> str:
    shown = [f"{name} {count}" for name, count in list(counts.items())[:50]]
    return ", ".join(shown) + (", …" if len(counts) > 50 else "")


def recipe_text(recipe: Recipe | str) -> str:
    """The recipe as TOML, with file names but without their folders."""
    if isinstance(recipe, str):
        return recipe
    paths = {split: getattr(recipe.task, split) for split in ("train", "dev", "test")}
    names = {f"task.{split}": Path(path).name for split, path in paths.items() if path}
    return format_recipe(with_values(recipe, names | {"encoder.name": bare(recipe.encoder.name)}))


def bare(name: str) -> str:
    """Returns a Hub name as it is, and of a local path only the last part.

    >>> bare("google-bert/bert-base-cased"), bare("/home/somebody/bert")
    ('google-bert/bert-base-cased', 'bert')
    """
    return Path(name).name if Path(name).is_absolute() or Path(name).is_dir() else name


def _limits(text: CardText, result: Mapping[str, Any]) -> Iterator[str]:
    yield "## Limits"
    chosen = "the checkpoint, thresholds and biases" if result.get("tuned") else "the checkpoint"
    tested = "are not" if "test" in result.get("scores", {}) else "do not exist"
    limits = [
        "The scores hold for the files named above; on other kinds of text expect less.",
        f"Dev chose {chosen}, so dev scores are a little too high; test scores {tested}.",
    ]
    limits += text.limits
    limits += [str(warning) for warning in result.get("warnings", [])]
    yield "\n".join(f"- {limit}" for limit in limits)
