"""The leads of leads.toml: their data, what is run, and the warm-up of encoders."""

import csv
import json
import shutil
import sys
from argparse import Namespace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from softf1.recipe import build_recipe, check_recipe, read_recipe, with_values
from softf1.training.run import train_run
from tests.pages import ROOT
from tests.tasks.conftest import bert

sys.path.insert(0, str(ROOT / "benchmarks"))

import beyond
import corpora
import corpora_data
import curves
import distil
import leads_data
import rankings
import warm_up

__all__ = ["bert"]

PLAN = ROOT / "benchmarks/leads.toml"


def options(tmp_path, **given):
    values = {"plan": PLAN, "work": tmp_path, "only": [], "variants": [], "values": []}
    return Namespace(**values | {"seeds": 1, "runs": str(tmp_path / "runs")} | given)


def test_every_variant_can_be_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(beyond, "is_there", lambda *_: True)
    plan = beyond.read_plan(PLAN)
    runs = beyond.list_runs(options(tmp_path))
    assert {run.key[0] for run in runs} == {*plan["order"]}
    recipes = [run.recipe for run in runs]
    for recipe in {(r.task.kind, repr(r.task.options), repr(r.loss)): r for r in recipes}.values():
        check_recipe(recipe)  # what differs in sizes alone is checked once
    for grid in plan["order"]:  # gains are over it
        assert (grid, beyond.BASELINE, "0") in {run.key for run in runs}


def test_runs_after_a_warm_up_have_its_encoder(tmp_path, monkeypatch):
    monkeypatch.setattr(beyond, "is_there", lambda *_: True)
    runs = beyond.list_runs(options(tmp_path, only=["mrpc"], seeds=2))
    warm = {run.key: run for run in runs if run.warm_up}
    assert {key[1] for key in warm} == {
        "ce, warm-up 500", "ce, warm-up 2000", "ce, adv .5, con 1, warm-up 2000"
    }  # fmt: skip
    folders = {(run.warm_up, run.recipe.encoder.name) for run in warm.values()}
    made = tmp_path / "runs/encoders"
    assert folders == {(500, str(made / "mrpc-500")), (2000, str(made / "mrpc-2000"))}
    assert {run.encoder for run in runs} == {str(tmp_path / "encoders/en")}
    calls = []
    monkeypatch.setattr(beyond.subprocess, "run", lambda command, **_: calls.append(command))
    beyond.make_encoders(runs, jobs=1)
    assert [call[-4:] for call in calls] == [
        [str(made / f"mrpc-{n}.toml"), str(made / f"mrpc-{n}"), "--steps", str(n)]
        for n in (500, 2000)
    ]
    recipe = read_recipe(made / "mrpc-500.toml")
    assert recipe.encoder.name == str(tmp_path / "encoders/en")  # where it starts
    (made / "mrpc-500").mkdir()
    calls.clear()
    beyond.make_encoders(runs, jobs=1)  # what is there is not made again
    assert [call[-1] for call in calls] == ["2000"]


def test_the_table_leaves_out_grids_of_other_plans(tmp_path):
    head = "grid,variant,seed,dev,test\n"
    path = tmp_path / "runs.csv"
    path.write_text(f"{head}conll03-5,ce,0,0.5,0.5\nmrpc,ce,0,0.8,0.8\n")
    assert [line[:8] for line in beyond.make_table(path).splitlines()[2:]] == ["| MRPC |"]


def test_samples_hold_the_smaller_ones(tmp_path):
    blocks = [f"word{n} NN O O\nAda NNP O I-PER" for n in range(200)]
    source = tmp_path / "conll03/eng.train"
    leads_data.write(source, "\n\n".join(["-DOCSTART- -X- -X- O", *blocks]) + "\n\n")
    leads_data.make(tmp_path)
    found = [
        {*leads_data.read_blocks(tmp_path / f"conll03-{size}/eng.train")}
        for size in leads_data.SIZES
    ]
    assert [len(own) for own in found] == [10, 20, 50, 100]
    assert all(a < b for a, b in pairwise(found))


