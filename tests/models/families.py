"""Families of encoders that people use, tiny and with random weights, each with a tokenizer."""

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.training.toys import FILL, NAMES, PLACES

TEXTS = [*FILL, *NAMES, *PLACES, "where?", "find PER LOC", "now"]
SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
WIDE = SIZE | {"intermediate_size": 32, "max_position_embeddings": 66}
DECODER = WIDE | {"num_key_value_heads": 1}
BERT = ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 $B:1 </s>:1")
ROBERTA = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
XLNET = ("$A:0 </s>:0 <s>:2", "$A:0 </s>:0 $B:1 </s>:1 <s>:2")
T5 = ("$A </s>", "$A </s> $B </s>")
TYPES = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
PLAIN = {"model_input_names": ["input_ids", "attention_mask"]}


@dataclass(frozen=True)
class Family:
    """What a pretrained encoder of a family has in its folder.

    Attributes:
        model: Its class in transformers.
        config: What makes it tiny.
        pieces: How its tokenizer cuts words.
        rows: The templates of one text and of two; none adds nothing.
        tokenizer: Options of the tokenizer.
    """

    model: str
    config: dict[str, Any]
    pieces: str
    rows: tuple[str, str] = ("$A", "$A $B")
    tokenizer: dict[str, Any] = field(default_factory=lambda: PLAIN)


FAMILIES = {
    "bert": Family("BertModel", WIDE, "wordpiece", BERT, TYPES),
    "roberta": Family("RobertaModel", WIDE | {"type_vocab_size": 1}, "bytes", ROBERTA),
    "xlm-roberta": Family("XLMRobertaModel", WIDE | {"type_vocab_size": 1}, "unigram", ROBERTA),
    "camembert": Family("CamembertModel", WIDE | {"type_vocab_size": 1}, "unigram", ROBERTA),
    "deberta-v2": Family("DebertaV2Model", WIDE, "unigram", BERT, TYPES),
    "deberta-v3": Family(
        "DebertaV2Model",
        WIDE
        | {"type_vocab_size": 0, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
        | {"position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
        | {"position_biased_input": False},
        "unigram",
        BERT,
        TYPES,
    ),
    "electra": Family("ElectraModel", WIDE | {"embedding_size": 8}, "wordpiece", BERT, TYPES),
    "albert": Family("AlbertModel", WIDE | {"embedding_size": 8}, "unigram", BERT, TYPES),
    "distilbert": Family(
        "DistilBertModel",
        {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 66},
        "wordpiece",
        BERT,
    ),
    "mpnet": Family("MPNetModel", WIDE, "wordpiece", ROBERTA),
    "modernbert": Family("ModernBertModel", WIDE, "bytes", BERT),
    "xlnet": Family(
        "XLNetModel",
        {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 32},
        "unigram",
        XLNET,
        TYPES | {"padding_side": "left", "pad_token_type_id": 3},
    ),
    "t5": Family(
        "T5Model",
        {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 32}
        | {"decoder_start_token_id": 0},
        "unigram",
        T5,
    ),
    "qwen2": Family("Qwen2Model", DECODER, "bytes"),
    "llama": Family("LlamaModel", DECODER, "unigram", ("<s> $A", "<s> $A $B")),
}
NO_PADDING = ("llama",)
"""Families whose tokenizer has no padding token."""

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


def cut_words(pieces):
    """A tokenizer trained on a few words: WordPiece, byte-level BPE or SentencePiece's Unigram."""
    options = {"vocab_size": 340, "special_tokens": list(SPECIALS), "show_progress": False}
    if pieces == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.normalizer = normalizers.BertNormalizer(lowercase=False)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(**options)
    elif pieces == "bytes":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(**options)
    else:
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token="<unk>", **options)
    made.train_from_iterator([" ".join(TEXTS), *TEXTS] * 3, trainer)
    return made


def write_encoder(name, folder):
    """The folder of a pretrained encoder, as it would come from the Hub."""
    family, made = FAMILIES[name], cut_words(FAMILIES[name].pieces)
    single, pair = family.rows
    known = [(token, made.token_to_id(token)) for token in SPECIALS]
    made.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=known
    )
    named = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    if "<s>" in single and name not in NO_PADDING:
        named |= {"cls_token": "<s>", "sep_token": "</s>"}
    if name in NO_PADDING:
        del named["pad_token"]
    options = named | family.tokenizer | {"model_max_length": 64}
    PreTrainedTokenizerFast(tokenizer_object=made, **options).save_pretrained(folder)
    cls = getattr(transformers, family.model)
    ids = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    if name in NO_PADDING:
        del ids["pad_token_id"]
    torch.manual_seed(0)
    cls(cls.config_class(vocab_size=made.get_vocab_size(), **ids, **family.config)).save_pretrained(
        folder
    )
    return folder
