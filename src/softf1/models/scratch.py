"""Base classes of encoders from scratch: configuration, saving and loading.

The folder has the form of transformers: `config.json` and `model.safetensors`. These classes do
without transformers itself, whose import takes longer than a short training of such a network.
"""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, ValuesView
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from softf1.errors import InputError
from softf1.models.crf import NAME as TRANSITIONS

CONFIG, WEIGHTS = "config.json", "model.safetensors"
NOT_OPTIONS = ("architectures", "dtype", "model_type", "transformers_version")
"""Keys of `config.json` that identify the folder and are not options of the network."""


class Output(NamedTuple):
    """The output of a model: a tuple for DDP and FSDP, readable like an output of transformers."""

    logits: Tensor

    def __getitem__(self, key: Any) -> Any:
        """Returns a tensor by name or by position."""
        return getattr(self, key) if isinstance(key, str) else tuple.__getitem__(self, key)

    def values(self) -> ValuesView[Tensor]:
        """The tensors, as outputs of transformers have them."""
        return self._asdict().values()

    def items(self) -> ItemsView[str, Tensor]:
        """Name and value of each tensor, as outputs of transformers have them."""
        return self._asdict().items()


@contextmanager
def _readable(wanted: str, path: Path) -> Iterator[None]:
    """Turns errors from a damaged file into an InputError of one line."""
    try:
        yield
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"wanted {wanted}, got {reason}", path=path) from error


class ScratchConfig:
    """Labels of a network and, in a subclass, its sizes; unknown keys are kept."""

    model_type: ClassVar[str]

    def __init__(
        self,
        *,
        id2label: dict[int, str] | None = None,
        label2id: dict[str, int] | None = None,
        **other: Any,
    ) -> None:
        names = {0: "LABEL_0", 1: "LABEL_1"} if id2label is None else id2label
        self.id2label = {int(number): name for number, name in names.items()}
        numbers = {name: number for number, name in self.id2label.items()}
        self.label2id = numbers if label2id is None else label2id
        vars(self).update(other)

    @property
    def num_labels(self) -> int:
        """How many classes the head has."""
        return len(self.id2label)

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> Self:
        """Reads `config.json` of a folder."""
        path = Path(folder) / CONFIG
        with _readable("the sizes of a network", path):
            content = json.loads(path.read_text("utf-8"))
            return cls(**{key: value for key, value in content.items() if key not in NOT_OPTIONS})

    def save_pretrained(self, folder: Path | str, *, architecture: str) -> None:
        """Writes `config.json` with the keys that transformers would write."""
        about = {
            "architectures": [architecture],
            "dtype": "float32",
            "model_type": self.model_type,
            "transformers_version": version("transformers"),
        }
        text = json.dumps(vars(self) | about, indent=2, sort_keys=True)
        (Path(folder) / CONFIG).write_text(text + "\n", "utf-8")


class ScratchModel(nn.Module):
    """A network with a configuration, saved and loaded as models of transformers are."""

    config_class: ClassVar[type[ScratchConfig]]

    def __init__(self, config: ScratchConfig) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def from_pretrained(cls, folder: Path | str, *, dtype: torch.dtype = torch.float32) -> Self:
        """Loads a folder; raises if weights are missing, unknown or of another shape."""
        config = cls.config_class.from_pretrained(folder)
        with _readable("the sizes of a network", Path(folder) / CONFIG):
            model = cls(config)
        path = Path(folder) / WEIGHTS
        with _readable(f"weights of {cls.__name__}", path):
            weights = load_file(path)
            weights.pop(TRANSITIONS, None)  # of a CRF, which the task adds on top
            model.load_state_dict(weights)
        return model.to(dtype)

    def save_pretrained(self, folder: Path | str) -> None:
        """Writes configuration and weights; creates the folder if it is missing."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.config.save_pretrained(folder, architecture=type(self).__name__)
        # On a GPU the weights of an LSTM are views of one tensor, which safetensors refuses.
        weights = {name: value.to("cpu", copy=True) for name, value in self.state_dict().items()}
        save_file(weights, Path(folder) / WEIGHTS, metadata={"format": "pt"})
