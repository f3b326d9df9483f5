import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer

from softf1.errors import InputError
from softf1.models.bilstm import BiLstm
from softf1.models.encoders import make_tokenizer
from softf1.tasks import make_task
from softf1.training import export
from softf1.training.evaluation import evaluate
from softf1.training.export import export_onnx
from softf1.training.publish import load_model, publish_model
from tests.tasks.cases import EXAMPLES
from tests.training.conftest import strengthen

onnxruntime = pytest.importorskip("onnxruntime", reason="wants onnxruntime (softf1[onnx])")
onnx = pytest.importorskip("onnx", reason="wants onnx (softf1[onnx])")
pytest.importorskip("onnxscript", reason="wants onnxscript (softf1[onnx])")

CASES = [
    pytest.param(case, id=f"{case[0]}-{case[2]}", marks=[pytest.mark.slow] if slow else [])
    for slow, case in [
        (False, ("tagging", {}, "bert")),
        (False, ("tagging", {}, "bilstm")),
        (False, ("classification", {"multi_label": True}, "textcnn")),
        (True, ("classification", {}, "bert")),
        (True, ("qa", {}, "bert")),
    ]
]


def publish(case, folder):
    task, _, tokenizer, model, _ = case
    publish_model(folder, model=model, task=task, tokenizer=tokenizer, recipe="", result={})
    return folder


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_onnxruntime_gives_what_torch_gives_on_real_batches(case, tmp_path, capfd):
    task, features, tokenizer, model, _ = case
    run = publish(case, tmp_path / "run" / "model").parent
    made = export_onnx(run)
    assert made.path == run / "model.onnx"
    assert sorted(path.name for path in run.iterdir()) == ["model", "model.onnx"]
    assert made.difference < 1e-4
    assert capfd.readouterr() == ("", "")
    session = onnxruntime.InferenceSession(made.path, providers=["CPUExecutionProvider"])
    for one in session.get_inputs():
        assert one.shape[:2] == ["batch", "sequence"]
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["labels"]) == list(getattr(task, "labels", ()))
    for items, width in (([0], None), ([0, 1], None), ([1, 0, 1], 24)):
        inputs = task.collate(features, items, tokenizer, width=width).inputs
        with torch.no_grad():
            wanted = model.eval()(**inputs)
        found = session.run(made.outputs, {k: v.numpy() for k, v in inputs.items()})
        for name, value in zip(made.outputs, found, strict=True):
            np.testing.assert_allclose(value, wanted[name].numpy(), atol=1e-4)


TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "pad_token_id": 0,
    "intermediate_size": 32,
    "max_position_embeddings": 66,
}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 32}
SPECIALS = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
FAMILIES = {
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "roberta": TINY,
    "electra": {**TINY, "embedding_size": 16},
    "albert": {**TINY, "embedding_size": 8},
    "deberta-v2": {**TINY, **DISENTANGLED},
    "mpnet": TINY,
    "modernbert": {**TINY, **SPECIALS, "global_attn_every_n_layers": 2, "local_attention": 16},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # transformers' DeBERTa
@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_encoders(family, bert, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(bert)
    typed = family in ("electra", "albert", "deberta-v2")
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if typed else [])]
    tokenizer.model_input_names = names
    tokenizer.save_pretrained(tmp_path / "encoder")
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), **FAMILIES[family])
    AutoModel.from_config(config).save_pretrained(tmp_path / "encoder")
    examples, task = EXAMPLES["tagging"], make_task("tagging")
    tokenizer = make_tokenizer(tmp_path / "encoder")
    task = task.fit(task.encode(examples, tokenizer))
    model = task.build_model(tmp_path / "encoder", tokenizer)
    folder = publish(strengthen((task, None, tokenizer, model, None)), tmp_path / "model")
    assert sorted(export_onnx(folder).inputs) == sorted(names)


@pytest.mark.parametrize("case", [("tagging", {}, "bilstm")], indirect=True)
def test_what_the_exporter_refuses_is_one_line(case, tmp_path, monkeypatch):
    folder = publish(case, tmp_path / "model")

    def forward(_self, input_ids, char_ids, attention_mask):
        kept = char_ids if input_ids.sum() > 3 else attention_mask
        return {"logits": kept.float()}

    monkeypatch.setattr(BiLstm, "forward", forward)
    with pytest.raises(InputError, match="torch cannot export BiLstm: ") as error:
        export_onnx(folder)
    assert "\n" not in str(error.value)
    assert not (folder / "model.onnx").exists()


