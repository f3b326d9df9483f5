"""Sentences per second of `softf1 predict` beside transformers' pipeline, on the same model folder.

    python benchmarks/predict.py                    # results/predict.csv, minutes on one core
    python benchmarks/predict.py --quick            # a tiny model, seconds
    python benchmarks/predict.py --device cuda --sentences 3000 --output cuda.csv
    python benchmarks/predict.py --run RUN          # results/exports.csv: ONNX, and ONNX in 8 bits
    python benchmarks/predict.py --host --sentences 3000 --rounds 7   # results/predict-host.csv
    python benchmarks/predict.py --host --before OLDER/src            # beside an older softf1

A tagger of the shape of a MiniLM encoder (6 layers of 384) with random weights reads made-up
sentences whose lengths are like those of news. Both sides start from a file of one sentence a line
and end with a tag and a confidence for every word (softf1 as lines of JSON), in float32. The
pipeline gets its sentences sorted by length and is given every batch size in turn; its best one
counts. All take turns, and the fastest of the rounds counts. The matrix products of the linear
layers alone, without padding, are timed too: no side can be faster in this precision. On a CPU they
are timed once more with weights that oneDNN has packed beforehand, by an operator that torch does
not document.

With `--run`, a trained model on its own test file (or `--data`) instead: its primary metric, its
speed from examples to lines of JSON and its size, as torch runs it, as an ONNX export, and as one
with 8-bit weights.

With `--host`, what a GPU leaves to the processor: the model only looks its logits up in a table,
and the CPU time of every part is the median of the rounds. `--before` loads an older softf1 into
the same process; both take turns, and must write the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import gc
import importlib
import random
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import BertConfig, BertModel, BertTokenizerFast, pipeline
from transformers.modeling_outputs import TokenClassifierOutput

from losses import machine
from softf1.data.examples import TaggedSentence
from softf1.models.encoders import make_tokenizer
from softf1.tasks import make_task
from softf1.training.export import OnnxModel, export_onnx
from softf1.training.predict import predict_lines, read_input, read_labelled, rescore
from softf1.training.publish import find_model, load_model, publish_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

RESULTS = Path(__file__).parent / "results"
SHAPES = {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12},
    "tiny": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
}
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-MISC", "I-MISC")
OURS, THEIRS, FLOOR = "softf1 predict", "transformers pipeline", "matrix products alone"
PACKED = "matrix products of packed weights alone"
TOKENS = (1024, 16384)
"""Padded tokens of a batch of ours: the default on a CPU, and that on a GPU."""
BATCHES = {"cpu": (1, 8, 32, 64), "cuda": (8, 32, 64, 128, 256, 512)}
"""Sentences of a batch of the pipeline."""
WORDS = 20_000
PARTS = ("read", "encode", "batches", "decode", "format")
ALL, COLLECTOR = "predict_lines", "garbage collector"
"""All parts in one, with threads; and what the collector took of the parts."""


def make_words(count: int) -> list[str]:
    """Returns made-up words of two to five syllables, all different."""
    drawn = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(drawn.choices(syllables, k=drawn.randint(2, 5)))] = None
    return list(words)


def make_sentences(words: Sequence[str], count: int, seed: int) -> list[str]:
    """Returns sentences of 1 to 60 words, 14 on average, their lengths log-normal."""
    drawn = random.Random(seed)
    lengths = (min(60, max(1, round(drawn.lognormvariate(2.4, 0.7)))) for _ in range(count))
    return [" ".join(drawn.choices(words, k=length)) for length in lengths]


def make_model(folder: Path, words: Sequence[str], shape: str) -> Path:
    """Writes a tagger with random weights as training writes it; returns its folder."""
    encoder = folder / "encoder"
    encoder.mkdir()
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (encoder / "vocab.txt").write_text("\n".join(known) + "\n", "utf-8")
    BertTokenizerFast(vocab=str(encoder / "vocab.txt")).save_pretrained(encoder)
    sizes = SHAPES[shape]
    config = BertConfig(vocab_size=len(known), intermediate_size=4 * sizes["hidden_size"], **sizes)
    torch.manual_seed(0)
    BertModel(config).save_pretrained(encoder)
    task = make_task("tagging", format="conll")
    tokenizer = make_tokenizer(str(encoder), [])
    example = TaggedSentence(tuple(words[: len(TAGS)]), TAGS, 1)
    task = task.fit(task.encode([example], tokenizer))
    model = task.build_model(str(encoder), tokenizer).eval()
    publish_model(
        folder / "model", model=model, task=task, tokenizer=tokenizer, recipe="", result={}
    )
    return folder / "model"


def find_sides(
    model: Path, file: Path, *, device: str, batches: Sequence[int]
) -> dict[tuple[str, int], Callable[[], int]]:
    """Returns what to time by name and batch size; each gives the number of tagged sentences."""
    loaded = load_model(model)
    loaded.model.to(device)
    tagger = pipeline("token-classification", model=str(model), device=device, dtype="float32")

    def ours(tokens: int) -> int:
        examples = read_input(loaded.task, file, format="plain")
        how = {"device": device, "batch_tokens": tokens}
        return sum(1 for _ in predict_lines(loaded, examples, **how))

    def theirs(size: int) -> int:
        lines = sorted(file.read_text("utf-8").splitlines(), key=len)
        return len(tagger(lines, batch_size=size))

    lines = file.read_text("utf-8").splitlines()
    ids = sum(map(len, tagger.tokenizer(lines)["input_ids"]))

    layers = [layer for layer in loaded.model.modules() if isinstance(layer, nn.Linear)]

    @torch.inference_mode()
    def products(tokens: int, calls: Sequence[Callable[[Tensor], Tensor]] = layers) -> int:
        for layer, call in zip(layers, calls, strict=True):
            rows = torch.ones(tokens, layer.in_features, device=device)
            for start in range(0, ids, tokens):
                call(rows[: ids - start])
        if device == "cuda":
            torch.cuda.synchronize()
        return len(lines)

    sides: dict[tuple[str, int], Callable[[], int]] = {}
    for tokens in TOKENS:
        sides[OURS, tokens] = lambda tokens=tokens: ours(tokens)
    usual = TOKENS[device == "cuda"]
    sides[FLOOR, usual] = lambda: products(usual)
    if device == "cpu" and torch.backends.mkldnn.is_available():
        packed = [pack(layer, usual) for layer in layers]
        sides[PACKED, usual] = lambda: products(usual, packed)
    for size in batches:
        sides[THEIRS, size] = lambda size=size: theirs(size)
    return sides


@torch.inference_mode()
def pack(layer: nn.Linear, rows: int) -> Callable[[Tensor], Tensor]:
    """The product of a layer with its weight in the order in which oneDNN wants it."""
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), rows)  # noqa: SLF001
    multiply = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
    return lambda x: multiply(x, weight, layer.bias, "none", [], "")


class LookUp(nn.Module):
    """A model that costs almost nothing: the logits of an id are the same everywhere."""

    def __init__(self, ids: int, classes: int):
        super().__init__()
        drawn = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(3 * torch.randn(ids, classes, generator=drawn))

    def forward(self, input_ids: Tensor, **_: Tensor) -> TokenClassifierOutput:
        """Looks up the logits of every id."""
        return TokenClassifierOutput(logits=self.table[input_ids])


@contextmanager
def other_softf1(source: Path, modules: dict[str, Any]) -> Iterator[None]:
    """Context in which `softf1` is that of other sources; `modules` has what was imported of it."""

    def take_out() -> dict[str, Any]:
        return {name: sys.modules.pop(name) for name in [*sys.modules] if name[:6] == "softf1"}

    used = take_out()
    sys.modules.update(modules)
    sys.path.insert(0, str(source))
    try:
        yield
    finally:
        sys.path.remove(str(source))
        modules.update(take_out())
        sys.modules.update(used)


@contextmanager
def time_collections(spent: dict[str, float]) -> Iterator[None]:
    """Context that adds the CPU time of garbage collections to `spent`."""
    started = 0.0

    def note(phase: str, _: dict[str, int]) -> None:
        nonlocal started
        if phase == "stop":
            spent[COLLECTOR] += time.thread_time() - started
        started = time.thread_time()

    gc.callbacks.append(note)
    try:
        yield
    finally:
        gc.callbacks.remove(note)


def time_parts(code: Any, loaded: Any, file: Path, device: str) -> tuple[dict[str, float], bytes]:
    """Returns the CPU seconds of every part of a prediction and of all in one, and its lines."""
    model, task, tokenizer = loaded
    how = {"device": device, "batch_tokens": TOKENS[1]}
    spent = dict.fromkeys((*PARTS, COLLECTOR, ALL), 0.0)

    def timed(part: str, call: Callable[..., Any], *given: Any, **options: Any) -> Any:
        start = time.process_time()
        made = call(*given, **options)
        spent[part] += time.process_time() - start
        return made

    def write(own: Sequence[Any], found: Sequence[Any]) -> list[bytes]:
        pairs = zip(own, found, strict=True)
        return [code.format_line(task, one, its, gold=False) for one, its in pairs]

    lines = []
    chunks = code.cut(code.read_input(task, file, format="plain"), code.CHUNK)
    with time_collections(spent):
        while own := timed("read", next, chunks, None):
            features = timed("encode", task.encode, own, tokenizer)
            logits = timed("batches", code.predict_logits, model, task, features, tokenizer, **how)
            found = timed("decode", task.decode, logits, features, own)
            lines += timed("format", write, own, found)
    examples = code.read_input(task, file, format="plain")
    whole = timed(ALL, lambda: b"".join(code.predict_lines(loaded, examples, **how)))
    if whole != b"".join(lines):
        raise RuntimeError("the parts wrote other lines than predict_lines")
    return spent, whole


def measure_host(folder: Path, file: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for every part of a prediction with a model that does nothing, now and before."""
    sides: dict[str, Callable[[], AbstractContextManager[None]]] = {"now": nullcontext}
    if options.before is not None:
        sides["before"] = partial(other_softf1, options.before, {})
    spent: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    made = set()
    for round_ in range(options.rounds + 1):  # the first warms up
        for name, context in sides.items():
            with context():
                code = importlib.import_module("softf1.training.predict")
                known = code.load_model(folder)
                nothing = LookUp(len(known.tokenizer.tokenizer), len(known.task.labels))
                loaded = known._replace(model=nothing.to(options.device))
                times, lines = time_parts(code, loaded, file, options.device)
            made.add(lines)
            spent[name] += [times] if round_ else []
    if len(made) > 1:
        raise RuntimeError("wanted the same lines in every round, now and before, got others")
    each = {
        name: {part: 1e6 * median(one[part] for one in own) / options.sentences for part in own[0]}
        for name, own in spent.items()
    }
    before = each.get("before", {})
    return [
        {
            "code": name,
            "part": part,
            "microseconds_per_sentence": round(value, 1),
            "times_before": round(value / before[part], 2) if before.get(part) else "",
            "device": options.device,
            "sentences": options.sentences,
            "rounds": options.rounds,
            "versions": f"torch {torch.__version__}; transformers {version('transformers')}",
            "machine": machine(options.device),
            "date": datetime.now(tz=UTC).date().isoformat(),
        }
        for name, own in each.items()
        for part, value in own.items()
    ]


