"""What a first user ran into: each mistake is one line that says what to do, and exit 2."""

import json
import os
import socket
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

from softf1.cli.main import main
from softf1.errors import LONGEST
from softf1.models.encoders import HUB_SECONDS

RECIPE = """
[task]
kind = "{kind}"
train = "{train}"
{more}
[encoder]
name = "{encoder}"
[train]
epochs = 1
"""
ROWS = "".join(
    f"{'win cash now' if i % 3 == 0 else 'see you at home'} {i},{'spam' if i % 3 == 0 else 'ham'}\n"
    for i in range(30)
)
SENTENCE = "Ann B-PER\nran O\nto O\nOslo B-LOC\n\n"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.conll").write_text(SENTENCE * 20)
    Path("dev.conll").write_text(SENTENCE * 4)
    Path("test.conll").write_text(SENTENCE * 3 + "Acme E-ORG\nran O\n")
    Path("msgs.csv").write_text(f"text,label\n{ROWS}")
    files = 'dev = "dev.conll"\ntest = "test.conll"'
    names = RECIPE.format(kind="tagging", train="train.conll", more=files, encoder="bilstm")
    Path("names.toml").write_text(names)
    spam = RECIPE.format(kind="classification", train="msgs.csv", more="", encoder="textcnn")
    Path("spam.toml").write_text(spam)


