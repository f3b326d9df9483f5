"""Small files of every kind of task, written for these tests."""

import json

NAMES = ("Ada", "Bruno", "Carla", "Dmitri", "Elif", "Farid")
PLACES = ("Graz", "Oslo", "Lima", "Bonn")


def tagged(sentences=40):
    """CoNLL columns; one sentence in four has a person, one in eight a place."""
    rows = []
    for n in range(sentences):
        words = [("it", "O"), ("was", "O"), ("the", "O"), ("day", "O"), (f"no{n}", "O")]
        if n % 4 == 0:
            words += [("that", "O"), (NAMES[n % 6], "B-PER"), ("Moss", "I-PER"), ("left", "O")]
        if n % 8 == 0:
            words += [("for", "O"), (PLACES[n % 4], "B-LOC")]
        rows.append("".join(f"{word} {tag}\n" for word, tag in words))
    return "\n".join(rows)


def parts_of_speech(sentences=20):
    """Plain tags without a background."""
    one = "the/DT dog/NN saw/VBD a/DT cat/NN in/IN the/DT garden/NN"
    two = "she/PRP will/MD run/VB to/TO the/DT old/JJ house/NN"
    return "".join(f"{(one, two)[n % 2]}\n" for n in range(sentences))


def headlines(rows=40):
    """Four topics, one of them rare."""
    topics = ["sport"] * 5 + ["money"] * 3 + ["travel"]
    lines = [f"{topics[n % 9]},the report number {n} is out and it was read" for n in range(rows)]
    return "label,text\n" + "\n".join([*lines, "opera,the tenor was ill"]) + "\n"


def spam(rows=40):
    """Two labels, one in eight is the rare one, which stands first in the alphabet."""
    lines = [
        {
            "text": f"you have won prize {n}" if n % 8 == 0 else f"see you at {n} in the office",
            "label": "hate" if n % 8 == 0 else "none",
        }
        for n in range(rows)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def topics(rows=40):
    """Any number of labels a text."""
    sets = [["art"], ["art", "law"], [], ["law", "sea"], ["art"]]
    lines = [{"text": f"this is the text {n}", "label": sets[n % 5]} for n in range(rows)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def pairs(rows=40):
    lines = [
        f"{int(n % 6 == 0)}\tis it raining in {PLACES[n % 4]}?\tdoes it rain there at {n}?"
        for n in range(rows)
    ]
    return "label\tsentence1\tsentence2\n" + "\n".join(lines) + "\n"


def questions(*, without=0, chinese=False):
    """SQuAD's form: six questions, some without an answer."""
    context = "It was a cold day in Graz and Ada Moss was in the house with her dog."
    answer, asked = "Ada Moss", "who was in the house"
    if chinese:
        context, answer, asked = (
            "今天很冷，安达在格拉茨的家里，和她的狗在一起。",
            "安达",
            "谁在家里",
        )
    articles = []
    for n in range(6):
        answers = [] if n < without else [{"text": answer, "answer_start": context.find(answer)}]
        qa = {"id": f"q{n}", "question": f"{asked} {n}?", "answers": answers}
        if without:
            qa["is_impossible"] = n < without
        own = f"{context} {n}"
        articles.append({"title": f"t{n}", "paragraphs": [{"context": own, "qas": [qa]}]})
    return json.dumps({"version": "2.0" if without else "1.1", "data": articles})


def queries(items=24):
    """BERT-MRC's form."""
    return json.dumps(
        [
            {
                "qas_id": f"{n}.1",
                "query": "find the people in the text",
                "context": f"it was {NAMES[n % 6]} Moss who left" if n % 3 == 0 else "it was cold",
                "entity_label": "PER",
                "start_position": [2] if n % 3 == 0 else [],
                "end_position": [3] if n % 3 == 0 else [],
                "span_position": ["2;3"] if n % 3 == 0 else [],
                "impossible": n % 3 != 0,
            }
            for n in range(items)
        ]
    )
