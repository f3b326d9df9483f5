"""Every shipped recipe trains as it is, on a few examples in its format and a tiny encoder."""

import json
import re
from pathlib import Path

import pytest

from softf1.recipe import read_recipe, with_values
from softf1.recipe.loading import list_recipes
from tests.recipe.test_shipped import FILES
from tests.tasks.conftest import bert  # noqa: F401 - a fixture

run = pytest.importorskip("softf1.training.run")
TINY = {"train.max_steps": 2, "train.batch_size": 8, "task.max_length": 60, "train.eval_every": 1}
MANY = "一二三四五六七八九十百千"
ROOM = {
    "qa": {"task.overlap": 8, "task.max_question": 16},
    "mrc_ner": {"task.max_query": 16},
}
"""What leaves room for text in rows as short as those of the tiny encoder."""


def multiply(content):
    """The examples of a file a dozen times, with the ids and labels that this takes."""
    if content.startswith('{"version"'):
        document = json.loads(content)
        (paragraph,) = document["data"][0]["paragraphs"]
        copies = [json.loads(json.dumps(paragraph)) for _ in range(12)]
        for number, copy in enumerate(copies):
            copy["qas"][0]["id"] = str(number)
        document["data"][0]["paragraphs"] = copies
        return json.dumps(document)
    if content.startswith(("Quality", "id\t")):
        header, row, _ = content.split("\n")
        rows = [row.split("\t") for _ in range(12)]
        for number, cells in enumerate(rows):
            label, name = (0, 1) if header.startswith("Quality") else (-1, 0)
            cells[label], cells[name] = str(number % 2), str(100 + number)
        return "\n".join([header, *("\t".join(cells) for cells in rows), ""])
    if "news_story" in content:
        return "".join(
            re.sub("news_story", "news_tech" if n % 2 else "news_story", vary(content, n))
            for n in range(12)
        )
    return "".join(vary(content, n) for n in range(12))


def vary(content, number):
    """Other texts of the same form: those in train and dev must differ."""
    for old in ("我们", "张", "走", "小猫", "新的", "it was"):
        new = {"我们": "我" + MANY[number], "张": MANY[number], "走": MANY[number]}
        new |= {"小猫": MANY[number] + "猫", "新的": MANY[number] + "的"}
        content = content.replace(old, new.get(old, f"it was {number}"))
    return content


@pytest.mark.parametrize("name", FILES)
def test_recipe_trains(name, bert, tmp_path):  # noqa: F811 - the fixture
    recipe = read_recipe(name)
    values = dict(TINY, **{"train.accumulate": min(2, recipe.train.accumulate)})
    for split in ("train", "dev", "test"):
        if file := getattr(recipe.task, split):
            path = tmp_path / Path(file).name
            path.write_text(multiply(FILES[name][0]), "utf-8")
            values[f"task.{split}"] = str(path)
    if recipe.encoder.name != "textcnn":
        values["encoder.name"] = str(bert)
    values |= ROOM.get(recipe.task.kind, {})
    result = run.train_run(with_values(recipe, values), tmp_path / "run", quiet=True)
    assert result["steps"] == 2
    for scores in result["scores"].values():
        assert 0 <= scores[result["headline"]] <= 1
    assert (tmp_path / "run/model").is_dir()


def test_every_recipe_is_run():
    assert list(FILES) == list(list_recipes())
