import json
import math
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from softf1.data.examples import QAExample, TaggedSentence, TextExample
from softf1.tasks import join, make_task
from softf1.tasks.base import format_line
from softf1.training.evaluation import (
    CPU_PADDING,
    evaluate,
    map_on_cores,
    predict_logits,
    share_weights,
    write_predictions,
)
from tests.tasks.cases import CASES

every_case = pytest.mark.parametrize("case", CASES, indirect=True)
one_case = pytest.mark.parametrize("case", [("tagging", {}, "bilstm")], indirect=True)


def by_hand(task, features, tokenizer, model):
    """One item a batch, no padding, in order."""
    found = []
    for item in range(len(features)):
        batch = task.collate(features, [item], tokenizer)
        with torch.no_grad():
            found.append(task.gather(task.logits(model.eval()(**batch.inputs), batch), batch))
    return join(found)


@every_case
def test_evaluation_is_what_one_item_at_a_time_gives(case):
    task, features, tokenizer, model, examples = case
    wanted = task.decode(by_hand(task, features, tokenizer, model), features, examples)
    for tokens in (1, 16384):  # a batch an item, and one for all
        found = evaluate(
            model, task, features, examples, tokenizer, device="cpu", batch_tokens=tokens
        )
        assert found.scores == task.score(wanted, examples)
        for got, want in zip(found.predictions, wanted, strict=True):
            assert got.keys() == want.keys()
            assert [v for v in got.values() if isinstance(v, str)] == [
                v for v in want.values() if isinstance(v, str)
            ]


@one_case
def test_on_a_cpu_a_batch_is_as_wide_as_its_longest_row_and_pads_little(case):
    task, _, tokenizer, model, _ = case
    sizes = [2, 60, 30, 3, 31, 59]
    features = task.encode(
        [TaggedSentence(("word",) * size, ("O",) * size, 1) for size in sizes], tokenizer
    )
    shapes = []
    model.register_forward_pre_hook(
        lambda _module, _args, inputs: shapes.append(tuple(inputs["input_ids"].shape)),
        with_kwargs=True,
    )
    predict_logits(model, task, features, tokenizer, device="cpu")
    assert CPU_PADDING == 32
    # Padding of 1 + 29, 27 and 0 ids; cores run batches in any order.
    assert sorted(shapes) == [(1, 2), (2, 30), (3, 60)]


@one_case
def test_every_module_is_left_in_the_mode_it_was_in(case):
    task, features, tokenizer, model, _ = case
    model.train()
    model.words.eval()  # frozen by somebody
    seen = []
    model.dropout.register_forward_hook(lambda module, *_: seen.append(module.training))
    predict_logits(model, task, features, tokenizer, device="cpu")
    assert seen
    assert not any(seen)
    assert model.training
    assert model.dropout.training
    assert not model.words.training
    with pytest.raises(TypeError):
        predict_logits(model, task, features, tokenizer, device="cpu", autocast=lambda: None)
    assert model.dropout.training


@one_case
def test_no_random_numbers_are_used(case):
    task, features, tokenizer, model, _ = case
    state = torch.get_rng_state()
    predict_logits(model.train(), task, features, tokenizer, device="cpu")
    assert torch.equal(torch.get_rng_state(), state)


@one_case
def test_forwards_run_in_the_context_that_was_asked_for(case):
    task, features, tokenizer, model, _ = case
    inside = []

    @contextmanager
    def context():
        inside.append(torch.is_inference_mode_enabled())
        yield

    predict_logits(model, task, features, tokenizer, device="cpu", autocast=context)
    assert inside
    assert all(inside)


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_cores_take_calls_side_by_side_and_results_stay_in_order():
    meeting = threading.Barrier(3, timeout=60)  # breaks if fewer than three run at once

    def call(number):
        meeting.wait()
        return number, torch.get_num_threads(), threading.current_thread() is main

    main = threading.current_thread()
    assert map_on_cores(call, range(6)) == [(number, 1, False) for number in range(6)]
    assert torch.get_num_threads() == 3


def in_a_new_thread(call):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@pytest.mark.usefixtures("three_threads")
def test_a_thread_that_starts_during_a_prediction_has_the_usual_number_of_threads():
    meeting = threading.Barrier(3, timeout=60)

    def call(_):
        meeting.wait()  # all three cores are at work
        return in_a_new_thread(torch.get_num_threads)

    assert map_on_cores(call, range(3)) == [3] * 3
    assert in_a_new_thread(torch.get_num_threads) == 3