def softf1_says(capsys, *words, code=2):
    """The one line of an error, without the name of the command."""
    assert main(list(words)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err.strip().partition(": ")[2]


@pytest.fixture
def spam(capsys):
    """A run of a classifier."""
    assert main(["train", "spam.toml", "--out", "spam", "--quiet"]) == 0
    capsys.readouterr()
    return "spam"


WRONG_TAG = (
    "test.conll:16: wanted O or a tag of BIO (B-, I-), as the training data has; got 'E-ORG'"
)


@pytest.mark.parametrize(
    "words",
    [
        ["new", "train.conll", "dev.conll", "test.conll"],
        ["train", "names.toml", "--out", "run", "--dry-run"],
        ["train", "names.toml", "--out", "run"],
        ["train", "names.toml", "--out", "run", "--resume"],
        ["compare", "names.toml", "--out", "run"],
        ["sweep", "names.toml", "train.lr=1e-3,1e-4", "--out", "run"],
    ],
)
def test_one_e_org_in_a_bio_test_file(words, capsys):
    assert softf1_says(capsys, *words) == WRONG_TAG
    assert not Path("run").exists()
    assert not Path("recipe.toml").exists()


@pytest.mark.parametrize("files", [["test.conll"], ["train.conll", "test.conll"]])
def test_one_e_org_in_a_file_to_describe(files, capsys):
    said = "test.conll:16: wanted O or a tag of BIO (B-, I-), as the other tags are; got 'E-ORG'"
    assert main(["stats", *files]) == 0
    out, err = capsys.readouterr()
    assert "test.conll: 4 examples, conll, tagging" in out
    assert f"note: {said}\n" in err
    assert main(["stats", *files, "--json"]) == 0
    assert said in json.loads(capsys.readouterr().out)["files"][-1]["notes"]


@pytest.mark.parametrize("tags", ["NOUN VERB S NOUN B", "B-X E-X S-X O B-Y I-Y E-Y", "I-X B-X O"])
def test_tags_of_one_kind_are_not_odd(tags, capsys):
    words = "\n".join(f"w{n} {tag}" for n, tag in enumerate(tags.split()))
    Path("other.conll").write_text(f"{words}\n\n" * 3)
    assert main(["stats", "other.conll", "--format", "conll"]) == 0
    assert "wanted" not in capsys.readouterr().err


def test_one_e_org_in_a_file_to_evaluate_on(capsys):
    assert main(["train", "names.toml", "task.test=dev.conll", "--out", "run", "--quiet"]) == 0
    capsys.readouterr()
    assert softf1_says(capsys, "evaluate", "run", "--data", "test.conll") == WRONG_TAG


@pytest.mark.parametrize("tag", ["BLOC", "b-LOC", "E-LOC"])
@pytest.mark.parametrize(
    "words",
    [
        ["new", "typo.conll", "dev.conll"],
        ["train", "names.toml", "task.train=typo.conll", "task.test=dev.conll", "--out", "run"],
        ["suspects", "typo.conll", "--encoder", "bilstm", "--out", "run"],
    ],
)
def test_a_typo_in_one_tag_of_the_training_data(words, tag, capsys):
    """It would turn the F1 of spans into the accuracy of tags."""
    Path("typo.conll").write_text(f"{SENTENCE * 20}Rome {tag}\nslept O\n")
    said = f"typo.conll:101: wanted O or a tag of BIO (B-, I-), as the other tags are; got {tag!r}"
    assert softf1_says(capsys, *words) == said
    assert not Path("run").exists()
    assert not Path("recipe.toml").exists()


def test_an_encoder_that_does_not_fit_the_task(capsys):
    found = softf1_says(capsys, "new", "train.conll", "--task", "span_ner", "--encoder", "bilstm")
    wanted = "wanted a pretrained encoder (minilm, a folder, a Hub name) for task span_ner"
    assert found == f"encoder.name: {wanted}, got bilstm"
    assert not Path("recipe.toml").exists()


def test_a_positive_label_of_three(capsys):
    Path("three.csv").write_text(f"text,label\n{ROWS}what is it,other\n")
    values = ["task.train=three.csv", "task.dev=msgs.csv"]
    found = softf1_says(capsys, "train", "spam.toml", *values, "task.positive=spam")
    assert found == "wanted two labels beside the option positive, got 3: ham, other, spam"
    found = softf1_says(capsys, "train", "spam.toml", "task.positive=spam", "task.multi_label=true")
    assert found == "wanted two labels beside the option positive, got multi_label"


def test_a_dev_file_without_labels(capsys):
    Path("dev.csv").write_text("id,text,labelx\n1,see you,ham\n2,win cash,spam\n")
    found = softf1_says(capsys, "train", "spam.toml", "task.dev=dev.csv", "--out", "run")
    wanted = "dev.csv:2: wanted a column for the label (label, labels, …), got the columns "
    hint = "--set label=NAME (in a recipe, task.reader.label=NAME)"
    end = f"; choose one by name or number with {hint}"
    assert found == f"{wanted}id, text, labelx{end}"
    several = ["task.dev=dev.csv", "task.multi_label=true", "--out", "run"]
    assert softf1_says(capsys, "train", "spam.toml", *several) == found
    Path("dev.csv").write_text("text\nsee you\nwin cash\n")
    found = softf1_says(capsys, "train", "spam.toml", "task.dev=dev.csv", "--dry-run")
    assert found == f"{wanted}text{end}"
    assert not Path("run").exists()


def test_a_file_to_evaluate_without_labels(spam, capsys):
    Path("bare.csv").write_text("text\nsee you\nwin cash\n")
    found = softf1_says(capsys, "evaluate", spam, "--data", "bare.csv")
    assert found.startswith("bare.csv:2: wanted a column for the label (label, labels, …), got the")
    assert main(["predict", spam, "bare.csv"]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    Path("bare.txt").write_text("see you\nwin cash\n")
    found = softf1_says(capsys, "evaluate", spam, "--data", "bare.txt", "--format", "plain")
    assert found == "bare.txt:1: wanted a label to learn from or to score against, got none"


def test_data_in_place_of_a_recipe(capsys):
    found = softf1_says(capsys, "train", "msgs.csv")
    assert found.startswith("msgs.csv:1: wanted TOML, got: ")
    assert found.endswith("; for a data file, write a recipe first: softf1 new msgs.csv")
    Path("bad.toml").write_text("[task\n")
    assert "softf1 new" not in softf1_says(capsys, "train", "bad.toml")


def test_a_sweep_over_a_key_that_is_not_there(capsys):
    found = softf1_says(capsys, "sweep", "names.toml", "loss.alphaa=0.1,0.2", "--out", "grid")
    assert found.startswith("loss.alphaa: cross_entropy_loss has no option 'alphaa'; it has")
    assert not Path("grid").exists()


def test_train_of_a_folder(spam, capsys):
    found = softf1_says(capsys, "train", spam)
    assert found == (
        "spam: wanted a recipe, a TOML file; got a folder; its recipe is spam/recipe.toml"
    )


def test_task_taging(capsys):
    for verb in ("new", "stats"):
        found = softf1_says(capsys, verb, "train.conll", "--task", "taging")
        assert found.startswith("unknown task 'taging' (did you mean tagging?); known: tagging")


def test_a_csv_of_a_header_alone(capsys):
    Path("bare.csv").write_text("text,label\n")
    for verb in ("new", "stats"):
        assert "and no rows below that header" in softf1_says(capsys, verb, "bare.csv")


def test_key_nmae(capsys):
    Path("wrong.toml").write_text(Path("spam.toml").read_text().replace("name =", "nmae ="))
    found = softf1_says(capsys, "train", "wrong.toml")
    assert found.startswith("wrong.toml:7: encoder.nmae: unknown key (did you mean name?)")


def test_label_columns_of_another_name(capsys):
    Path("kinds.csv").write_text(f"text,kind\n{ROWS}")
    found = softf1_says(capsys, "new", "kinds.csv")
    wanted = "kinds.csv: wanted a column of labels, got text, kind: say which with --set label=NAME"
    assert found == wanted
    Path("both.csv").write_text(f"said,kind\n{ROWS}")
    found = softf1_says(capsys, "new", "both.csv")
    assert found.endswith(
        "'said', 'kind', say which: --set text=NAME --set label=NAME (in a recipe, "
        "task.reader.text and task.reader.label)"
    )
    assert main(["new", "both.csv", "--set", "text=said", "--set", "label=kind"]) == 0
    assert 'label = "kind"' in Path("recipe.toml").read_text()


def test_predict_on_lines_of_text(spam, capsys):
    Path("msgs.txt").write_text("win cash now\nsee you\n")
    found = softf1_says(capsys, "predict", spam, "msgs.txt")
    assert found.endswith("use --format plain for lines of text without labels")
    assert main(["predict", spam, "msgs.txt", "--format", "plain"]) == 0
    capsys.readouterr()
    Path("msgs.txt").write_text("hello, win cash now\nsee you, bye\n")
    found = softf1_says(capsys, "predict", spam, "msgs.txt")
    assert found.endswith("use --format plain for lines of text without labels")


def in_child(words, prepare):
    """Exit code, output and errors of a command in a copy of this process that was prepared."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            code = 99
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8") for n in (1, 2))
                prepare()
                code = main([os.fsdecode(word) for word in words])
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
            except BaseException:  # noqa: BLE001 - for the parent to see
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return code, *texts


POSIX = pytest.mark.skipif(os.name != "posix", reason="wants fork")


@POSIX
def test_an_unlabelled_csv_on_the_standard_input(capsys):
    Path("kinds.csv").write_text(f"text,kind\n{ROWS}")
    options = ["task.train=kinds.csv", "task.format=csv", "task.reader.label=kind"]
    assert main(["train", "spam.toml", *options, "--out", "run", "--quiet"]) == 0
    capsys.readouterr()
    Path("bare.csv").write_text("text\nwin cash now\nsee you\n")

    def prepare():
        os.dup2(os.open("bare.csv", os.O_RDONLY), 0)

    code, out, err = in_child(["predict", "run", "-"], prepare)
    assert code == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["text"] for line in lines] == ["win cash now", "see you"]


def test_a_standard_input_of_unknown_format(spam, capsys):
    found = softf1_says(capsys, "predict", spam, "-")
    assert found.startswith("wanted --format with - (such as csv, or plain for lines of text)")


@pytest.mark.parametrize("offline", [True, False])
def test_an_unknown_encoder_is_refused_at_once(offline, monkeypatch, capsys):
    asked = []

    def refuse(_self, name, **how):
        asked.append((name, how["timeout"]))
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    found = softf1_says(capsys, "train", "spam.toml", "encoder.name=no/such-encoder")
    reason = "and not in the cache (HF_HUB_OFFLINE is set)"
    if not offline:
        reason = "not in the cache, and the Hub cannot be reached (Name or service not known)"
    assert found.endswith(f"got 'no/such-encoder': no such folder, {reason}")
    assert asked == ([] if offline else [("no/such-encoder", HUB_SECONDS)])


def test_a_folder_that_is_no_encoder_is_named(capsys):
    Path("no-encoder").mkdir()
    found = softf1_says(capsys, "train", "spam.toml", "encoder.name=no-encoder")
    assert found.endswith("got 'no-encoder': a folder without config.json")


def test_an_unknown_encoder_without_a_network_is_not_asked_for_again_and_again(monkeypatch, capsys):
    asked = []

    def refuse(host, *_, **__):
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    found = softf1_says(capsys, "train", "spam.toml", "encoder.name=no/such-encoder")
    assert "the Hub cannot be reached" in found
    assert len(asked) <= 2, asked  # the question, and what its headers ask for; no retries


def test_a_latin_1_file(capsys):
    rows = f"text,label\n{ROWS}".replace("home", "café")
    Path("latin.csv").write_bytes(rows.encode("latin-1"))
    for verb in ("stats", "new"):
        found = softf1_says(capsys, verb, "latin.csv")
        assert found.startswith("latin.csv:3: wanted UTF-8 text, got byte 0xe9; use --encoding")
    found = softf1_says(capsys, "train", "spam.toml", "task.train=latin.csv")  # has no --encoding
    assert "to train, task.encoding=latin-1" in found
    replaced = ["task.train=latin.csv", "task.reader.encoding_errors=replace"]
    assert main(["train", "spam.toml", *replaced, "--dry-run"]) == 0
    assert main(["new", "latin.csv", "--encoding", "latin-1"]) == 0
    values = ["encoder.name=textcnn", "train.epochs=1"]
    assert main(["train", "recipe.toml", *values, "--out", "run", "--quiet"]) == 0
    values = ["task.train=latin.csv", "task.encoding=latin-1"]
    assert main(["train", "spam.toml", *values, "--out", "other", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "run", "--data", "latin.csv"]) == 0  # as in training
    assert main(["predict", "run", "latin.csv", "--out", "found.jsonl"]) == 0
    lines = [json.loads(line) for line in Path("found.jsonl").read_text("utf-8").splitlines()]
    assert lines[1]["text"] == "see you at café 1"
    capsys.readouterr()
    found = softf1_says(capsys, "stats", "latin.csv", "--encoding", "latin-99")
    assert found == "wanted the name of an encoding, such as latin-1, got 'latin-99'"


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "shift-jis", "gb18030"])
def test_other_encodings(encoding):
    from softf1.data import read

    text = "text,label\n" + ("Zoë,a\n" if encoding == "cp1252" else "東京,a\n") * 100_000
    Path("other.csv").write_bytes(text.encode(encoding))
    found = read("other.csv", encoding=encoding)
    assert len(found) == 100_000
    assert {one.text for one in found.examples} == {text[11:].partition(",")[0]}


# What reaches the terminal


def test_escapes_of_a_terminal_in_labels_and_file_names(capsys):
    Path("\x1b[2Jevil.csv").write_text(f"text,label\n{ROWS}".replace("spam", "sp\x1b]0;x\x07am"))
    values = ["task.train=\x1b[2Jevil.csv", "task.dev=\x1b[2Jevil.csv", "--out", "run\x1b[1m"]
    assert main(["train", "spam.toml", *values]) == 0
    assert main(["evaluate", "run\x1b[1m", "--data", "\x1b[2Jevil.csv"]) == 0
    assert main(["predict", "run\x1b[1m", "\x1b[2Jevil.csv", "--out", "x\x1b[1m"]) == 0
    assert main(["stats", "\x1b[2Jevil.csv"]) == 0
    assert main(["new", "\x1b[2Jevil.csv", "--out", "\x1b[1m.toml"]) == 0
    assert main(["evaluate", "run\x1b[1m", "--data", "\x1b[9mnone.csv"]) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    assert "sp\\x1b]0;x\\x07am" in out
    assert "\\x1b[9mnone.csv" in err


def test_error_lines_are_cut(capsys):
    found = softf1_says(capsys, "stats", "x" * 100_000)
    assert found.startswith("x" * 100)
    assert len(found) < LONGEST + 20


@POSIX
def test_a_standard_output_that_is_not_utf8(spam):
    def prepare():
        sys.stdout.reconfigure(encoding="ascii")

    Path("msgs.csv").write_text(Path("msgs.csv").read_text().replace("spam", "späm"))
    for words in (["list"], ["evaluate", spam, "--data", "msgs.csv"]):
        code, out, err = in_child(words, prepare)
        assert code == 0, err
        assert out.isascii()
    assert "sp\\xe4m" in out


@POSIX
def test_a_closed_standard_output(spam):
    def prepare():
        sys.stdout = None

    assert in_child(["list"], prepare) == (0, "", "")
    code, _, err = in_child(["predict", spam, "msgs.csv"], prepare)
    wanted = "softf1 predict: wanted --out, since the standard output is closed\n"
    assert (code, err) == (2, wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_path_that_is_not_utf8():
    name = b"m\xff.csv"
    Path(os.fsdecode(name)).write_bytes(Path("msgs.csv").read_bytes())
    for words, wanted in (
        (["stats", name], 0),
        (["new", name, "--out", b"\xfe.toml"], 2),
        (["new", "msgs.csv", "--out", b"\xfe.toml"], 2),
        (["train", "spam.toml", b"task.train=" + name, "--out", "run"], 2),
        (["train", b"\xfd.toml"], 2),
        (["predict", b"\xfd", name], 2),
    ):
        code, _, err = in_child(words, lambda: None)
        assert code == wanted, err
        assert "Traceback" not in err


# A full disk


def fill_disk(most):
    """No file may be longer than `most` bytes, as on a disk that is full."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


@POSIX
@pytest.mark.parametrize("most", [300, 3_000, 20_000])
def test_a_full_disk_at_train(most):
    words = ["train", "spam.toml", "--out", "run", "--quiet"]
    code, _, err = in_child(words, lambda: fill_disk(most))
    assert code == 1, err
    assert err.startswith("softf1 train: ")
    assert err.count("\n") == 1
    assert not Path("run/result.json").exists()


@POSIX
def test_a_full_disk_at_new_leaves_no_empty_recipe():
    code, _, err = in_child(["new", "msgs.csv"], lambda: fill_disk(300))
    assert (code, err.count("\n")) == (1, 1), err
    assert not Path("recipe.toml").exists()
    assert main(["new", "msgs.csv"]) == 0


# Values that used to end in a traceback


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("loss.dice.exclude=7", r"loss.exclude: wanted the number of a label, from 0 to 2, got 7"),
        ("loss.dice.exclude=0.5", r"loss.dice.exclude: wanted labels or their numbers, got 0.5"),
        ("encoder.hidden_size=1", r"encoder.hidden_size: wanted a number from 2, got 1"),
    ],
)
def test_values_that_no_training_could_have(value, wanted, capsys):
    values = ["task.test=dev.conll", "loss.name=ce+dice", value]
    assert wanted in softf1_says(capsys, "train", "names.toml", *values, "--out", "run")
    assert not Path("run").exists()


