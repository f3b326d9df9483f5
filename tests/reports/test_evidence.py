from softf1.reports.evidence import LONGEST, Record, collect, mark_spans, rank_changes
from softf1.reports.reading import Item


def item(name, gold, found, words=("a", "b", "c")):
    return Item(id=name, words=words, gold=frozenset(gold), predicted=frozenset(found))


PER, LOC, BAD = (0, 1, "PER"), (1, 2, "LOC"), (2, 3, "ORG")


def gather(*runs):
    records = []
    assert all(collect(records, items) for items in runs)
    return records


def test_examples_are_ranked_by_errors_a_run_whatever_the_number_of_runs():
    before = gather([item("1", {PER}, set()), item("2", {PER, LOC}, {PER, BAD})])
    after = gather(
        [item("1", {PER}, {PER}), item("2", {PER, LOC}, {PER})],
        [item("1", {PER}, set()), item("2", {PER, LOC}, {PER, LOC})],
    )
    changes = rank_changes(before, after, runs=(1, 2))
    assert [(change.id, change.gain) for change in changes.kept] == [("2", 1.5), ("1", 0.5)]
    assert (changes.better, changes.worse) == (2, 0)
    finds = {(find.label, find.right, find.before, find.after) for find in changes.kept[0].finds}
    assert finds == {("ORG", False, 1, 0), ("LOC", True, 0, 1)}  # PER: found by all, so not told


def test_only_the_most_changed_are_kept_and_all_are_counted():
    before = gather([item(str(n), {PER}, {PER}) for n in range(20)])
    after = gather([item(str(n), {PER}, set()) for n in range(20)])
    changes = rank_changes(before, after, runs=(1, 1), limit=5)
    assert [change.id for change in changes.kept] == ["0", "1", "2", "3", "4"]
    assert (changes.better, changes.worse) == (0, 20)


def test_other_examples_are_noticed():
    records = gather([item("1", {PER}, set())])
    assert not collect(records, [item("2", {PER}, set())])
    assert not collect(records, [item("1", {PER}, set(), words=("x", "b", "c"))])
    assert not collect(records, [item("1", {PER}, set())] * 2)
    assert not collect(records, [])


def test_every_answer_that_was_right_once_is_right():
    def answer(gold, found):
        return Item(id="1", text="?", gold=frozenset({gold}), predicted=frozenset({found}))

    before = gather([answer("a boat", "a ship")])
    after = gather([answer("a boat", "a boat")], [answer("the boat", "the boat")])
    (change,) = rank_changes(before, after, runs=(1, 2)).kept
    right = {find.label: find.right for find in change.finds}
    assert right == {"a ship": False, "a boat": True, "the boat": True}


def test_text_is_cut_at_gold_spans_and_at_its_limit():
    assert mark_spans(item("1", {PER, (0, 2, "LOC")}, set())) == (("a b", "LOC"), ("c", ""))
    assert mark_spans(item("1", {PER, LOC, BAD}, set())) == (
        ("a b c", ""),
    )  # all labelled: no marks
    words = tuple("word" for _ in range(5000))
    text = " ".join(piece for piece, _ in mark_spans(item("1", {PER}, set(), words=words)))
    assert len(text) <= LONGEST + 10
    assert (
        len(
            mark_spans(Item(id="1", text="x" * 5000, gold=frozenset(), predicted=frozenset()))[0][0]
        )
        == LONGEST
    )


def test_a_record_counts_errors_and_votes():
    record = Record(item("1", {PER}, set()))
    record.add(item("1", {PER}, {LOC}))
    assert (record.errors, dict(record.votes), record.right) == (2, {LOC: 1}, set())