@pytest.mark.usefixtures("three_threads")
def test_predictions_that_overlap_do_not_change_each_other():
    begun, ended = threading.Event(), threading.Event()

    def wait(_):
        begun.set()
        ended.wait(60)
        return torch.get_num_threads()

    def predict_meanwhile():
        begun.wait(60)
        found = map_on_cores(lambda _: torch.get_num_threads(), range(9))
        return found, torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(map_on_cores, wait, range(3))
        assert pool.submit(predict_meanwhile).result() == ([1] * 9, 3)
        ended.set()
        assert first.result() == [1] * 3
    assert in_a_new_thread(torch.get_num_threads) == 3


@pytest.mark.usefixtures("three_threads")
def test_a_prediction_keeps_the_number_of_threads_of_those_that_start_later():
    in_a_new_thread(lambda: torch.set_num_threads(2))  # three in this thread, two in new ones
    assert map_on_cores(lambda _: torch.get_num_threads(), range(9)) == [1] * 9
    assert (torch.get_num_threads(), in_a_new_thread(torch.get_num_threads)) == (3, 2)


class Remembering(nn.Module):
    """A model of another package, whose forward keeps on the module what it needs later."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.register_buffer("place", torch.zeros(0))

    def forward(self, **inputs):
        self.inputs, self.place = inputs, inputs["input_ids"].float().mean()
        time.sleep(0.01)  # another thread's turn
        assert self.place == self.inputs["input_ids"].float().mean()
        return self.model(**self.inputs)


@one_case
@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("compiled", [False, True])
def test_what_a_module_keeps_during_a_forward_is_that_of_its_own_batch(case, compiled):
    task, _, tokenizer, model, examples = case
    features = task.encode([*examples] * 3, tokenizer)
    how = {"device": "cpu", "batch_tokens": 3}
    wanted = predict_logits(model, task, features, tokenizer, **how)
    remembering = Remembering(model)
    if compiled:
        remembering.compile(backend="eager")
    found = predict_logits(remembering, task, features, tokenizer, **how)
    assert len({*features["length"]}) > 1
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_copy_with_the_same_weights_computes_the_same():
    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = self.again = nn.Linear(3, 3)
            self.script = torch.jit.script(nn.Linear(3, 3))
            self.traced = torch.fx.symbolic_trace(nn.Linear(3, 3))
            self.rest = nn.Sequential(nn.BatchNorm1d(3), nn.LSTM(3, 3))
            self.none = None
            self.register_module("left_out", None)

        def forward(self, x):
            return self.rest(self.traced(self.script(self.again(self.first(x)))))[0]

    model, x = Several().eval(), torch.randn(2, 3)
    copy = share_weights(model)
    assert torch.equal(copy(x), model(x))
    assert copy.first is copy.again is not model.first
    assert not {*copy.modules()} & {*model.modules()}
    for name, value in copy.named_parameters():
        assert value is model.get_parameter(name)


@one_case
@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("tokens", [3, 16384], ids=["cores", "together"])
def test_the_task_records_no_gradients(case, tokens, monkeypatch):
    task, _, tokenizer, model, examples = case
    features = task.encode([*examples] * 3, tokenizer)
    modes, logits = [], type(task).logits

    def look(*args):
        on_core = threading.current_thread().name.startswith("core")
        modes.append((on_core, torch.is_inference_mode_enabled()))
        return logits(*args)

    monkeypatch.setattr(type(task), "logits", look)
    predict_logits(model, task, features, tokenizer, device="cpu", batch_tokens=tokens)
    assert {*modes} == {(tokens == 3, True)}


@pytest.mark.usefixtures("three_threads")
def test_less_work_than_cores_is_done_by_all_of_them_together():
    main = threading.get_ident()
    found = map_on_cores(lambda _: (torch.get_num_threads(), threading.get_ident()), range(2))
    assert found == [(3, main)] * 2
    assert map_on_cores(str, []) == []


@pytest.mark.usefixtures("three_threads")
def test_an_error_on_a_core_ends_the_others_and_gives_the_threads_back():
    called = []

    def call(number):
        called.append(number)
        if number == 1:
            raise ZeroDivisionError
        time.sleep(0.01)

    with pytest.raises(ZeroDivisionError):
        map_on_cores(call, range(1_000))
    assert len(called) < 100
    assert torch.get_num_threads() == 3


@every_case
def test_one_core_finds_what_several_do(case):
    task, features, tokenizer, model, _ = case
    found = []
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            logits = predict_logits(
                model, task, features, tokenizer, device="cpu", batch_tokens=8 * threads
            )
        finally:
            torch.set_num_threads(before)
        found.append(logits)
    assert found[0].keys() == found[1].keys()
    for key, value in found[0].items():
        np.testing.assert_allclose(found[1][key], value, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
@every_case
def test_a_gpu_finds_what_the_cpu_does(case):
    task, features, tokenizer, model, _ = case
    wanted = predict_logits(model, task, features, tokenizer, device="cpu", batch_tokens=8)
    got = predict_logits(model.cuda(), task, features, tokenizer, device="cuda", batch_tokens=8)
    for key, value in wanted.items():  # cuDNN multiplies in TF32, of 10 bits
        np.testing.assert_allclose(got[key], value, rtol=2**-10, atol=1e-2)


RANKS = """
import sys
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from softf1.data.examples import TaggedSentence
from softf1.models.encoders import make_tokenizer
from softf1.tasks import make_task
from softf1.training.evaluation import evaluate, predict_logits

