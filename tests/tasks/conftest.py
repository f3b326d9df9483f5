"""Tiny models and tokenizers, built in a temporary folder from a few words."""

import os
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    XLNetConfig,
    XLNetModel,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'\"()-小王在北京工作我爱的人"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def wordpiece(pair_template, single_template):
    pieces = SPECIALS + list(LETTERS) + [f"##{letter}" for letter in LETTERS]
    pieces += ["ann", "bob", "paris", "the", "visits", "##ing", "work", "who"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single=single_template,
        pair=pair_template,
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return backend


def fast(backend, **options):
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **options,
    )


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A folder with a random BERT of 2 layers, 16 wide."""
    folder = tmp_path_factory.mktemp("bert")
    backend = wordpiece("[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", "[CLS]:0 $A:0 [SEP]:0")
    fast(backend).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=backend.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def xlnet(tmp_path_factory):
    """A folder with a random XLNet of 2 layers, 16 wide: padding left, <cls> last, type 2."""
    folder = tmp_path_factory.mktemp("xlnet")
    backend = wordpiece("$A:0 [SEP]:0 $B:1 [SEP]:1 [CLS]:2", "$A:0 [SEP]:0 [CLS]:2")
    fast(backend, padding_side="left", pad_token_type_id=3).save_pretrained(folder)
    torch.manual_seed(0)
    config = XLNetConfig(
        vocab_size=backend.get_vocab_size(), d_model=16, n_layer=2, n_head=2, d_inner=32
    )
    XLNetModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def shared():
    """The folder of real corpora, or a skip."""
    root = Path(os.environ.get("SOFTF1_SHARED", Path(__file__).parents[2].parent / "shared"))
    if not (root / "data").is_dir():
        pytest.skip(f"no corpora in {root}")
    return root
