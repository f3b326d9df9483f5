import pytest

from softf1.data import Problems, TaggedSentence, hf, read
from softf1.errors import InputError

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def save(folder, rows, features=None):
    datasets.Dataset.from_list(rows, features=features).save_to_disk(str(folder))
    return f"hf:{folder}"


def test_a_dataset_needs_a_name():
    with pytest.raises(InputError, match=r"^hf:: wanted a name after hf:, such as hf:conll2003"):
        read("hf:")


def test_tagged_words(tmp_path):
    features = datasets.Features(
        {
            "tokens": datasets.List(datasets.Value("string")),
            "ner_tags": datasets.List(datasets.ClassLabel(names=["O", "B-PER"])),
        }
    )
    rows = [{"tokens": ["Ada", "ran"], "ner_tags": [1, 0]}, {"tokens": ["x"], "ner_tags": [0, 0]}]
    name = save(tmp_path / "set", rows, features)
    corpus = read(name, on_error="skip")
    assert (corpus.format, corpus.task) == ("hf", "tagging")
    assert corpus.examples == [TaggedSentence(("Ada", "ran"), ("B-PER", "O"), 1)]
    assert corpus.problems.counts == {"words and tags differ": 1}
    with pytest.raises(InputError, match=r":2: wanted as many tags as words"):
        read(name)
    with pytest.raises(InputError, match=r"wanted the column pos \(option tag\), got tokens"):
        read(name, tag="pos")


def test_questions(tmp_path):
    answers = {"text": ["Oslo"], "answer_start": [7]}
    row = {"id": "q", "context": "She is in Oslo", "question": "Where?", "answers": answers}
    name = save(tmp_path / "set", [row])
    with pytest.raises(InputError, match=r":1: wanted 'Oslo' at offset 7.*found at 10"):
        read(name)
    with pytest.raises(InputError, match="wanted no encoding_errors, which only formats of lines"):
        read(name, offsets="nearest", encoding_errors="replace")
    (example,) = read(name, offsets="nearest").examples
    assert example.answers[0].spans == ((10, 14),)


def test_pairs_with_hidden_labels(tmp_path):
    features = datasets.Features(
        {
            **{key: datasets.Value("string") for key in ("sentence1", "sentence2")},
            "label": datasets.ClassLabel(names=["other", "same"]),
        }
    )
    rows = [{"sentence1": "a", "sentence2": "b", "label": n} for n in (1, 0, -1)]
    pairs = read(save(tmp_path / "set", rows, features)).examples
    assert [pair.label for pair in pairs] == ["same", "other", None]


def test_folder_of_files_with_splits(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"text": "a b", "labels": ["x", "y"]}\n')
    (folder / "test.jsonl").write_text('{"text": "c d", "labels": ["z"]}\n')
    train, test = read(f"hf:{folder}"), read(f"hf:{folder}::test")
    assert train.examples[0].labels == ("x", "y")
    assert test.examples[0].labels == ("z",)
    assert any("split train, 1 rows" in note for note in train.problems.notes)
    with pytest.raises(InputError, match="wanted the split 'dev', got the splits "):
        read(f"hf:{folder}::dev")


def test_what_cannot_be_loaded(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"^hf:.*: wanted a dataset, got: "):
        read(f"hf:{tmp_path / 'none'}")
    with pytest.raises(InputError, match="wanted columns of a known task, got number"):
        read(save(tmp_path / "set", [{"number": 1}]))
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(InputError, match="datasets library, which is not installed"):
        list(hf.iterate("hf:any", task="qa", problems=Problems()))