def compare_exports(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A line each for a trained model, its ONNX export and that in 8 bits."""
    loaded = load_model(options.run)
    found = read_labelled(options.run, loaded.task, data=options.data)
    examples = found[2][: options.sentences]
    with tempfile.TemporaryDirectory() as name:
        files: dict[str, Path | None] = {"torch": None}
        for side, int8 in (("onnx", False), ("onnx int8", True)):
            files[side] = export_onnx(options.run, Path(name) / f"{side}.onnx", int8=int8).path
        models, scores, sizes = {}, {}, {}
        for side, path in files.items():
            exported = None if path is None else OnnxModel(path)
            models[side] = (
                loaded
                if exported is None
                else loaded._replace(model=exported, task=exported.untuned(loaded.task))
            )
            scores[side] = rescore(
                options.run, data=options.data, onnx=path, batch_tokens=TOKENS[0]
            )
            weights = find_model(options.run) / "model.safetensors" if path is None else path
            sizes[side] = weights.stat().st_size
        how = {"batch_tokens": TOKENS[0]}
        sides = {
            (side, TOKENS[0]): lambda own=own: sum(1 for _ in predict_lines(own, examples, **how))
            for side, own in models.items()
        }
        best = measure(sides, sentences=len(examples), rounds=options.rounds)
    return [
        {
            "model": side,
            "metric": scores[side].metric,
            "score": round(scores[side].scores[scores[side].metric], 4),
            "examples": scores[side].examples,
            "sentences_per_s": round(len(examples) / clock, 1),
            "sentences_per_cpu_s": round(len(examples) / processor, 1),
            "times_torch_by_cpu_time": round(best["torch", TOKENS[0]][1] / processor, 2),
            "mebibytes": round(sizes[side] / 2**20, 3),
            "threads": torch.get_num_threads(),
            "rounds": options.rounds,
            "versions": f"torch {torch.__version__}; onnxruntime {version('onnxruntime')}",
            "machine": machine("cpu"),
            "date": datetime.now(tz=UTC).date().isoformat(),
        }
        for (side, _), (clock, processor) in best.items()
    ]


def measure(
    sides: dict[tuple[str, int], Callable[[], int]], *, sentences: int, rounds: int
) -> dict[tuple[str, int], tuple[float, float]]:
    """Returns the least seconds by the clock and of the processor; all sides take turns."""
    best = dict.fromkeys(sides, (float("inf"), float("inf")))
    for _ in range(rounds):
        for key, call in sides.items():
            clock, processor = time.perf_counter(), time.process_time()
            count = call()
            spent = time.perf_counter() - clock, time.process_time() - processor
            if count != sentences:
                raise RuntimeError(f"{key}: wanted {sentences} sentences, got {count}")
            best[key] = (min(best[key][0], spent[0]), min(best[key][1], spent[1]))
            rates = (
                f"{sentences / spent[0]:.1f} sentences/s, {sentences / spent[1]:.1f} a CPU second"
            )
            print(f"{key[0]} {key[1]}: {rates}", flush=True)
    return best


def describe(
    best: dict[tuple[str, int], tuple[float, float]], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A line for each side and batch size."""
    ours = best[OURS, TOKENS[options.device == "cuda"]]
    return [
        {
            "side": side,
            "batch": f"{size} sentences" if side == THEIRS else f"{size} tokens",
            "device": options.device,
            "shape": "tiny" if options.quick else "minilm",
            "sentences": options.sentences,
            "sentences_per_s": round(options.sentences / clock, 1),
            "sentences_per_cpu_s": round(options.sentences / processor, 1),
            "softf1_is_faster": round(clock / ours[0], 2),
            "softf1_is_faster_by_cpu_time": round(processor / ours[1], 2),
            "threads": torch.get_num_threads(),
            "rounds": options.rounds,
            "versions": f"torch {torch.__version__}; transformers {version('transformers')}",
            "machine": machine(options.device),
            "date": datetime.now(tz=UTC).date().isoformat(),
        }
        for (side, size), (clock, processor) in best.items()
    ]


def write_lines(lines: list[dict[str, Any]], path: Path) -> None:
    """Writes a CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows(lines)
    print(f"wrote {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, writes the CSV, says by how much softf1 is faster than the pipeline at its best."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tiny model and 40 sentences")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--run", type=Path, help="a run, to compare with its ONNX exports")
    parser.add_argument("--data", type=Path, help="of --run: another file than its test file")
    parser.add_argument("--host", action="store_true", help="without a model: the host's part")
    parser.add_argument("--before", type=Path, help="of --host: sources of an older softf1")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    if options.quick:
        options.sentences, options.rounds = 40, 1
    torch.set_num_threads(options.threads)
    if options.run is not None:
        lines = compare_exports(options)
        for line in lines:
            print(
                f"{line['model']:10} {line['metric']} {100 * line['score']:.2f}  "
                f"{line['sentences_per_s']:7.1f} sentences/s ({line['sentences_per_cpu_s']:.1f} a "
                f"CPU second, x{line['times_torch_by_cpu_time']})  {line['mebibytes']:.1f} MiB"
            )
        write_lines(lines, options.output or RESULTS / "exports.csv")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = make_words(WORDS)
        small = options.quick or options.host  # whose model is not run
        model = make_model(folder, words, "tiny" if small else "minilm")
        file = folder / "input.txt"
        file.write_text("\n".join(make_sentences(words, options.sentences, 1)) + "\n", "utf-8")
        if options.host:
            lines = measure_host(model, file, options)
            for line in lines:
                times = f"  x{line['times_before']} of before" if line["times_before"] else ""
                each = f"{line['microseconds_per_sentence']:7.1f} us a sentence"
                print(f"{line['code']:7} {line['part']:17} {each}{times}")
            write_lines(lines, options.output or RESULTS / "predict-host.csv")
            return
        sides = find_sides(model, file, device=options.device, batches=BATCHES[options.device])
        best = measure(sides, sentences=options.sentences, rounds=options.rounds)
    lines = describe(best, options)
    for by in ("softf1_is_faster", "softf1_is_faster_by_cpu_time"):
        theirs = [line[by] for line in lines if line["side"] == THEIRS]
        print(f"{by}: {min(theirs)} times the pipeline at its best")
    write_lines(lines, options.output or RESULTS / "predict.csv")


if __name__ == "__main__":
    main()