def test_all_negatives_stay_and_positives_have_their_share(tmp_path):
    rows = [f"{n}\t0\t0\tfirst {n}\tsecond {n}\t{int(n % 3 == 0)}" for n in range(1200)]
    head = "\t".join(corpora_data.QQP_HEADS)
    leads_data.write(tmp_path / "qqp37/train.tsv", "\n".join([head, *rows]) + "\n")
    leads_data.make(tmp_path)
    for share, positives in ((2, 16), (5, 42), (20, 200)):  # 800 · s / (100 − s)
        first, *kept = (tmp_path / f"qqp{share}/train.tsv").read_text().splitlines()
        labels = [row[-1] for row in kept]
        assert (first, labels.count("0"), labels.count("1")) == (head, 800, positives)


def test_kinds_of_names_are_labels(tmp_path):
    tags = ["I-PER", "I-PER", "O", "I-LOC", "B-LOC", "I-ORG", "I-ORG", "I-ORG", "I-ORG"]
    lines = [f"w{n} NN O {tag}" for n, tag in enumerate(tags)]
    text = "\n\n".join(["-DOCSTART- -X- -X- O", "\n".join(lines), "none NN O O"])
    leads_data.write(tmp_path / "conll03/eng.testa", text + "\n\n")
    leads_data.make(tmp_path)
    rows = (tmp_path / "conll03-types/dev.jsonl").read_text().splitlines()
    assert [json.loads(row)["labels"] for row in rows] == [["LOC-1", "ORG-3", "PER-2"], []]


def test_kinds_of_names_in_files_of_characters_have_text_without_spaces(tmp_path):
    leads_data.write(tmp_path / "resume/dev.char.bmes", "a B-ORG\nb E-ORG\nc O\nd S-LOC\n\n")
    leads_data.make(tmp_path)
    row = json.loads((tmp_path / "resume-types/dev.jsonl").read_text())
    assert row == {"text": "abcd", "labels": ["LOC-1", "ORG-2"]}


def test_pieces_are_masked_as_often_as_they_should():
    draw = torch.Generator().manual_seed(0)
    ids = torch.arange(1000, 1200).repeat(500, 1)
    maskable = torch.ones_like(ids, dtype=torch.bool)
    maskable[:, :50] = False
    changed, chosen = warm_up.mask_pieces(ids, maskable, mask=3, pieces=900, share=0.15, draw=draw)
    assert not chosen[:, :50].any()
    assert chosen[:, 50:].float().mean().item() == pytest.approx(0.15, abs=0.005)
    assert torch.equal(changed[~chosen], ids[~chosen])
    own, gold = changed[chosen], ids[chosen]
    shares = [(own == 3), (own == gold), (own != gold) & (own != 3) & (own < 900)]
    found = [share.float().mean().item() for share in shares]
    assert found == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


@pytest.fixture
def recipe(tmp_path, bert):
    encoder = tmp_path / "start"
    shutil.copytree(bert, encoder)
    AutoTokenizer.from_pretrained(bert, mask_token="?").save_pretrained(encoder)
    words = ["the cat sat on the mat", "the dog lay in the sun"]
    for name in ("train", "dev"):
        lines = [f"{n % 2} {words[n % 2] if name == 'train' else 'unseen text'}" for n in range(32)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[task]\nkind = "classification"\nformat = "lines"\ntrain = "train.txt"\ndev = "dev.txt"\n'
        f"[encoder]\nname = {json.dumps(str(encoder))}\n"
    )
    return read_recipe(path)


def test_a_warm_up_learns_the_training_texts_and_transformers_loads_it(recipe, tmp_path):
    out = tmp_path / "encoder"
    settings = warm_up.Settings(steps=60, batch_size=16, lr=5e-3, head_lr=1e-2)
    notes = warm_up.warm_up(recipe, out, settings)
    assert notes["last_loss"] < 0.6 * notes["first_loss"]
    assert json.loads((out / warm_up.NOTES).read_text()) == notes
    before = AutoModel.from_pretrained(recipe.encoder.name)
    after, same = AutoModel.from_pretrained(out), {"pooler.dense.weight", "pooler.dense.bias"}
    for name, weight in after.state_dict().items():
        moved = not torch.equal(weight, before.state_dict()[name])
        assert moved == (name not in same), name  # no text reaches the pooler
    texts = ["the cat sat on the mat"]
    first, second = (AutoTokenizer.from_pretrained(name) for name in (recipe.encoder.name, out))
    assert first(texts)["input_ids"] == second(texts)["input_ids"]


