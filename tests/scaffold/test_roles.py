import pytest

from softf1.errors import InputError
from softf1.scaffold.survey import assign_roles


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (["c.txt", "b.txt", "a.txt"], ("c.txt", "b.txt", "a.txt")),
        (
            ["x/eng.testb", "x/eng.train", "x/eng.testa"],
            ("x/eng.train", "x/eng.testa", "x/eng.testb"),
        ),
        (
            ["zh-ud-dev.conllu", "zh-ud-train.conllu"],
            ("zh-ud-train.conllu", "zh-ud-dev.conllu", None),
        ),
        (["train.csv", "test.csv"], ("train.csv", None, "test.csv")),
        (["valid.csv", "all.csv"], ("all.csv", "valid.csv", None)),
        (["dev/a.txt", "train/a.txt"], ("train/a.txt", "dev/a.txt", None)),
        (["hf:x:y:validation", "hf:x:y:train"], ("hf:x:y:train", "hf:x:y:validation", None)),
        (["contest.csv", "latest.csv"], ("contest.csv", "latest.csv", None)),
        (["test.csv"], ("test.csv", None, None)),
    ],
)
def test_names_decide_then_order(paths, wanted):
    found = assign_roles(paths)
    assert tuple(found.get(role) for role in ("train", "dev", "test")) == wanted


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["a", "b", "c", "d"], "wanted at most a train, a dev and a test file, got 4"),
        (["train1.txt", "train.2.txt"], "wanted one train file, got train1.txt and train.2.txt"),
        (["dev.txt", "test.txt"], r"wanted a training file among them, got dev.txt \(dev\)"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(paths, message):
    with pytest.raises(InputError, match=message):
        assign_roles(paths)
