"""A small made-up corpus to tag: people and places among other words, some of it mislabelled."""

import random

NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eva", "Finn"]
PLACES = ["Rome", "Oslo", "Lima", "Cairo"]
WORDS = ["the", "old", "red", "bell", "house", "quietly", "again", "today", "never"]

RECIPE = """
[task]
kind = "tagging"
train = "train.conll"
dev = "dev.conll"
test = "test.conll"

[encoder]
name = "bilstm"
word_size = 16
hidden_size = 16

[train]
epochs = 5
batch_size = 16
lr = 0.03
"""

TEXTS = """
[task]
kind = "classification"
train = "train.csv"
dev = "dev.csv"
test = "test.csv"

[encoder]
name = "textcnn"
embedding_size = 16
filters = 8

[train]
epochs = 4
batch_size = 16
lr = 0.01
"""


def make_sentence(rng):
    words = [(rng.choice(WORDS), "O") for _ in range(rng.randint(4, 9))]
    for names, tag, share in ((NAMES, "B-PER", 0.6), (PLACES, "B-LOC", 0.3)):
        if rng.random() < share:
            words.insert(rng.randrange(len(words) + 1), (rng.choice(names), tag))
    return [(w if rng.random() > 0.1 else rng.choice(WORDS + NAMES), tag) for w, tag in words]


def write_corpus(folder, *, train=100, held_out=60):
    """Write the corpus and its recipe; give the recipe's path."""
    for seed, (name, size) in enumerate(
        {"train": train, "dev": held_out, "test": held_out}.items()
    ):
        rng = random.Random(seed)
        sentences = (make_sentence(rng) for _ in range(size))
        text = "\n".join("".join(f"{w} {t}\n" for w, t in sentence) for sentence in sentences)
        (folder / f"{name}.conll").write_text(text, "utf-8")
    path = folder / "tiny.toml"
    path.write_text(RECIPE, "utf-8")
    return path


def write_texts(folder, lines="", *, size=60):
    """Write texts, labelled by whether they name a place, and their recipe with `lines` added."""
    for seed, name in enumerate(("train", "dev", "test")):
        rng = random.Random(seed)
        rows = ["text,label"]
        for _ in range(size):
            words, tags = zip(*make_sentence(rng), strict=True)
            rows.append(f"{' '.join(words)},{'yes' if 'B-LOC' in tags else 'no'}")
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n", "utf-8")
    path = folder / "texts.toml"
    path.write_text(TEXTS + lines, "utf-8")
    return path
