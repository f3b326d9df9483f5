"""Exports a trained model to ONNX and compares it with torch on several shapes."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from softf1 import __version__
from softf1.errors import InputError
from softf1.files import make_folder, refuse_folder, scratch_folder, sync_folder
from softf1.tasks.card import DECISION
from softf1.training.publish import Loaded, find_model, fold_decision, load_model

if TYPE_CHECKING:
    from softf1.tasks.base import Task

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
SHAPES = ((1, 1), (1, 7), (3, 16), (5, 33))
"""(rows, ids per row) of the inputs on which ONNX and torch are compared."""
CLOSE = 1e-4
LARGEST = 2**31 - 2**24
"""Bytes of weights that fit into one ONNX file; larger weights go to a second file."""


class Exported(NamedTuple):
    """The exported model.

    Attributes:
        path: The ONNX file.
        inputs: Names of its inputs, whose first dimensions are (batch, sequence).
        outputs: Names of its outputs.
        difference: The largest absolute difference between outputs of torch and onnxruntime.
    """

    path: Path
    inputs: list[str]
    outputs: list[str]
    difference: float


def export_onnx(run: Path | str, out: Path | str | None = None, *, int8: bool = False) -> Exported:
    """Exports the model of a run to ONNX, with dynamic numbers of rows and ids per row.

    Args:
        run: A run or a model folder.
        out: The file; None is `model.onnx` in the folder, or `model.int8.onnx`.
        int8: Keep the weights of matrix products as 8-bit integers (dynamic quantization). The file
            is smaller and its logits are less exact; `difference` says by how much.

    Raises:
        InputError: A package is missing, the exporter fails, or the exported model differs.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        got = f"without {', '.join(missing)}"
        raise InputError(f"export needs the packages of softf1[onnx], got an installation {got}")
    loaded = load_model(run)
    with fold_decision(loaded.model, loaded.task):
        return _write(loaded, Path(run), Path(out) if out is not None else None, int8=int8)


def _write(loaded: Loaded, run: Path, out: Path | None, *, int8: bool) -> Exported:
    why = getattr(loaded.task, "no_onnx", None)
    if why is not None:
        raise InputError(f"task {loaded.task.kind} has no ONNX form: {why}", path=run)
    path = out if out is not None else run / ("model.int8.onnx" if int8 else "model.onnx")
    check_target(path)
    inputs = sample(loaded, 2, 8)
    outputs = list(_run(loaded.model, inputs))
    program = _export(loaded, inputs, outputs, find_model(run))
    add_metadata(program, loaded)
    weights = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    if int8 and weights > LARGEST:
        got = f"got {weights / 2**30:.1f} GiB"
        raise InputError(f"wanted at most 2 GiB of weights to make them 8-bit, {got}", path=run)
    make_folder(path.parent)
    with scratch_folder(path.parent) as folder:
        made = folder / path.name
        program.save(made, external_data=weights > LARGEST)
        difference = compare_outputs(loaded, made, CLOSE)
        if int8:
            quantize(made)
            difference = compare_outputs(loaded, made, float("inf"))
        for part in sorted(folder.iterdir(), reverse=True):  # last the file that names the others
            part.replace(path.with_name(part.name))
        sync_folder(path.parent)
    return Exported(path, list(inputs), outputs, difference)


def quantize(path: Path) -> None:
    """Quantizes the weights of matrix products in a file to 8 bits."""
    # Imported by name, since both are optional and have no types.
    names = ("onnx", "onnxruntime.quantization")
    with quiet():
        onnx, quantization = map(importlib.import_module, names)
        model = onnx.load(path)
        # onnxruntime infers some shapes differently from torch's exporter, and would refuse these.
        del model.graph.value_info[:]
        quantization.quantize_dynamic(
            model,
            path,
            weight_type=quantization.QuantType.QInt8,
            op_types_to_quantize=["MatMul", "Gemm", "LSTM"],
            per_channel=True,  # one scale for a whole matrix would cost F1
        )


