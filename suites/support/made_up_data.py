"""A small made-up data directory of the real one's layout; for tests, never for results."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.train.data.corpora import CorpusFile, HubSource, KnownCorpus, corpora
from harness.train.tasks.mtl16 import DOMAINS

QUESTIONS = {
    "ABBR": (
        "What does {} stand for ? | What is the abbreviation of {} ? | What does {} mean ? | "
        "What is {} short for ?",
        "NATO, AIDS, the NAACP, SCUBA, IBM, NASA, the EU, the UN, LASER, RADAR, CNN, BBC, the "
        "FBI, the CIA, DNA",
    ),
    "DESC": (
        "What is {} ? | How does {} work ? | Why is {} important ? | What causes {} ?",
        "thunder, a rainbow, an eclipse, gravity, rust, a volcano, electricity, the tide, "
        "erosion, photosynthesis, inflation, fog, snow, a drought, fire",
    ),
    "ENTY": (
        "What animal eats {} ? | What food is made of {} ? | What colour is {} ? | What film "
        "shows {} ?",
        "grass, honey, bamboo, milk, fish, corn, rice, olives, wheat, nuts, apples, barley, "
        "berries, clover, seaweed",
    ),
    "HUM": (
        "Who invented {} ? | Who discovered {} ? | Who was the first owner of {} ? | Name the "
        "founder of {} .",
        "the telephone, penicillin, dynamite, the radio, paper, the zipper, the barometer, "
        "the piano, television, the bicycle, the compass, glass, the camera, radium, the "
        "engine",
    ),
    "LOC": (
        "Where is {} ? | What country is {} in ? | What river flows through {} ? | What city "
        "is near {} ?",
        "Paris, Cairo, Lima, Oslo, Quito, Rome, Dublin, Delhi, Kyoto, Lagos, Perth, Hanoi, "
        "Riga, Sofia, Tunis",
    ),
    "NUM": (
        "How many people live in {} ? | When was {} founded ? | How far is {} ? | How old is {} ?",
        "Berlin, Madrid, Boston, Texas, Canada, Chile, Kenya, Peru, Japan, Iran, Spain, "
        "Ghana, Nepal, Malta, Cuba",
    ),
}
"""Templates (between bars) and what fills them (between commas), by coarse class."""

SUBJECTS = ("A man", "A woman", "The boy", "The girl's dog", "An old lady", "Two kids")
ACTIONS = (
    "playing a guitar",
    "riding a go-kart",
    "eating, drinking and singing",
    "running in a park",
    "slicing the bread",
    "wearing a red t-shirt",
    "bmxing",
    "jumping into the water",
)
WORDS = {"0": ("dreadful", "broken", "dull"), "1": ("lovely", "sturdy", "great")}
"""Of the classes of reviews."""


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table as the real ones are: gzip without name or time where the path ends in .gz."""
    text = "".join("\t".join(row) + "\n" for row in (columns, *rows)).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def write_data_directory(folder: Path) -> Path:
    """Write ``trec``, ``sick`` and ``glove`` below a folder; the same bytes every time.

    TREC has 240 training and 60 test questions, alike many of each of 6 classes, and no question
    twice; SICK has 120 / 40 / 60 pairs, alike many of each of 3 classes. The vectors are narrower
    (20 and 30 components) than the real ones, and some words have none.
    """
    shuffled = random.Random(0)
    train, test = _questions(shuffled)
    for name, rows in (("train", train), ("test", test)):
        write_table(folder / "trec" / f"{name}.tsv.gz", ("coarse", "fine", "text"), rows)
    pairs = _pairs(shuffled, 220)
    columns = ("pair_id", "label", "relatedness", "sentence_a", "sentence_b")
    for name, part in (("train", pairs[:120]), ("dev", pairs[120:160]), ("test", pairs[160:])):
        write_table(folder / "sick" / f"{name}.tsv.gz", columns, part)
    texts = [row[2] for row in train + test]
    sentences = [
        sentence.replace("'s", " 's").replace("n't", " n't").replace(",", " ,")
        for row in pairs
        for sentence in row[3:]
    ]
    _write_quantised(folder / "glove" / "top10k_100d_int8.tsv.gz", texts + sentences)
    _write_plain(folder / "glove" / "sick_840B_300d.tsv.gz", sentences)
    return folder


