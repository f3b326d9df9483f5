"""Tagging: one tag for every word or character, predicted at its first piece."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from softf1.data.examples import SpanSentence, TaggedSentence
from softf1.data.problems import Problems, RecordError
from softf1.errors import InputError
from softf1.metrics.classification import accuracy
from softf1.metrics.headroom import LONG
from softf1.metrics.operating import F1, Point, Target, Units
from softf1.metrics.schemes import (
    LENIENT,
    OUTSIDE,
    SCHEMES,
    count_nested,
    describe_odd_tag,
    detect_scheme,
    encode_spans,
    repair_tags,
)
from softf1.models.crf import add_crf, conditional_logits, marginal_logits
from softf1.models.encoders import Head, find_output
from softf1.options import look_up
from softf1.tasks.base import (
    DIGITS,
    IGNORE,
    Batch,
    Features,
    Logits,
    Prediction,
    describe_collapse,
    describe_counts,
    describe_unseen,
    to_probabilities,
)
from softf1.tasks.card import NOT_TUNED, SEEN_ONLY, CardText, describe_bars, describe_biases
from softf1.tasks.headroom import (
    NO_LOGITS,
    Headroom,
    list_units,
    measure_spans,
    measure_tags,
    sweep_tags,
)
from softf1.tasks.labels import tune_classes
from softf1.tasks.rows import Amount, Flat, Ints, PaddedRows, Parts, TextTask, offsets
from softf1.tasks.sentences import Numbering, SentenceEncoder, chunks, window_tokens, word_places
from softf1.tasks.suspects import Suspects, find_suspect_tags
from softf1.tasks.tags import (
    by_word,
    check_tags,
    count_sentence,
    count_tags,
    count_transitions,
    decode_biased,
    decode_sequences,
    describe_invalid,
    find_entities,
    find_tag_scheme,
    read_sentence,
    span_labels,
    split_characters,
    tune_spans,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from softf1.models.tokenizers import Tokenizer
    from softf1.tasks.base import LineCounts, Predict

NO_TAG = ""
"""Stands in for the tags of a file that has none."""

PLAIN_TAGS = 'tags that make up no spans are for unit "joint", or "word" without a scheme'

CODE = """from transformers import pipeline