def check_target(path: Path) -> None:
    """Raises if the target exists and is not an earlier export."""
    refuse_folder(path)
    parts = [part for part in (path, path.with_name(f"{path.name}.data")) if part.exists()]
    if not parts:
        return
    # Imported by name, since both are optional and one has no types.
    onnx, protobuf = map(importlib.import_module, ("onnx", "google.protobuf.message"))
    try:
        old = onnx.load(path, format="protobuf", load_external_data=False)
    except (OSError, protobuf.DecodeError):
        old = None
    if old is None or "softf1" not in {one.key for one in old.metadata_props}:
        raise InputError("exists and is not an export of softf1; use another --out", path=parts[0])


def sample(loaded: Loaded, rows: int, width: int) -> dict[str, Tensor]:
    """Makes random inputs of this shape; the last row is half as long as the others."""
    model, _, tokenizer = loaded
    config: Any = model.config
    random = torch.Generator().manual_seed(rows * 1000 + width)
    mask = torch.ones(rows, width, dtype=torch.int64)
    mask[-1, (width + 1) // 2 :] = 0

    def below(most: int, *more: int) -> Tensor:
        return torch.randint(0, max(1, most), (rows, width, *more), generator=random)

    known = {
        "input_ids": below(config.vocab_size),
        "attention_mask": mask,
        "token_type_ids": below(getattr(config, "type_vocab_size", 1)),
        "char_ids": below(getattr(config, "char_vocab_size", 1), getattr(tokenizer, "letters", 1)),
    }
    taken = inspect.signature(model.forward).parameters
    return {
        name: value for name, value in known.items() if name in taken and name in tokenizer.names
    }


def _export(loaded: Loaded, inputs: dict[str, Tensor], outputs: list[str], folder: Path) -> Any:
    """Exports the model with torch's exporter, without its printed output."""
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence")
    try:
        with torch.no_grad(), quiet():
            return torch.onnx.export(
                Tensors(replace_lstms(loaded.model), list(inputs)),
                tuple(inputs.values()),
                dynamic_shapes={"values": ({0: batch, 1: sequence},) * len(inputs)},
                input_names=list(inputs),
                output_names=outputs,
                verbose=False,
            )
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        kind = type(loaded.model).__name__
        raise InputError(f"torch cannot export {kind}: {reason(error)}", path=folder) from error


def add_metadata(program: Any, loaded: Loaded) -> None:
    """Adds labels and tuned decisions to the metadata of the file."""
    task, config = loaded.task, loaded.model.config
    about = {"softf1": __version__, "task": task.kind}
    about["labels"] = json.dumps(getattr(task, "labels", ()), ensure_ascii=False)
    if getattr(config, DECISION, None) is not None:
        about[DECISION] = json.dumps(getattr(config, DECISION))
    program.model.metadata_props.update(about)


def compare_outputs(loaded: Loaded, path: Path, close: float) -> float:
    """Returns the largest difference between onnxruntime and torch; raises above `close`."""
    differences = []
    try:
        exported = OnnxModel(path)
        for rows, width in SHAPES:
            inputs = sample(loaded, rows, min(width, loaded.tokenizer.limit))
            mask, found = inputs["attention_mask"].bool(), exported(**inputs)
            for name, wanted in _run(loaded.model, inputs).items():
                apart = (found[name] - wanted).abs()
                # Outputs at padding may differ between kernels, and do not matter.
                inside = apart[mask] if apart.shape[:2] == mask.shape else apart
                differences.append(inside.max())
    except Exception as error:
        raise InputError(f"onnxruntime cannot run the export: {reason(error)}") from error
    largest = torch.stack(differences).max().item()
    if not largest <= close:  # true for NaN, too
        raise InputError(f"wanted outputs within {close} of torch's, got {largest:.2g} apart")
    return largest


class OnnxModel(nn.Module):
    """Runs an exported file in place of its model, with as many threads as torch."""

    def __init__(self, path: Path | str) -> None:
        super().__init__()
        try:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            options.intra_op_num_threads = torch.get_num_threads()
            here = ["CPUExecutionProvider"]
            self.session = onnxruntime.InferenceSession(Path(path), options, providers=here)
        except ImportError:
            raise InputError("--onnx needs the packages of softf1[onnx]") from None
        except Exception as error:  # onnxruntime has many classes of errors
            raise InputError(f"wanted an ONNX file: {reason(error)}", path=path) from error
        self.inputs = [one.name for one in self.session.get_inputs()]
        self.outputs = [one.name for one in self.session.get_outputs()]
        self.about = self.session.get_modelmeta().custom_metadata_map
        if "softf1" not in self.about:
            raise InputError("wanted a file that softf1 export wrote", path=path)

    def forward(self, **inputs: Tensor) -> OnnxOutput:
        """The outputs by name."""
        found = self.session.run(self.outputs, {name: inputs[name].numpy() for name in self.inputs})
        tensors = map(torch.from_numpy, found)
        return OnnxOutput(zip(self.outputs, tensors, strict=True))

    def check(self, loaded: Loaded) -> None:
        """Raises if the file was exported from another task, or has other labels."""
        task, labels = self.about["task"], json.loads(self.about["labels"])
        wanted = list(getattr(loaded.task, "labels", ()))
        if (task, labels) != (loaded.task.kind, wanted):
            got = f"got an export of {task} with {labels}"
            raise InputError(f"wanted an export of this run, {loaded.task.kind} {wanted}; {got}")

    def untuned(self, task: Task) -> Task:
        """Returns the task without the thresholds and biases that the file's logits include."""
        left = json.loads(self.about.get(DECISION, "{}"))
        tuned = [n for n in ("thresholds", "biases") if hasattr(task, n) and n not in left]
        plain: Task = replace(task, **dict.fromkeys(tuned, ()))  # type: ignore[type-var]
        return plain


class OnnxOutput(dict[str, Tensor]):
    """Tensors by name, as items and as attributes, like the outputs of transformers' models."""

    def __getattr__(self, name: str) -> Tensor:
        """The tensor of that name."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Tensors(nn.Module):
    """Wraps a model to take inputs by position and return tensors only (no XLNet memories)."""

    def __init__(self, model: nn.Module, names: list[str]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: Tensor) -> dict[str, Tensor]:
        """The outputs by name."""
        output = self.model(**dict(zip(self.names, values, strict=True)))
        return {name: value for name, value in output.items() if isinstance(value, Tensor)}


def replace_lstms(model: nn.Module) -> nn.Module:
    """Copies the model with ONNX LSTMs in place of torch's; returns it as is if it has none.

    torch's exporter would unroll an LSTM for one fixed length.
    """
    names = [name for name, module in model.named_modules() if isinstance(module, nn.LSTM)]
    if not names:
        return model
    changed = copy.deepcopy(model)
    for name in names:
        parent, _, last = name.rpartition(".")
        lstm: nn.Module = changed.get_submodule(name)
        setattr(changed.get_submodule(parent), last, OnnxLstm(lstm))
    return changed


class OnnxLstm(nn.Module):
    """An LSTM of one layer and direction, batch first; used in an export only.

    torch orders the gates as input, forget, cell, output; ONNX as input, output, forget, cell.
    """

    w: Tensor
    r: Tensor
    b: Tensor

    def __init__(self, lstm: nn.Module):
        super().__init__()
        if not isinstance(lstm, nn.LSTM) or lstm.num_layers > 1 or lstm.bidirectional:
            raise ValueError(f"wanted an LSTM of one layer and one direction, got {lstm}")
        self.size = lstm.hidden_size
        biases = torch.cat([_gates(lstm, "bias_ih_l0"), _gates(lstm, "bias_hh_l0")])
        self.register_buffer("w", _gates(lstm, "weight_ih_l0")[None])
        self.register_buffer("r", _gates(lstm, "weight_hh_l0")[None])
        self.register_buffer("b", biases[None])

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """Returns the hidden states (B, L, size) for x (B, L, in), in a tuple of one."""
        steps = x.transpose(0, 1)
        y = torch.onnx.ops.symbolic(
            "::LSTM",
            (steps, self.w, self.r, self.b),
            {"hidden_size": self.size},
            dtype=x.dtype,
            shape=(steps.shape[0], 1, steps.shape[1], self.size),
        )
        return (y.squeeze(1).transpose(0, 1),)


def _gates(lstm: nn.LSTM, name: str) -> Tensor:
    """Reorders the rows of a weight or bias to ONNX's gate order."""
    entry, forget, cell, out = lstm.get_parameter(name).detach().chunk(4)
    return torch.cat([entry, out, forget, cell])


@torch.no_grad()
def _run(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return Tensors(model, list(inputs)).forward(*inputs.values())


def reason(error: BaseException) -> str:
    """The first line of the original error in a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Context without warnings, logs or printed output."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