def _questions(shuffled: random.Random) -> tuple[list[list[str]], list[list[str]]]:
    train, test = [], []
    for coarse, (templates, fillers) in QUESTIONS.items():
        rows = [
            [coarse, f"fine{number}", template.format(filler)]
            for number, template in enumerate(templates.split(" | "))
            for filler in fillers.split(", ")
        ]
        shuffled.shuffle(rows)
        train += rows[:40]
        test += rows[40:50]
    shuffled.shuffle(train)
    shuffled.shuffle(test)
    return train, test


def _pairs(shuffled: random.Random, count: int) -> list[list[str]]:
    rows = []
    for number in range(count):
        subject, action, other = shuffled.choice(SUBJECTS), *shuffled.sample(ACTIONS, 2)
        verb = "are" if subject == "Two kids" else "is"
        first = f"{subject} {verb} {action}"
        label, relatedness, second = (
            ("entailment", "4.7", f"{subject} {verb} quietly {action}"),
            ("contradiction", "3.6", f"{subject} {verb}n't {action}"),
            ("neutral", "2.1", f"{subject} {verb} {other}"),
        )[number % 3]
        rows.append([str(number + 1), label, relatedness, first, second])
    return rows


def _words(texts: Iterable[str]) -> list[str]:
    """Words from the most frequent on, every ninth left out."""
    counts = Counter(word for text in texts for word in text.split())
    words = sorted(counts, key=lambda word: (-counts[word], word))
    return [word for number, word in enumerate(words) if number % 9 != 8]


def _write_quantised(path: Path, texts: list[str]) -> None:
    words = [*_words(text.lower() for text in texts), "elsewhere", "nobody"]
    vectors = np.random.default_rng(0).normal(size=(len(words), 20)) + np.linspace(-2, 2, 20)
    scales = np.abs(vectors).max(axis=1)
    rows = []
    for word, vector, scale in zip(words, vectors, scales, strict=True):
        integers = np.rint(vector / scale * 127).astype(int)
        rows.append([word, f"{scale:.6f}", " ".join(map(str, integers))])
    write_table(path, ("word", "scale", "q"), rows)


def _write_plain(path: Path, texts: list[str]) -> None:
    words = [*_words(texts), "Elsewhere"]
    vectors = np.random.default_rng(1).normal(size=(len(words), 30))
    rows = [
        [word, " ".join(f"{value:.5g}" for value in vector)]
        for word, vector in zip(words, vectors, strict=True)
    ]
    write_table(path, ("word", "v"), rows)


def write_more_corpora(folder: Path, *, supplied: bool = False) -> Path:
    """Write ``cr``, ``mpqa``, ``subj``, ``mr``, ``sst5``, ``snli``, ``ud_ewt`` and ``wnut17``.

    Of the corpora without a split 60 examples each, as many of either class as may be; of SST-5
    60 / 20 / 30 sentences, and phrases of the training ones with the escapes of its tree bank; of
    SNLI dev and test, 30 pairs each, and the training file, which the user makes, if it is
    `supplied`: the pairs of dev. The tagged ones have 60 / 20 / 30 questions.
    """
    shuffled = random.Random(0)
    questions = [row for part in _questions(shuffled) for row in part]
    for name in ("cr", "mpqa", "subj", "mr"):
        rows = [[str(int(r[0] in ("HUM", "LOC", "NUM"))), r[2].lower()] for r in questions]
        chosen = shuffled.sample(rows, 60)
        write_table(folder / name / "all.tsv.gz", ("label", "text"), sorted(chosen))
    degrees = {"ABBR": "0", "DESC": "1", "ENTY": "2", "HUM": "3", "LOC": "4", "NUM": "4"}
    rows = [[degrees[r[0]], f"{r[2]} -LRB- and\\/or so -RRB-"] for r in questions[:110]]
    parts = {"train": rows[:60], "dev": rows[60:80], "test": rows[80:]}
    for name, part in parts.items():
        write_table(folder / "sst5" / f"{name}.tsv.gz", ("label", "text"), part)
    counts = Counter(
        (label, " ".join(words[:size]))
        for label, text in parts["train"]
        for words in [text.split()]
        for size in range(1, len(words) + 1)
    )
    seen: dict[str, list[str]] = {}
    for (label, text), count in counts.items():
        seen.setdefault(text, [label, str(count), text])
    columns = ("label", "count", "text")
    write_table(folder / "sst5" / "train_phrases.tsv.gz", columns, seen.values())
    pairs = [[row[1], row[3], row[4]] for row in _pairs(shuffled, 60)]
    splits = {"dev": pairs[:30], "test": pairs[30:], **({"train": pairs[:30]} if supplied else {})}
    for name, part in splits.items():
        columns = ("label", "sentence1", "sentence2")
        write_table(folder / "snli" / f"{name}.tsv.gz", columns, part)
    texts = [row[2].split() for row in questions[:110]]
    for name, some in (("train", texts[:60]), ("dev", texts[60:80]), ("test", texts[80:])):
        spoken = [[" ".join(t), *2 * [" ".join(_parts(t))]] for t in some]
        write_table(folder / "ud_ewt" / f"{name}.tsv.gz", ("tokens", "upos", "xpos"), spoken)
        tagged = [[" ".join(t), " ".join(_entities(t))] for t in some]
        write_table(folder / "wnut17" / f"{name}.tsv.gz", ("tokens", "tags"), tagged)
    return folder