def test_a_warm_up_sees_no_text_of_dev(recipe):
    tokenizer = warm_up.make_tokenizer(recipe.encoder.name)
    rows = warm_up.iterate_rows(recipe, tokenizer, warm_up.Settings(batch_size=8))
    seen = {tuple(row) for _ in range(8) for row in next(rows)["input_ids"].tolist()}
    assert len(seen) == 2  # the two texts of train, however often


def test_an_encoder_without_a_mask_is_refused(recipe, bert, tmp_path):
    recipe = with_values(recipe, {"encoder.name": str(bert)})
    with pytest.raises(SystemExit, match="wanted a tokenizer with a mask"):
        warm_up.warm_up(recipe, tmp_path / "encoder", warm_up.Settings(steps=1))


def test_only_the_head_learns_at_first(recipe, tmp_path):
    settings = warm_up.Settings(steps=2, batch_size=8, frozen=1.0)
    warm_up.warm_up(recipe, tmp_path / "encoder", settings)
    before = AutoModel.from_pretrained(recipe.encoder.name).state_dict()
    after = AutoModel.from_pretrained(tmp_path / "encoder").state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    rates = [warm_up.find_rate(step, 12, 2) for step in range(12)]
    assert rates[:4] == [1.0, 1.0, 1.0, 1.0]  # two for the head, one of a rise, the peak
    assert rates[-1] == pytest.approx(1 / 9)


def test_grids_of_the_plan_have_titles():
    plan = beyond.read_plan(PLAN)
    assert all("short" in beyond.read_all(plan)[name] for name in plan["order"])
    assert not corpora.read_grids().keys() & plan["held"].keys()


def test_points_of_curves_are_those_of_the_runs():
    with curves.CURVES.open(encoding="utf-8", newline="") as file:
        shown = list(csv.DictReader(file))
    points = curves.list_points(*curves.FILES)
    assert shown == [{key: str(value) for key, value in point.items()} for point in points]
    first, last = curves.MARKS
    page = curves.PAGE.read_text("utf-8").partition(first)[2].partition(last)[0]
    assert page.strip() == curves.describe_curves(points)


def test_a_curve_is_of_gains_by_seed_at_two_places_at_least(tmp_path):
    path, both = tmp_path / "runs.csv", "ce, adv .5, con 1"
    rows = [
        ("qqp2", "ce", 0, 0.10), ("qqp2", both, 0, 0.08),
        ("qqp5", "ce", 0, 0.20), ("qqp5", both, 0, 0.21),
        ("qqp5", "ce", 1, 0.30), ("qqp5", both, 1, 0.33), ("qqp5", both, 2, 0.99),
        ("conll03-5", "ce", 0, 0.50), ("conll03-5", both, 0, 0.60),
    ]  # fmt: skip
    lines = (f'{grid},"{variant}",{seed},0,{test}\n' for grid, variant, seed, test in rows)
    path.write_text("grid,variant,seed,dev,test\n" + "".join(lines))
    points = curves.list_points(path)
    assert {point["curve"] for point in points} == {"gains-by-share"}  # one size is no curve
    found = [(point["x"], point["seeds"], float(point["gain"])) for point in points]
    # 8 − 10; the mean of 21 − 20 and 33 − 30: seed 2 has no cross entropy to compare with
    assert found == [(2, 1, -2.0), (5, 2, 2.0)]
    # t(0.975, 1) = 12.706, and the standard error of 1 and 3 is 1
    assert [point["half"] for point in points] == ["", "12.7062"]


@pytest.fixture
def models(bert):
    def make(seed):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_pretrained(bert, num_labels=3)
        torch.nn.init.normal_(model.classifier.weight)
        return model.train()

    return [make(seed) for seed in range(3)]


def test_a_student_predicts_first_and_its_teachers_second(models):
    student, *teachers = models
    for part in student.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    names = list(student.state_dict())
    ids = torch.arange(4, 24).view(4, 5)
    with torch.no_grad():
        own = student.eval()(input_ids=ids).logits
        theirs = sum(one.eval()(input_ids=ids).logits for one in teachers) / 2
    taught = distil.teach(student.train(), [one.train() for one in teachers])
    found = taught(input_ids=torch.cat([ids, ids])).logits
    torch.testing.assert_close(found, torch.cat([own, theirs]))
    found.sum().backward()
    assert taught.classifier.weight.grad is not None
    assert all(weight.grad is None for one in teachers for weight in one.parameters())
    assert list(taught.state_dict()) == names  # the teachers are not saved with it
    torch.testing.assert_close(taught.eval()(input_ids=ids).logits, own)