rank, file = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
examples = [
    TaggedSentence(tuple("abcdefg"[: 1 + i % 7]), tuple("XYZXYZX"[: 1 + i % 7]), i)
    for i in range(23)
]
task = make_task("tagging")
tokenizer = make_tokenizer("bilstm", task.texts(examples))
features = task.encode(examples, tokenizer)
task = task.fit(features)


def shard(model):
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    return fully_shard(model, mesh=mesh)


for wrap in (torch.nn.parallel.DistributedDataParallel, shard):
    torch.manual_seed(0)
    model = task.build_model("bilstm", tokenizer)
    alone = evaluate(model, task, features, examples, tokenizer, device="cpu")
    wrapped = wrap(model)
    ranks = {"device": "cpu", "world": 2, "rank": rank}
    for tokens in (16384, 8):  # with one batch for all, the second rank has nothing of its own
        logits = predict_logits(wrapped, task, features, tokenizer, batch_tokens=tokens, **ranks)
        if rank == 0:
            assert task.decode(logits, features, examples) == alone.predictions, (wrap, tokens)
        else:
            assert logits == {}, (wrap, tokens)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)  # training goes on after it
    batch = task.collate(features, range(4), tokenizer)
    task.logits(wrapped.train()(**batch.inputs), batch)["tags"].sum().backward()
    optimizer.step()
    predict_logits(wrapped, task, features, tokenizer, **ranks)
distributed.barrier()
distributed.destroy_process_group()
"""


def test_two_processes_find_what_one_does_with_ddp_and_fsdp(tmp_path):
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANKS, str(rank), str(tmp_path / "meet")],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=200)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)


@every_case
def test_lines_show_example_gold_and_prediction(case, tmp_path):
    task, features, tokenizer, model, examples = case
    found = evaluate(model, task, features, examples, tokenizer, device="cpu")
    path = tmp_path / "run" / "predictions.dev.jsonl"
    write_predictions(path, task, examples, found.predictions)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert list(path.parent.iterdir()) == [path]
    assert len(lines) == len(examples)
    for line, example, prediction in zip(lines, examples, found.predictions, strict=True):
        assert list(line)[:2] == ["schema", "id"]
        assert line["schema"] == 1
        assert line["id"] == (example.id or str(example.line))
        assert line["gold"]
        assert prediction.keys() <= line.keys()
        assert (line.keys() - prediction.keys()) <= {
            *("schema", "id", "gold", "words", "text", "first", "second"),
            *("question", "context", "query", "label", "entities"),
        }


def test_gold_is_in_the_units_that_are_tagged():
    task = make_task("tagging", unit="character", scheme="BIO")
    line = task.show(TaggedSentence(("Ann", "is"), ("B-PER", "O"), line=1))
    assert line == {"words": list("Annis"), "gold": ["B-PER", "I-PER", "I-PER", "O", "O"]}


def test_gold_of_answers_keeps_their_spans_apart():
    task = make_task("qa", positions="sigmoid", several=True)
    shown = task.show(QAExample("a", "who?", "Ann and Bob", ()))
    assert shown == {"question": "who?", "context": "Ann and Bob", "gold": []}


def test_lines_are_strict_json_whatever_is_in_them():
    task = make_task("classification")
    example = TextExample('half \ud83d, "quoted"\u2028', (), line=7)
    line = format_line(task, example, {"label": "é", "score": math.inf, "own": [math.nan]})
    assert line.count(b"\n") == 1
    found = json.loads(line, parse_constant=pytest.fail)
    assert found["text"] == example.text
    assert (found["id"], found["label"]) == ("7", "é")
    assert (found["score"], found["own"], found["gold"]) == (None, [None], [])
    assert "gold" not in json.loads(format_line(task, example, {}, gold=False))


def test_a_file_that_was_not_finished_is_not_there(tmp_path):
    task, path = make_task("classification"), tmp_path / "predictions.jsonl"
    examples = [TextExample("a", ("x",), line=1), TextExample("b", ("x",), line=2)]
    write_predictions(path, task, examples, [{"label": "x"}] * 2)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="shorter"):
        write_predictions(path, task, examples, [{"label": "y"}])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