@pytest.mark.slow
@pytest.mark.parametrize("case", [("tagging", {}, "xlnet")], indirect=True)
def test_a_family_that_the_exporter_cannot_do_is_one_line(case, tmp_path, capfd):
    folder = publish(case, tmp_path / "model")
    with pytest.raises(InputError, match="torch cannot export XLNetForTokenClass") as error:
        export_onnx(folder)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("case", [("mrc_ner", {}, "bert")], indirect=True)
def test_bert_mrc_is_refused_with_the_reason(case, tmp_path):
    with pytest.raises(InputError, match="mrc_ner has no ONNX form: which pairs"):
        export_onnx(publish(case, tmp_path / "model"))


@pytest.mark.parametrize("case", [("tagging", {}, "bilstm")], indirect=True)
def test_outputs_that_differ_are_not_given_out(case, tmp_path, monkeypatch):
    folder = publish(case, tmp_path / "model")
    before = sorted(folder.iterdir())
    monkeypatch.setattr(export, "CLOSE", -1.0)
    with pytest.raises(InputError, match=r"wanted outputs within -1\.0 of torch's, got"):
        export_onnx(folder)
    assert sorted(folder.iterdir()) == before


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    found = importlib.util.find_spec

    def without(name, *more):
        return None if name == "onnxscript" else found(name, *more)

    monkeypatch.setattr(export.importlib.util, "find_spec", without)
    with pytest.raises(InputError, match=r"softf1\[onnx\].* without onnxscript"):
        export_onnx(tmp_path)


def test_only_a_plain_lstm_has_a_node():
    with pytest.raises(ValueError, match="one layer"):
        export.replace_lstms(nn.Sequential(nn.LSTM(2, 2, num_layers=2)))
    plain = nn.Sequential(nn.Linear(2, 2))
    assert export.replace_lstms(plain) is plain


@pytest.mark.parametrize("case", CASES[:2], indirect=True)
def test_int8_holds_integers_and_stays_near(case, tmp_path, capfd):
    run = publish(case, tmp_path / "run" / "model").parent
    made = export_onnx(run, int8=True)
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in run.iterdir()) == ["model", "model.int8.onnx"]
    assert 1e-6 < made.difference < 0.5
    graph = onnx.load(made.path).graph
    kinds = {one.op_type for one in graph.node}
    assert kinds & {"MatMulInteger", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}
    # A weight has a scale for each of its columns.
    scales = [one.dims for one in graph.initializer if one.name.endswith("_scale")]
    assert any(np.prod(one) > 1 for one in scales)


@pytest.mark.parametrize("case", [CASES[2]], indirect=True)
def test_int8_takes_no_model_that_needs_two_files(case, tmp_path, monkeypatch):
    run = publish(case, tmp_path / "run" / "model").parent
    monkeypatch.setattr(export, "LARGEST", 100)
    with pytest.raises(InputError, match=r"wanted at most 2 GiB of weights .* got 0\.0 GiB"):
        export_onnx(run, int8=True)
    assert [path.name for path in run.iterdir()] == ["model"]


@pytest.mark.parametrize("case", [CASES[1], CASES[2]], indirect=True)
def test_an_export_scores_as_its_tuned_model(case, tmp_path):
    task, features, tokenizer, model, examples = case
    many = hasattr(task, "thresholds")
    # So low a threshold lets through what the model gives a probability of 7e-25.
    tuned = (0.5, 1e-28) if many else tuple(np.linspace(-3.0, 3.0, len(task.labels)).tolist())
    task = replace(task, **{"thresholds" if many else "biases": tuned})
    run = publish((task, features, tokenizer, model, examples), tmp_path / "run" / "model").parent
    exported = export.OnnxModel(export_onnx(run).path)
    exported.check(load_model(run))
    wanted = evaluate(model, task, features, examples, tokenizer, device="cpu")
    plain = exported.untuned(task)
    assert not (plain.thresholds if many else plain.biases)
    found = evaluate(exported, plain, features, examples, tokenizer, device="cpu")
    assert found.scores == wanted.scores
    untouched = evaluate(model, plain, features, examples, tokenizer, device="cpu")
    assert untouched.predictions != wanted.predictions


@pytest.mark.parametrize("case", [CASES[2]], indirect=True)
def test_an_export_of_another_model_is_refused(case, tmp_path):
    run = publish(case, tmp_path / "run" / "model").parent
    exported = export.OnnxModel(export_onnx(run).path)
    loaded = load_model(run)
    other = replace(loaded.task, labels=loaded.task.labels[::-1])
    with pytest.raises(InputError, match="wanted an export of this run, classification"):
        exported.check(loaded._replace(task=other))
    model = onnx.load(run / "model.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    with pytest.raises(InputError, match="wanted a file that softf1 export wrote"):
        export.OnnxModel(tmp_path / "foreign.onnx")
