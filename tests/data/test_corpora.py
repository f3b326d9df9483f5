"""Every reader over the real corpora, where they are: counts only."""

import pytest

from softf1.data import Problems, read, tags
from softf1.data.stats import describe, describe_new_labels

NEAREST = {"offsets": "nearest"}
REPLACE = {"encoding_errors": "replace"}

ROWS = [
    ("conll2003_en/eng.train", "conll", 14_041, {}),
    ("conll2003_en/eng.testa", "conll", 3_250, {}),
    ("conll2003_en/eng.testb", "conll", 3_453, {}),
    ("msra_ner/msra_train_bio", "chars", 45_000, {}),
    ("msra_ner/msra_test_bio", "chars", 3_442, {}),
    ("resume_ner/train.char.bmes", "chars", 3_821, {}),
    ("resume_ner/dev.char.bmes", "chars", 463, {}),
    ("resume_ner/test.char.bmes", "chars", 477, {}),
    ("ud_zh_1.4/zh-ud-train.conllu", "conllu", 3_997, {}),
    ("ud_zh_1.4/zh-ud-dev.conllu", "conllu", 500, {"tag": "xpos"}),
    ("ud_zh_1.4/zh-ud-test.conllu", "conllu", 500, {}),
    ("ritter_twitter_pos/pos.txt", "conll", 787, {}),
    ("squad_dev/dev-v1.1.rebuilt.json", "squad", 10_570, {}),
    ("squad_dev/dev-v2.0.rebuilt.json", "squad", 11_873, {}),
    ("quoref_dev/quoref-dev-v0.1.json", "quoref", 2_418, NEAREST),
    ("cmrc2018/cmrc2018_dev.json", "squad", 3_219, NEAREST),
    ("cmrc2018/cmrc2018_trial.json", "squad", 1_002, NEAREST),
    ("mrpc/train.tsv", "mrpc", 3_668, {}),
    ("mrpc/dev.tsv", "mrpc", 408, {}),
    ("mrpc/test.tsv", "mrpc", 1_725, {}),
    ("mrpc/msr_paraphrase_train.txt", "mrpc", 4_076, {}),
    ("mrpc/msr_paraphrase_test.txt", "mrpc", 1_725, {}),
    ("qqp_20k/dev.tsv", "tsv", 10_000, REPLACE),
    ("qqp_20k/test.tsv", "tsv", 10_000, REPLACE),
    ("sst2_sentence/stsa.binary.train", "lines", 6_920, {}),
    ("sst2_sentence/stsa.binary.dev", "lines", 872, {}),
    ("sst2_sentence/stsa.binary.test", "lines", 1_821, {}),
    ("sst5/stsa.fine.train", "lines", 8_544, {}),
    ("sst5/stsa.fine.dev", "lines", 1_101, {}),
    ("sst5/stsa.fine.test", "lines", 2_210, {}),
    ("tnews/train.json", "jsonl", 53_360, {}),
    ("tnews/test.json", "jsonl", 10_000, {}),
]


@pytest.mark.parametrize(
    ("name", "format_name", "count", "options"), ROWS, ids=[r[0] for r in ROWS]
)
def test_counts_are_the_published_ones(shared, name, format_name, count, options):
    corpus = read(shared / name, **options)
    assert (corpus.format, len(corpus)) == (format_name, count)
    assert corpus.problems.skipped == 0


def test_imbalance_of_conll_2003_is_the_papers(shared):
    stats = describe(read(shared / "conll2003_en/eng.train"))
    assert (stats.negatives, stats.positives) == (169_578, 34_043)
    assert round(stats.ratio, 2) == 4.98


@pytest.mark.parametrize(
    ("name", "scheme", "spans", "invalid"),
    [
        # Two B-MISC of the train set stand where IOB1 has no use for a B.
        ("conll2003_en/eng.train", "IOB1", 23_499, 2),
        ("conll2003_en/eng.testb", "IOB1", 5_648, 0),
        ("msra_ner/msra_test_bio", "BIO", 2_886 + 1_331 + 1_973, 0),
        ("resume_ner/dev.char.bmes", "BMES", None, 0),
    ],
)
def test_schemes_are_found_and_invalid_sequences_repaired(shared, name, scheme, spans, invalid):
    sentences = read(shared / name).examples
    assert tags.find_scheme(sentences).name == scheme
    problems = Problems()
    made = tags.convert(sentences, source=scheme, target="BIO", repair=True, problems=problems)
    checked = list(made)
    assert len(checked) == len(sentences)
    assert problems.changes.total() == invalid
    begins = sum(tag.startswith("B-") for sentence in checked for tag in sentence.tags)
    assert spans in (None, begins)


@pytest.mark.parametrize(("name", "count"), [("dev", 83), ("test", 72)])
def test_rows_that_are_not_utf8_are_counted(shared, name, count):
    skipped = read(shared / f"qqp_20k/{name}.tsv", on_error="skip")
    assert len(skipped) == 10_000 - count
    assert skipped.problems.counts == {"not UTF-8": count}
    replaced = read(shared / f"qqp_20k/{name}.tsv", encoding_errors="replace")
    assert replaced.problems.changes.total() == count


@pytest.mark.parametrize(
    ("name", "count"),
    [("quoref_dev/quoref-dev-v0.1.json", 49), ("cmrc2018/cmrc2018_dev.json", 176)],
)
def test_answers_that_are_not_at_their_offset_are_counted(shared, name, count):
    corpus = read(shared / name, on_error="skip")
    assert corpus.problems.counts == {"answer not at its offset": count}


def test_unanswerable_questions_and_answers_of_several_spans(shared):
    squad = read(shared / "squad_dev/dev-v2.0.rebuilt.json").examples
    assert sum(not example.answers for example in squad) == 5_945
    quoref = read(shared / "quoref_dev/quoref-dev-v0.1.json", offsets="nearest").examples
    assert all(len(example.answers) == 1 for example in quoref)
    assert max(len(example.answers[0].spans) for example in quoref) > 1


def test_labels_of_the_splits(shared):
    train, test = (read(shared / f"conll2003_en/eng.{part}") for part in ("train", "testb"))
    assert describe_new_labels(train, test) is None