PARTS = {
    **dict.fromkeys(["?", ".", ","], "PUNCT"),
    **dict.fromkeys(["is", "does", "was", "are"], "AUX"),
    **dict.fromkeys(["the", "a", "an"], "DET"),
    **dict.fromkeys(["of", "in", "from", "for", "to", "by"], "ADP"),
}


def _parts(words: Sequence[str]) -> list[str]:
    """Parts of speech by a list and by capitals; the first word asks."""
    rest = [PARTS.get(w, "PROPN" if w[0].isupper() else "NOUN") for w in words[1:]]
    return ["PRON", *rest]


def _entities(words: Sequence[str]) -> list[str]:
    """Places: every capital but the first word's, and ``the`` before one."""
    capitals = [False, *(w[0].isupper() for w in words[1:])]
    behind = [*capitals[1:], False]
    inside = [
        now or (word == "the" and on) for word, now, on in zip(words, capitals, behind, strict=True)
    ]
    before = [False, *inside[:-1]]
    return [
        "O" if not now else "I-location" if was else "B-location"
        for now, was in zip(inside, before, strict=True)
    ]


def write_reviews(folder: Path) -> Path:
    """Write ``mtl16`` below a folder: 206 training and 8 test reviews of each of the 16 domains.

    A word says which class. Of a domain's test reviews the first stands in its own train, the
    second in that of another domain, and the third is one of its train as far as 256 tokens go.
    """
    drawn = random.Random(0)
    train: list[list[str]] = []
    test: list[list[str]] = []
    for number, domain in enumerate(DOMAINS):
        names = [f"{domain} item {i}" for i in range(1, 215)]
        rows = [
            [domain, label, f"{name} is {drawn.choice(WORDS[label])} , they say"]
            for name, label in zip(names, itertools.cycle("01"))
        ]
        long = " ".join(["a", "very", "long", "story"] * 64)
        rows[5][2] = f"{long} that ended well"
        mine, tested = rows[:206], rows[206:]
        tested[0][1:] = mine[7][1:]
        tested[1][1:] = train[10][1:] if number else mine[8][1:]
        tested[2][1:] = [mine[5][1], f"{long} that ended otherwise"]
        train += mine
        test += tested
    for name, part in (("train", train), ("test", test)):
        write_table(folder / "mtl16" / f"{name}.tsv.gz", ("domain", "label", "text"), part)
    return folder


def made_up_corpus(
    folder: Path, name: str = "trec", hub_source: HubSource | None = None
) -> KnownCorpus:
    """A known corpus whose right copy is the made-up one."""
    files = []
    for file in corpora()[name].files:
        packed = (folder / f"{file.name}.gz").read_bytes()
        content = gzip.decompress(packed)
        files.append(
            CorpusFile(
                file.name,
                content.count(b"\n") - 1,
                len(packed),
                file.columns,
                hashlib.sha256(packed).hexdigest(),
                hashlib.sha256(content).hexdigest(),
            )
        )
    return replace(corpora()[name], files=tuple(files), hub=hub_source)