def test_a_learning_rate_of_100000_with_tuning(capsys):
    values = ["train.lr=1e5", "train.weight_decay=1e12", "eval.tune=true", "train.epochs=3"]
    assert main(["train", "spam.toml", *values, "--out", "run", "--quiet"]) == 0
    assert "nothing was tuned; try a lower train.lr" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"[]", b"null", b"\xff\xfe", b"{", b"[" * 100_000])
def test_a_result_that_is_none(spam, content, capsys):
    Path(spam, "result.json").write_bytes(content)
    found = softf1_says(capsys, "train", "spam.toml", "--out", spam)
    assert found.startswith("spam/result.json: wanted ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "spam.toml"], "interrupted; the same command continues"),
        (["sweep", "spam.toml", "train.lr=1e-3", "--force"], "command without --force continues"),
        (["train", "spam.toml"], "interrupted"),
    ],
)
def test_ctrl_c_says_how_to_go_on(words, said, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("softf1.recipe.read_recipe", interrupt)
    assert softf1_says(capsys, *words, code=1).endswith(said)


def test_a_format_without_its_task(capsys):
    Path("semi.csv").write_text(f"text,label\n{ROWS}".replace(",", ";"))
    assert main(["stats", "semi.csv", "--format", "csv"]) == 0
    assert main(["new", "semi.csv", "--format", "csv", "--encoder", "textcnn"]) == 0
    assert main(["train", "recipe.toml", "--dry-run"]) == 0  # with the semicolon
    capsys.readouterr()
    found = softf1_says(capsys, "stats", "train.conll", "--format", "csv")
    assert found.startswith("train.conll: wanted the task of this file, one of classification")
