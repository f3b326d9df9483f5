"""Steps: which items they hold, on which rank, in which shape; and work done ahead."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softf1.data import rebalance
from softf1.errors import InputError
from softf1.training.batching import BatchSampler, eval_batches, prefetch

MODES = {
    "size": {"batch_size": 16},
    "tokens": {"batch_size": 1, "batch_tokens": 400},
}
RANKS = [(1, 1), (1, 3), (2, 1), (3, 2), (5, 4)]


def lengths(items=300, seed=0, longest=200):
    found = np.random.default_rng(seed).lognormal(3, 0.7, items)
    return np.clip(found.astype(int), 2, longest)


def flat(steps):
    """The items of an epoch in the order of the steps."""
    return [item for step in steps for micro in step for item in micro.items.tolist()]


def whole_steps(plan_of, world, epoch=0):
    """The set of items of each step over all ranks, each item once."""
    ranks = [plan_of(rank).epoch(epoch) for rank in range(world)]
    assert len({len(steps) for steps in ranks}) == 1
    out = []
    for parts in zip(*ranks, strict=True):
        items = [i for micros in parts for micro in micros for i in micro.items.tolist()]
        assert len(items) == len(set(items))
        out.append(frozenset(items))
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("world", "accumulate"), RANKS)
def test_a_step_holds_the_same_items_on_any_number_of_ranks(mode, world, accumulate):
    alone = [
        frozenset(flat([step])) for step in BatchSampler(lengths(), seed=3, **MODES[mode]).epoch(1)
    ]
    together = whole_steps(
        lambda rank: BatchSampler(
            lengths(), seed=3, world=world, rank=rank, accumulate=accumulate, **MODES[mode]
        ),
        world,
        epoch=1,
    )
    assert together == alone
    assert sorted(i for step in alone for i in step) == list(range(300))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("world", "accumulate"), RANKS)
def test_ranks_have_equally_many_passes_and_each_width_one_number_of_rows(mode, world, accumulate):
    plans = [
        BatchSampler(lengths(301), world=world, rank=rank, accumulate=accumulate, **MODES[mode])
        for rank in range(world)
    ]
    epochs = [plan.epoch(0) for plan in plans]
    for parts in zip(*epochs, strict=True):
        passes = {len(micros) for micros in parts}
        assert len(passes) == 1
        assert 1 <= passes.pop() <= accumulate
    micros = [micro for steps in epochs for step in steps for micro in step]
    assert {(m.rows, m.width) for m in micros} <= set(plans[0].shapes)
    assert len(dict.fromkeys(w for _, w in plans[0].shapes)) == len(plans[0].shapes) <= 12
    assert all(len(m.items) <= m.rows for m in micros)
    assert all((lengths(301)[m.items] <= m.width).all() for m in micros)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("world", "accumulate"), RANKS)
def test_one_very_long_text_does_not_widen_a_forward_pass(mode, world, accumulate):
    known = lengths(300)
    known[7] = 553
    plans = [
        BatchSampler(
            known, world=world, rank=rank, accumulate=accumulate, micro_tokens=600, **MODES[mode]
        )
        for rank in range(world)
    ]
    whole = BatchSampler(known, **MODES[mode]).epoch(0)
    assert max(m.rows * m.width for step in whole for m in step) > 600 or mode == "tokens"
    epochs = [plan.epoch(0) for plan in plans]
    for parts in zip(*epochs, strict=True):
        assert len({len(micros) for micros in parts}) == 1
    for steps in epochs:
        for micro in (micro for step in steps for micro in step):
            assert len(micro.items) <= micro.rows
            assert micro.rows * micro.width <= 600 or micro.rows == 1
            assert (known[micro.items] <= micro.width).all()
    together = whole_steps(lambda rank: plans[rank], world)
    assert together == [frozenset(flat([step])) for step in whole]


def test_steps_under_the_bound_are_left_as_they_are():
    plan = BatchSampler(lengths(), batch_size=16, micro_tokens=16 * 200)
    assert not plan.splits
    assert [[m.items.tolist() for m in step] for step in plan.epoch(0)] == [
        [m.items.tolist() for m in step] for step in BatchSampler(lengths(), batch_size=16).epoch(0)
    ]
    tight = BatchSampler(lengths(), batch_size=16, micro_tokens=400)
    assert tight.splits
    assert max(rows * width for rows, width in tight.shapes) <= 400
    assert {len(step) for step in tight.epoch(0)} > {1}  # steps of short rows are one pass still


def test_batch_size_counts_over_ranks_and_passes_and_all_steps_but_one_are_full():
    steps = whole_steps(lambda rank: BatchSampler(lengths(), batch_size=16, world=2, rank=rank), 2)
    assert sorted(map(len, steps)) == [300 % 16] + [16] * (300 // 16)
    assert {
        m.rows for step in BatchSampler(lengths(), batch_size=16, world=2).epoch(0) for m in step
    } == {8}
    thirds = BatchSampler(lengths(), batch_size=16, world=2, accumulate=3)
    assert {rows for rows, _ in thirds.shapes} == {3}  # 16 / 6, rounded up


def test_batch_tokens_are_filled_but_not_exceeded():
    plan = BatchSampler(lengths(5000), batch_size=1, batch_tokens=1000)
    epoch = plan.epoch(0)
    used = [sum(m.width * len(m.items) for m in step) for step in epoch]
    assert max(used) <= 1000
    assert np.mean(used) > 850
    # One item that is longer than the budget is a step of its own, not an error.
    assert [
        len(step[0].items) for step in BatchSampler([50, 50], batch_size=1, batch_tokens=9).epoch(0)
    ] == [
        1,
        1,
    ]


def test_steps_of_random_rows_hold_every_item_once_and_differ_in_length():
    known = lengths(3000)

    def spread(**how):
        epoch = BatchSampler(known, batch_size=16, **how).epoch(0)
        assert sorted(flat(epoch)) == list(range(3000))
        return np.mean([known[micro.items].std() for step in epoch for micro in step])

    assert spread() < 2
    assert spread(by_length=False) > 0.9 * known.std()


def test_more_ranks_than_items_leaves_ranks_without():
    for rank in range(4):
        (step,) = BatchSampler([5, 6], batch_size=8, world=4, rank=rank).epoch(0)
        (micro,) = step
        assert len(micro.items) == (1 if rank < 2 else 0)
        assert micro.rows == 2


def test_the_seed_and_the_epoch_decide_everything():
    plan = BatchSampler(lengths(), batch_size=16, seed=1)
    first = flat(plan.epoch(0))
    plan.epoch(7)
    assert (
        flat(plan.epoch(0))
        == first
        == flat(BatchSampler(lengths(), batch_size=16, seed=1).epoch(0))
    )
    assert flat(plan.epoch(1)) != first
    assert flat(BatchSampler(lengths(), batch_size=16, seed=2).epoch(0)) != first


def test_rows_of_a_step_are_about_equally_long_but_steps_come_in_any_order():
    known = lengths(20_000)
    steps = BatchSampler(known, batch_size=32, max_buckets=0).epoch(0)
    padded = sum(m.width * len(m.items) for step in steps for m in step)
    unsorted = known.reshape(-1, 32).max(1).sum() * 32
    assert padded < 1.07 * known.sum() < 0.6 * unsorted
    tops = np.array([step[0].width for step in steps])
    assert abs(np.corrcoef(tops[:-1], tops[1:])[0, 1]) < 0.1


def test_the_short_step_holds_no_particular_lengths():
    """Its items weigh more than others, so they must not always be the shortest or longest."""
    plan = BatchSampler(np.arange(1, 34), batch_size=16)
    short = {
        step[0].items[0] for n in range(200) for step in plan.epoch(n) if len(step[0].items) == 1
    }
    assert short == {0, 16, 32}


def test_which_items_meet_in_a_step_changes_from_epoch_to_epoch():
    plan = BatchSampler(lengths(4000), batch_size=8)
    partners = [
        {tuple(sorted(m.items.tolist())) for step in plan.epoch(n) for m in step} for n in (0, 1)
    ]
    assert len(partners[0] & partners[1]) < 5


@given(
    known=st.lists(st.integers(0, 90), min_size=1, max_size=80),
    size=st.integers(1, 20),
    tokens=st.sampled_from([0, 1, 64, 300]),
    micro=st.sampled_from([0, 1, 50, 100]),
    world=st.integers(1, 4),
    accumulate=st.integers(1, 3),
    widths=st.integers(0, 4),
)
@settings(max_examples=60, deadline=None)
def test_any_plan_holds_every_item_once(known, size, tokens, micro, world, accumulate, widths):
    options = {"batch_size": size, "batch_tokens": tokens, "accumulate": accumulate}
    options["micro_tokens"] = micro
    steps = whole_steps(
        lambda rank: BatchSampler(known, world=world, rank=rank, max_buckets=widths, **options),
        world,
    )
    assert sorted(i for step in steps for i in step) == list(range(len(known)))


def test_widths_are_few_multiples_of_8_and_never_above_the_longest():
    plan = BatchSampler(lengths(5000, longest=509), batch_size=32)
    widths = [width for _, width in plan.shapes]
    assert len(widths) <= 12
    assert widths[-1] == lengths(5000, longest=509).max()
    assert all(width % 8 == 0 for width in widths[:-1])
    assert BatchSampler([61], batch_size=1).shapes == [(1, 61)]


def test_widths_pad_least_of_all_choices():
    from itertools import combinations

    from softf1.training.batching import make_buckets

    known = lengths(200, seed=4, longest=64)
    top = int(known.max())
    rungs = [*range(8, top, 8), top]

    def padded(ladder):
        ladder = np.array(ladder)
        return int((ladder[np.searchsorted(ladder, known)] - known).sum())

    best = min(padded([*below, top]) for below in combinations(rungs[:-1], 3))
    assert padded(make_buckets(known, most=4)) == best


STRATA = np.array([0] * 63 + [1] * 37)


def counts(plan, epoch=0):
    return np.bincount(STRATA[flat(plan.epoch(epoch))], minlength=2).tolist()


def test_samplers_reach_the_sizes_of_the_variants_of_files():
    """Where +positive adds edited copies and -negative removes, samplers repeat and leave out."""
    for sampler, variant in (("oversample", "+positive"), ("undersample", "-negative")):
        wanted = rebalance.plan(variant, 37, 63)
        plan = BatchSampler(np.full(100, 9), batch_size=7, sampler=sampler, strata=STRATA)
        assert counts(plan) == [wanted.negatives, wanted.positives]


def test_oversampling_keeps_all_items_and_repeats_rare_ones_evenly():
    plan = BatchSampler(np.full(100, 9), batch_size=7, sampler="oversample", strata=STRATA)
    often = np.bincount(flat(plan.epoch(0)), minlength=100)
    assert (often[:63] == 1).all()
    assert set(often[63:]) == {1, 2}


def test_undersampling_draws_others_each_epoch():
    plan = BatchSampler(np.full(100, 9), batch_size=7, sampler="undersample", strata=STRATA)
    epochs = [set(flat(plan.epoch(n))) for n in range(30)]
    assert all(set(range(63, 100)) <= items and len(items) == 74 for items in epochs)
    assert epochs[0] != epochs[1]
    assert set().union(*epochs) == set(range(100))


def test_balanced_keeps_the_length_of_the_epoch():
    plan = BatchSampler(np.full(100, 9), batch_size=7, sampler="balanced", strata=STRATA)
    assert counts(plan) == [50, 50]
    odd = np.array([0] * 98 + [1, 2])
    plan = BatchSampler(np.full(100, 9), batch_size=7, sampler="balanced", strata=odd)
    shares = [np.bincount(odd[flat(plan.epoch(n))], minlength=3) for n in range(60)]
    assert all(sorted(share) == [33, 33, 34] for share in shares)
    assert len({tuple(share) for share in shares}) == 3  # the odd one goes to any stratum


@pytest.mark.parametrize("sampler", ["balanced", "oversample", "undersample"])
def test_samplers_leave_out_what_has_no_stratum_and_say_so_where_nothing_has(sampler):
    strata = np.array([-1, 0, 1, 1])
    plan = BatchSampler([9] * 4, batch_size=2, sampler=sampler, strata=strata)
    assert 0 not in set().union(*(flat(plan.epoch(n)) for n in range(5)))
    with pytest.raises(InputError, match="wanted items with labels"):
        BatchSampler([9] * 2, batch_size=2, sampler=sampler, strata=np.array([-1, -1])).epoch(0)
    with pytest.raises(InputError, match="wanted a stratum for each of 2 items, got none"):
        BatchSampler([9] * 2, batch_size=2, sampler=sampler).epoch(0)


@pytest.mark.parametrize("world", [1, 2, 7])
def test_evaluation_has_every_item_once_longest_first(world):
    known = lengths(500)
    ranks = [eval_batches(known, batch_tokens=512, world=world, rank=r) for r in range(world)]
    assert sorted(i for batches in ranks for m in batches for i in m.items.tolist()) == list(
        range(500)
    )
    assert len({len(batches) for batches in ranks}) == 1
    for batches in ranks:
        own = np.concatenate([known[m.items] for m in batches])
        assert (np.diff(own) <= 0).all()
        assert all(m.rows * m.width <= 512 for m in batches)
        assert all((known[m.items] <= m.width).all() and len(m.items) <= m.rows for m in batches)
        assert len({m.width for m in batches}) <= 12


def test_evaluation_pads_little():
    known = lengths(5000)
    batches = eval_batches(known, batch_tokens=4096)
    assert sum(m.width * len(m.items) for m in batches) < 1.25 * known.sum()
    tight = eval_batches(known, batch_tokens=4096, max_padding=32)
    assert sum(m.width * len(m.items) for m in tight) < 1.03 * known.sum()
    assert eval_batches([], batch_tokens=9) == []


@pytest.mark.parametrize("world", [1, 3])
def test_a_tight_batch_ends_before_its_padding_exceeds_the_limit(world):
    known = lengths(500)
    how = {"batch_tokens": 512, "max_padding": 20, "world": world}
    ranks = [eval_batches(known, rank=rank, **how) for rank in range(world)]
    parts = [np.concatenate([m.items for m in same]) for same in zip(*ranks, strict=True)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(500))
    rest = np.sort(known)[::-1]
    for part, micro in zip(parts, ranks[0], strict=True):
        own, rest, next_one = rest[: len(part)], rest[len(part) :], rest[len(part) : len(part) + 1]
        assert sorted(known[part].tolist(), reverse=True) == own.tolist()
        assert micro.width == own[0]
        padding = (own[0] - own).sum()
        assert padding <= 20 * world
        full = len(part) == 512 // micro.width * world
        assert full or not len(next_one) or padding + own[0] - next_one[0] > 20 * world


@pytest.mark.parametrize("mode", MODES)
def test_a_million_items_are_planned_in_two_seconds(mode):
    known = lengths(1_000_000)
    start = time.process_time()  # other work may share the cores
    BatchSampler(known, world=8, rank=3, accumulate=2, **MODES[mode]).epoch(0)
    assert time.process_time() - start < 2.0


# Prefetching


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_results_come_in_order_and_only_so_many_ahead():
    made = []

    def make(x):
        made.append(x)
        return x * 10

    results = prefetch(make, range(20), depth=3)
    assert next(results) == 0
    deadline = time.perf_counter() + 5
    while len(made) < 5 and time.perf_counter() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert len(made) == 5  # one taken, three that wait, one in hand
    assert list(results) == [x * 10 for x in range(1, 20)]
    assert not workers()


@pytest.mark.parametrize("where", ["make", "work"])
def test_an_error_comes_out_in_its_place_with_its_traceback(where):
    def fail(x):
        if x == 3:
            raise KeyError("three")
        return x

    results = prefetch(fail, range(9)) if where == "make" else prefetch(int, map(fail, range(9)))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="three") as caught:
        next(results)
    assert any(entry.name == "fail" for entry in caught.traceback)
    assert not workers()
    assert list(results) == []


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_closing_ends_the_thread(taken):
    def endless():
        x = 0
        while True:
            yield x
            x += 1

    results = prefetch(lambda x: x, endless())
    for _ in range(taken):
        next(results)
    start = time.process_time()
    results.close()
    assert time.process_time() - start < 1.0
    assert not workers()


def test_leaving_a_loop_ends_the_thread():
    for x in prefetch(lambda x: x, range(1000)):
        if x == 2:
            break
    deadline = time.perf_counter() + 5
    while workers() and time.perf_counter() < deadline:
        time.sleep(0.001)
    assert not workers()


def test_work_is_done_while_the_caller_works():
    begun = [threading.Event() for _ in range(5)]

    def make(x):
        begun[x].set()
        return x

    for x in prefetch(make, range(5), depth=1):
        assert begun[min(x + 1, 4)].wait(timeout=5)