def test_students_learn_from_saved_teachers(recipe, tmp_path, monkeypatch):
    short = with_values(recipe, {"train.max_steps": 2, "train.batch_size": 8})
    options = Namespace(out=tmp_path / "out.csv", runs=tmp_path / "runs", teachers=2, seeds=1)
    jobs = distil.list_jobs(options, "toy", short)
    seeds = [job.recipe["train"]["seed"] for job in jobs["teachers"]]
    assert seeds == [1000, 1001]
    for job in jobs["teachers"]:
        train_run(build_recipe(job.recipe), job.folder, quiet=True)
    taught = []
    monkeypatch.setattr(distil, "teach", lambda model, own: taught.append(len(own)) or model)
    for job in jobs["students"]:
        result = distil.train_student(build_recipe(job.recipe), Path(job.folder), quiet=True)
        assert result["steps"] == 2
    assert taught == [1, 2]
    assert [job.id for job in jobs["students"]] == [
        f"toy\tce, adv .5, student of {count}\t0" for count in (1, 2)
    ]
    options.out.write_text('grid,variant,seed\ntoy,"ce, adv .5, student of 1",0\n')
    left = distil.list_jobs(options, "toy", short)
    assert [len(left[part]) for part in ("teachers", "students")] == [2, 1]
    options.out.write_text(options.out.read_text() + 'toy,"ce, adv .5, student of 2",0\n')
    assert not any(distil.list_jobs(options, "toy", short).values())


def test_rankings_are_gains_by_seed_in_both_scores(tmp_path):
    rows = [
        ("mrpc-ranked", "ce", 0, 0.80, 0.70), ("mrpc-ranked", "ce", 1, 0.82, 0.72),
        ("mrpc-ranked", "pauc, adv .5", 0, 0.81, 0.69),
        ("mrpc-ranked", "pauc, adv .5", 1, 0.83, 0.71),
    ]  # fmt: skip
    lines = [f'{grid},"{variant}",{seed},{ap},{f1},x,t,r\n' for grid, variant, seed, ap, f1 in rows]
    path = tmp_path / "rankings.csv"
    head = "grid,variant,seed,average_precision,tuned_f1,device,torch,transformers\n"
    path.write_text(head + "".join(lines))
    table = rankings.make_table(path).splitlines()
    assert table[2] == "| CE | 81.0 | 71.0 |"
    assert table[3] == "| `pauc`, ε .5 | **+1.0** ± 0.0 | **−1.0** ± 0.0 |"
    assert table[-1] == "2 seeds, x, torch t, transformers r."


def test_ranked_runs_are_chosen_by_average_precision_and_tuned(tmp_path, monkeypatch):
    monkeypatch.setattr(beyond, "is_there", lambda *_: True)
    runs = beyond.list_runs(options(tmp_path, only=rankings.list_grids()))
    assert {run.key[0] for run in runs} == {"mrpc-ranked", "qqp10-ranked", "qqp2-ranked"}
    chosen = {(run.recipe.eval.metric, run.recipe.eval.tune) for run in runs}
    assert chosen == {("average_precision", True)}
    assert all(rankings.say(run.key[1]) for run in runs)
    assert {rankings.place(run.key[1]) for run in runs} == {
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2),
    }  # fmt: skip


def test_a_ranked_run_keeps_average_precision_and_f1(recipe, tmp_path):
    values = {"eval.metric": "average_precision", "eval.tune": True, "train.max_steps": 1}
    result = train_run(with_values(recipe, values), tmp_path / "run", quiet=True)
    line = rankings.describe(
        ("grid", "pauc", "0"),
        result | {"scores": result["scores"] | {"test": result["scores"]["dev"]}}
        | {"tuned": {"test": result["tuned"]["dev"]}},
    )  # fmt: skip
    assert {*line} == {*rankings.COLUMNS}
    assert line["average_precision"] == round(result["scores"]["dev"]["average_precision"], 6)
    assert line["tuned_f1"] == round(result["tuned"]["dev"]["f1"], 6)


def test_the_table_of_rankings_is_that_of_the_runs():
    first, last = rankings.MARKS
    shown = rankings.PAGE.read_text("utf-8").partition(first)[2].partition(last)[0]
    assert shown.strip() == rankings.make_table(rankings.RESULTS).strip()