tag = pipeline("token-classification", model="{folder}", aggregation_strategy="first")
tag("A sentence to tag.")"""


PIPELINE_WORDS = (
    "A pipeline splits a text in its own way: a word with punctuation inside, such as O'Neil, "
    "comes apart and may be several entities there."
)
OF_CRF = (
    "softf1 chooses the best sequence of tags, with a CRF whose transitions are in the weights "
    "(`crf.transitions`). A pipeline of transformers leaves them out and takes the best tag of "
    "each word alone, so it may give sequences that the tag scheme does not allow."
)


@dataclass(frozen=True)
class Tagging(TextTask):
    """Named entities, parts of speech, segmentation.

    Attributes:
        unit: The unit that gets a tag: "word" (also for files with one character per line),
            "character" (splits words, keeps their spans), or "joint" (splits words and makes each
            word a span: segmentation and part of speech in one, scored as in the paper).
        scheme: Convert tags to this scheme; None keeps the scheme of the file, and takes BMES
            for characters.
        format: Format of the files; None detects it.
        reader: Options of the reader.
        max_length: The maximum ids per row, with special tokens; None is the encoder's default.
        overlap: Pieces that two windows of a long sentence share; None is a quarter.
        decoder: How tags are chosen: "argmax" takes the best tag of each word. "crf" takes the
            best sequence, with a score for each pair of adjacent tags, and learns by the
            likelihood of whole sequences. "crf-marginals" decodes in the same way, but the loss
            sees the probability of each tag over all sequences.
        labels: Tags that can be predicted, from the training data.
        spans: The scheme of the tags, if they mark spans.
        biases: Added to the logits, one per label; tuned on dev.
        bars: The minimum confidence of the spans of each label, chosen on dev; `abstain` leaves out
            predictions below it.
        transitions: Initial transitions of a CRF: how much more often than by chance one tag
            follows another in the training data, in logs. The last row and column are for the
            start and end of a sentence.
    """

    unit: Literal["word", "character", "joint"] = "word"
    scheme: str | None = None
    format: str | None = None
    reader: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    overlap: Amount | None = None
    decoder: Literal["argmax", "crf", "crf-marginals"] = "argmax"
    labels: tuple[str, ...] = field(default=(), metadata={"learned": True})
    spans: str | None = field(default=None, metadata={"learned": True})
    biases: tuple[float, ...] = field(default=(), metadata={"learned": True})
    bars: dict[str, float] = field(default_factory=dict, metadata={"learned": True})
    transitions: tuple[tuple[float, ...], ...] = field(default=(), metadata={"learned": True})

    kind = file_kind = "tagging"
    reads = TaggedSentence
    summary = "a tag for each word or character: named entities, parts of speech, segmentation"
    reads_words = True
    primary_metric = "f1"
    head = "tokens"
    model_options = ("max_length", "overlap", "decoder")
    softmax = True

    def __post_init__(self) -> None:
        """Checks that the scheme is known, and that saved labels are tags of their scheme."""
        if self.scheme is not None and self.scheme not in SCHEMES:
            known = ", ".join(SCHEMES)
            raise InputError(f"option scheme of task tagging: wanted {known}, got {self.scheme}")
        if self.spans is not None:  # a saved task may have been edited by hand
            scheme = look_up(self.spans, SCHEMES, "tag scheme")
            for label in self.labels:
                if not scheme.has(label):
                    wanted = scheme.describe()
                    raise InputError(f"labels of task tagging: wanted {wanted}, got {label!r}")

    @property
    def tunes(self) -> bool:
        """Whether there are biases to tune; a CRF has none."""
        return self.decoder == "argmax"

    @property
    def target_scheme(self) -> str | None:
        """The scheme that tags are converted to; None keeps them as they are."""
        return self.scheme or (None if self.unit == "word" else "BMES")

    def read(self, path: Path | str, problems: Problems | None = None) -> Iterator[TaggedSentence]:
        """Reads the sentences of a file; tags to convert must have the prefixes of a scheme."""
        problems, known = problems or Problems(), set[str]()
        converts = self.target_scheme is not None and self.unit != "joint"
        for sentence in super().read(path, problems):
            if converts and not known.issuperset(sentence.tags):
                tagged = zip(sentence.words, sentence.tags, strict=True)
                odd = next((one for one in tagged if not LENIENT.has(one[1])), None)
                if odd is not None:
                    got = f"wanted {LENIENT.describe()}, got {odd[1]!r} for the word {odd[0]!r}"
                    place = {"path": path, "line": sentence.line}
                    problems.add(RecordError("invalid tags", f"{got}; {PLAIN_TAGS}", **place))
                    continue
                known.update(sentence.tags)
            yield sentence

    def units(self, sentence: TaggedSentence) -> tuple[Sequence[str], Sequence[str]]:
        """Returns the units that get tags, and their tags (none if the file has none)."""
        scheme = self.target_scheme
        if scheme is None:
            return sentence.words, sentence.tags
        try:
            if self.unit == "word":
                return sentence.words, repair_tags(sentence.tags, scheme)
            split = split_characters(sentence, scheme, joint=self.unit == "joint")
        except ValueError as error:
            message = f"sentence of line {sentence.line}: {error}; {PLAIN_TAGS}"
            raise InputError(message) from error
        return split.words, split.tags

    def texts(self, examples: Iterable[TaggedSentence]) -> Iterator[Sequence[str]]:
        """Yields the words of each sentence, for the vocabulary of an encoder from scratch."""
        return (self.units(example)[0] for example in examples)

    def encode(self, examples: Iterable[TaggedSentence], tokenizer: Tokenizer) -> Features:
        """Encodes sentences as arrays, cut into windows if they are too long."""
        encoder = SentenceEncoder(tokenizer, max_length=self.max_length, overlap=self.overlap)
        number, tags = Numbering(), [np.zeros(0, np.int32)]
        for chunk in chunks(map(self.units, examples)):
            encoder.add([words for words, _ in chunk])
            names = chain.from_iterable(own or [NO_TAG] * len(words) for words, own in chunk)
            tags.append(number.numbers(list(names)).astype(np.int32))
        arrays = encoder.arrays()
        return Features(arrays | {"tag": np.concatenate(tags)}, {"tags": tuple(number)})

    def fit(self, features: Features) -> Self:
        """Returns the task with the tags of the training data, O first, and their scheme."""
        names = set(features.names["tags"]) - {NO_TAG}
        labels = tuple(sorted(names, key=lambda tag: (tag != OUTSIDE, tag)))
        task = replace(self, labels=labels, spans=self.target_scheme or find_tag_scheme(features))
        if self.decoder == "argmax":
            return task
        ids = task.label_ids(features)[features["tag"]]
        made = count_transitions(ids, features["sentence"], labels, task.spans)
        return replace(task, transitions=made)

    def build_model(self, encoder: str | Path, tokenizer: Tokenizer, **options: Any) -> nn.Module:
        """Builds the encoder with a linear layer over every token, and perhaps a CRF."""
        model = super().build_model(encoder, tokenizer, **options)
        if self.decoder != "argmax":
            size = len(self.labels) + 1
            start = torch.tensor(self.transitions)
            if start.shape != (size, size) or not start.isfinite().all():
                shape = tuple(start.shape)
                raise InputError(f"wanted {size} × {size} transitions of the CRF, got {shape}")
            add_crf(model, start, saved=encoder)
        return model

    def notes(self, features: Features) -> list[str]:
        """Returns notes about tags that training never saw, or that their scheme does not allow."""
        names = set(features.names["tags"])
        unseen = describe_unseen(names - {NO_TAG}, self.labels)
        if self.spans is None or NO_TAG in names:
            return unseen
        return unseen + describe_invalid(features, self.spans)

    def heads(self, model: nn.Module) -> dict[str, Head]:
        """Returns the layer that computes the logits of each key."""
        return {"tags": Head(find_output(model, len(self.labels)), slice(None))}

    def check_gold(self, parts: Mapping[str, tuple[Any, Sequence[TaggedSentence]]]) -> None:
        """Raises for sentences without tags, and for tags of another scheme than the others."""
        scheme = self.spans
        if not self.labels:  # not fitted yet
            with suppress(ValueError):  # plain tags
                scheme = detect_scheme(self.units(one)[1] for one in parts["train"][1]).name
        for name, (path, examples) in parts.items():
            spans = (one for one in examples if isinstance(one, SpanSentence))
            nested = next((one for one in spans if count_nested(one.spans)), None)
            if nested is not None:
                message = "wanted spans that do not overlap, since a word has one tag, got some"
                hint = 'task kind "mrc_ner" or "span_ner" with nested = true finds both'
                text = f"{message} that do; {hint}; see softf1 new"
                raise InputError(text, path=path, line=nested.line)
            own = None if name == "train" else scheme
            check_tags(((one.line, self.units(one)[1]) for one in examples), own, path)
            check_scheme = name == "train" and self.target_scheme is None
            odd = describe_odd_tag([one.tags for one in examples]) if check_scheme else None
            if odd is not None:
                number, message = odd
                raise InputError(message, path=path, line=examples[number].line)

    def take_texts(self, features: Features, index: Ints) -> tuple[Flat, ...]:
        """Returns the pieces of windows."""
        return (window_tokens(features, index),)

    def fill(self, features: Features, index: Ints, laid: PaddedRows, epoch: int) -> Parts:  # noqa: ARG002
        """Makes targets (B, L): the tag at the first piece of each owned word, −100 elsewhere."""
        word, row, column = word_places(features, index, laid.first, owned=True)
        target = np.full(laid.ids.shape, IGNORE, np.int64)
        target[row, column] = self.label_ids(features)[features["tag"][word]]
        return {}, {"tags": target}, {"word": word, "row": row, "column": column}

    def logits(self, output: Any, batch: Batch) -> dict[str, Tensor]:
        """Returns `tags` (B, L, C) for the loss; a CRF also returns what it decodes from."""
        if self.decoder == "argmax":
            return {"tags": output.logits}
        emissions, (transitions,) = output["logits"], output["transitions"]
        target = batch.targets["tags"]
        if len(target) < len(emissions):  # every sentence twice, for consistency
            target = torch.cat([target, target])
        if self.decoder == "crf":
            tags = conditional_logits(emissions, transitions, target)
        else:
            tags = marginal_logits(emissions, transitions, target >= 0)
        return {"tags": tags, "emissions": emissions, "transitions": transitions}

    def gather(self, logits: Mapping[str, Tensor], batch: Batch) -> Logits:
        """Returns the logits of the owned words; of a CRF its emissions and transitions."""
        own = logits.get("emissions", logits["tags"])
        chosen = own[batch.places["row"], batch.places["column"]]
        gathered = {
            "word": batch.places["word"].cpu().numpy(),
            "logits": chosen.detach().float().cpu().numpy(),
        }
        if "transitions" in logits:
            gathered["transitions"] = logits["transitions"].detach().float().cpu().numpy()[None]
        return gathered

    def tune(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[Any],  # noqa: ARG002 - protocol
    ) -> Self:
        """Tunes biases of the labels: only of O if tags mark spans, none with a CRF."""
        return self._tune(logits, features)[0]

    def _tune(
        self, logits: Logits, features: Features, target: Target = F1, *, curve: bool = False
    ) -> tuple[Self, list[Point]]:
        """Tunes for any target; with `curve`, also returns the bias of O as operating point."""
        if not self.tunes:
            return self, []
        rows = by_word(logits["logits"], logits, features)
        gold = self.label_ids(features)[features["tag"]]
        lengths = np.diff(features["sentence"])
        if self.spans is None:
            biases = tune_classes(rows, gold, metric=self.primary_metric, lengths=lengths)
            return replace(self, biases=biases), []
        how: dict[str, Any] = {"labels": self.labels, "target": target, "curve": curve}
        biases, points = tune_spans(rows, gold, lengths=lengths, **how)
        return replace(self, biases=biases), points

    @property
    def span_labels(self) -> list[str]:
        """The labels of the spans that the tags mark; empty if they mark none."""
        return [] if self.spans is None else span_labels(self.labels)

    bar_labels = span_labels

    def check_target(self, target: Target | Mapping[str, Target]) -> None:
        """Raises if tags mark no spans, for unknown labels, and for targets that tune a CRF."""
        if self.labels and self.spans is None:
            given = (target,) if isinstance(target, Target) else target.values()
            wanted = "wanted f1 where every word has a tag and none can be left out"
            raise InputError(f"{wanted}, got {', '.join(one.text for one in given)}")
        if self.decoder != "argmax" and isinstance(target, Target) and not target.guarantees:
            raise InputError(
                "wanted f1, precision>= or recall>= with a CRF, which has no bias to tune; "
                'or set task.decoder = "argmax"'
            )
        super().check_target(target)

    def operate(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[TaggedSentence],
        target: Target | Mapping[str, Target],
    ) -> tuple[Self, list[Point]]:
        """Tunes the bias of O for F-beta and cost; otherwise chooses bars for span labels."""
        if isinstance(target, Target) and not target.guarantees:
            return self._tune(logits, features, target, curve=True)
        return super().operate(logits, features, examples, target)

    def list_units(self, lines: Sequence[Mapping[str, Any]]) -> Units:
        """Lists the found spans, each right or not, and the gold labels."""
        return list_units(read_sentence(line, line["tags"], str(self.spans)) for line in lines)

    def abstain(self, prediction: Prediction) -> Prediction:
        """Tags the words of spans below their bar as O."""
        tags, scheme = list(prediction["tags"]), str(self.spans)
        found = find_entities(tags, prediction["confidence"], scheme=scheme)
        for (start, end, label), sure in found.items():
            size = end - start
            if sure < self.bars.get(label, 0.0):
                tags[start:end] = [OUTSIDE] * size
            elif OUTSIDE in tags[start - 1 : start]:  # IOB1 has B- only right after a span
                tags[start:end] = encode_spans([(0, size, label)], length=size, scheme=scheme)
        return prediction | {"tags": tags}

    def shifts(self) -> dict[str, NDArray[np.float64]]:
        """Returns the biases."""
        return {"tags": np.array(self.biases)} if self.biases else {}

    def decode(
        self,
        logits: Logits,
        features: Features,
        examples: Sequence[Any] = (),  # noqa: ARG002 - the arrays have all that is needed
    ) -> list[Prediction]:
        """Returns the best tag of every word, or by a CRF the best sequence, and probabilities."""
        if self.decoder == "argmax":
            scores = logits["logits"] + np.array(self.biases or 0.0)
            chance = to_probabilities(scores, multi_label=False).max(-1, initial=0)
            best, sure = (by_word(x, logits, features) for x in (scores.argmax(-1), chance))
        else:
            best, rows = self._decode_sequences(logits, features)
            chances = to_probabilities(rows.astype(np.float64), multi_label=False)
            sure = np.take_along_axis(chances, best[:, None], axis=1)[:, 0]
        tags, sure = [self.labels[i] for i in best.tolist()], sure.round(DIGITS).tolist()
        at = pairwise(features["sentence"].tolist())
        return [{"tags": tags[a:b], "confidence": sure[a:b]} for a, b in at]

    def _decode_sequences(self, logits: Logits, features: Features) -> tuple[Ints, NDArray[Any]]:
        """Returns the best tags by the CRF, and logits whose softmax is their marginals."""
        rows = by_word(logits["logits"], logits, features)
        return decode_sequences(rows, logits["transitions"][0], features["sentence"])

    @property
    def in_pipeline(self) -> Self | None:
        """The task as a pipeline of transformers decides; None if that makes no difference."""
        return None if self.decoder == "argmax" else replace(self, decoder="argmax")

    def details(self, prediction: Prediction) -> dict[str, Any]:
        """Returns the spans of the tags, as a prediction line shows them."""
        if self.spans is None:
            return {}
        found = find_entities(prediction["tags"], prediction["confidence"], scheme=self.spans)
        entities = [
            {"label": label, "start": start, "end": end, "confidence": sure}
            for (start, end, label), sure in found.items()
        ]
        return {"entities": entities}

    def score(
        self, predictions: Sequence[Prediction], examples: Iterable[TaggedSentence]
    ) -> dict[str, Any]:
        """Computes span scores if tags mark spans, else scores of the tags themselves."""
        gold = [list(self.units(example)[1]) for example in examples]
        if any(not tags and item["tags"] for tags, item in zip(gold, predictions, strict=True)):
            raise InputError("wanted tags to score against, got sentences without")
        found = count_tags(gold, [item["tags"] for item in predictions], scheme=self.spans)
        counts = found["counts"]
        if self.spans is None:
            return describe_counts(counts) | {"accuracy": accuracy(counts)}
        return describe_counts(counts) | {"conlleval_f1": found["lenient"].micro().f}

    def show(self, example: TaggedSentence) -> dict[str, Any]:
        """Returns the words or characters with their gold tags."""
        words, tags = self.units(example)
        return {"words": list(words), "gold": list(tags)}

    def class_counts(self, features: Features) -> dict[str, NDArray[np.int64]]:
        """Counts the words of each label."""
        ids = self.label_ids(features)[features["tag"]]
        return {"tags": np.bincount(ids[ids >= 0], minlength=len(self.labels))}

    def strata(self, features: Features) -> NDArray[np.int64]:
        """Returns 1 for windows with other tags than the most frequent, else 0; −1 without tags."""
        ids = self.label_ids(features)[features["tag"]]
        usual = self.class_counts(features)["tags"].argmax()
        first, end = features["own_first"], features["own_end"]
        tagged, other = (offsets(flag) for flag in (ids >= 0, (ids >= 0) & (ids != usual)))
        holds = (other[end] > other[first]).astype(np.int64)
        return np.where(tagged[end] > tagged[first], holds, -1)

    def find_collapse(self, predictions: Sequence[Prediction]) -> str | None:
        """Describes a collapse: all words get the same tag."""
        return describe_collapse({tag for one in predictions for tag in one["tags"]}, outside="O")

    def card(self, *, pieces: bool, folded: bool) -> CardText:
        """Returns the text of the model card for this task."""
        unit = "word" if self.unit == "word" else "character"
        decision = []
        if pieces:
            same = '`aggregation_strategy="first"` in a pipeline'
            decision.append(f"A {unit} has the tag of its first piece ({same}). {PIPELINE_WORDS}")
        if self.decoder != "argmax":
            decision.append(OF_CRF)
        elif self.biases:
            decision += describe_biases(self.labels, self.biases, folded=folded)
        else:
            plain = "The tag with" if self.bars else f"{NOT_TUNED}: the tag with"
            decision.append(f"{plain} the largest logit is predicted.")
        decision += [describe_bars(self.bars)] if self.bars else []
        return CardText(decision, pipeline="token-classification", code=CODE, limits=[SEEN_ONLY])

    def count_line(self, line: Mapping[str, Any]) -> LineCounts:
        """Counts right, wrong and missed spans of a sentence, or tags."""
        return count_sentence(tuple(line["gold"]), tuple(line["tags"]), scheme=self.spans)

    def measure(self, lines: Sequence[Mapping[str, Any]], given: Any) -> Headroom:
        """Measures the headroom: one bias, the ranking, and for spans labels and boundaries."""
        rows = decode = None
        crf = given is not None and self.decoder != "argmax"
        if given is not None:
            logits, features, _ = given
            rows = by_word(logits["logits"], logits, features).astype(np.float64)
            rows += np.array(self.biases or 0.0)
        if self.spans is None:
            if crf:
                rows = self._decode_sequences(logits, features)[1].astype(np.float64)
            return measure_tags(lines, rows, labels=self.labels, metric=self.primary_metric)
        scheme = self.spans
        sentences = [read_sentence(line, line["tags"], scheme) for line in lines]
        what = f"One bias, for {OUTSIDE}"
        if rows is None or OUTSIDE not in self.labels:
            if rows is None:
                return measure_spans(sentences, None, what=what, unknown=NO_LOGITS)
            reason = f"no bias: every word is in a span, none is {OUTSIDE}"
            return measure_spans(sentences, None, what=what, missing=[reason])
        missing = []
        if crf:
            at, outside = features["sentence"], self.labels.index(OUTSIDE)
            decode = partial(decode_biased, rows, logits["transitions"][0], at, outside)
            long = int((np.diff(at) > LONG).sum())
            cut = f"some biases for the {long:,} sentences of more than {LONG} words"
            missing = [cut] * (long > 0)
        sweep = partial(sweep_tags, labels=self.labels, outside=OUTSIDE, scheme=scheme)
        best, tags = sweep(lines, rows, decode=decode)
        then = [read_sentence(line, own, scheme) for line, own in zip(lines, tags, strict=True)]
        return measure_spans(sentences, best, what=what, then=then, missing=missing)

    def find_suspects(self, logits: Logits, features: Features) -> Suspects:
        """Finds spans, or words if tags mark no spans, with tags that the model finds unlikely."""
        if self.decoder == "argmax":
            rows = by_word(logits["logits"], logits, features)
        else:
            _, rows = self._decode_sequences(logits, features)
        chance = to_probabilities(rows, multi_label=False)
        gold = self.label_ids(features)[features["tag"]]
        whole = self.spans is not None
        return find_suspect_tags(chance, gold, features["sentence"], self.labels, spans=whole)

    def fit_majority(self, train: Sequence[TaggedSentence]) -> Predict:
        """Returns a baseline: every word gets the most frequent tag of the training data."""
        counts = Counter(chain.from_iterable(self.units(one)[1] for one in train))
        ((tag, count),) = counts.most_common(1)
        share = count / counts.total()

        def predict(examples: Sequence[TaggedSentence]) -> list[Prediction]:
            sizes = [len(self.units(one)[0]) for one in examples]
            return [{"tags": [tag] * size, "confidence": [share] * size} for size in sizes]

        return predict
