"""The data of training: tables, tokens, vectors, vocabulary; corpora and their checksums."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.train.data.corpora import (
    corpora,
    data_digest,
    findings,
    found_in,
    is_known,
    supplied,
    unlike,
)
from harness.train.data.directory import VARIABLE, data_directory, digest_of, read_table
from harness.train.data.texts import tokens_raw
from harness.train.data.vectors import (
    PADDING,
    SPECIAL,
    UNKNOWN,
    Coverage,
    Vectors,
    Vocabulary,
    canonical,
    coverage,
    no_vectors,
    read_vectors,
    vectors_digest,
)
from harness.train.task import task
from suites.support.command_line import here
from suites.support.made_up_data import made_up_corpus, write_table
from suites.support.real_data import REAL, real

FEW = settings(deadline=None, max_examples=40)
"""For examples that are written to a file each."""


def _write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _vectors(folder: Path, text: str | bytes, needed: set[str] | None = None) -> Vectors:
    return read_vectors(str(_write(folder / "made.up.txt", text)), None, needed)


def _refused(parts: tuple[str, ...], call: Callable[..., Any], *arguments: Any) -> None:
    """It is told in one line that has all of these parts."""
    with pytest.raises(UsageError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


# Where the data is.


def test_the_option_goes_before_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = str(tmp_path / "gone")
    monkeypatch.setenv(VARIABLE, gone)
    assert data_directory(str(tmp_path)) == tmp_path
    _refused((f"{VARIABLE} says {gone!r}, which is no folder",), data_directory, None)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert data_directory(None) == tmp_path
    for name in (gone, ""):
        _refused((f"--data says {name!r}, which is no folder",), data_directory, name)
    how = ("--data DIR", VARIABLE, "trec/train.tsv.gz", "coarse fine text", "docs/data.md")
    monkeypatch.setenv(VARIABLE, "")
    _refused(how, data_directory, None)
    monkeypatch.delenv(VARIABLE)
    _refused(how, data_directory, None)


# Tables.

FIELD = st.text(
    st.one_of(
        st.sampled_from("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\"'\\ "),
        st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]),
    ),
    max_size=12,
)


@FEW
@given(rows=st.lists(st.tuples(FIELD, FIELD)), ending=st.sampled_from([".tsv", ".tsv.gz"]))
def test_a_table_comes_back_as_it_was_written(
    rows: list[tuple[str, str]], ending: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"round_trip{ending}"
    write_table(path, ["label", "text"], rows)
    read = read_table(path, ["text", "label"])
    assert [(row["label"], row["text"]) for row in read] == rows


def test_an_uncompressed_twin_is_read_and_has_the_same_digest(tmp_path: Path) -> None:
    packed, plain = tmp_path / "packed" / "train.tsv.gz", tmp_path / "plain" / "train.tsv"
    for path in (packed, plain):
        write_table(path, ["text"], [["a b"], ["c"]])
    asked = plain.with_name("train.tsv.gz")
    assert read_table(asked, ["text"]) == read_table(packed, ["text"])
    assert digest_of([packed]) == digest_of([asked]) == digest_of([plain])
    assert read_table(packed.with_suffix(""), ["text"]) == read_table(packed, ["text"])
    assert len(read_table(_write(plain, "text\na\nb"), ["text"])) == 2, "a last line without an end"


def test_the_digest_tells_contents_and_their_order_apart(tmp_path: Path) -> None:
    one, two = _write(tmp_path / "one.tsv", "a\nb\n"), _write(tmp_path / "two.tsv", "c\n")
    joined, empty = _write(tmp_path / "3.tsv", "a\nb\nc\n"), _write(tmp_path / "4.tsv", "")
    digests = {digest_of(files) for files in ([one, two], [two, one], [joined], [joined, empty])}
    assert len(digests) == 4
    assert digest_of([one]) == hashlib.sha256(hashlib.sha256(b"a\nb\n").digest()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("coarse\ttext\nNUM\tHow many ?\n", (":1:", "no column 'fine'", "coarse fine text")),
        ("", (":1:", "no column 'coarse'")),
        ("coarse\tfine\ttext\nNUM\tcount\ta\nNUM\tcount\n", (":3:", "2 fields", "3")),
        ("coarse\tfine\ttext\nNUM\tcount\ta\tb\n", (":2:", "4 fields", "3")),
        ("coarse\tfine\ttext\nNUM\tcount\ta\n\n", (":3:", "1 fields")),
        (b"coarse\tfine\ttext\nNUM\tcount\tcaf\xe9 ?\n", (":2:", "not UTF-8", "0xe9", "convert")),
    ],
)
def test_a_bad_table_is_refused_with_its_line(
    content: str | bytes, parts: tuple[str, ...], tmp_path: Path
) -> None:
    path = _write(tmp_path / "train.tsv", content)
    _refused((str(path), *parts), read_table, path, ["coarse", "fine", "text"])


def test_a_bad_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"text\n" + bytes(range(14, 256)) * 9)
    for wrong in (b"no gzip at all", whole[:-9], whole[:40] + b"\xff" * 20 + whole[60:]):
        path = _write(tmp_path / "train.tsv.gz", wrong)
        says = (str(path), "not a whole gzip file", "copy it again")
        _refused(says, read_table, path, ["text"])
        _refused(says, digest_of, [path])


def test_a_missing_table_is_named_with_its_twin(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv.gz"
    _refused((f"no file {path}, nor dev.tsv beside it", "--data"), read_table, path, ["text"])
    (tmp_path / "test.tsv").mkdir()
    _refused(("can't read", "Is a directory"), read_table, tmp_path / "test.tsv", ["text"])


# Tokens.


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The man isn't dry", "The man is n't dry"),
        ("They can't, won't and DON'T", "They ca n't , wo n't and DO N'T"),
        ("a girl's dogs' toys", "a girl 's dogs ' toys"),
        ("I'm sure we've seen they're here", "I 'm sure we 've seen they 're here"),
        ("she'll say he'd do it", "she 'll say he 'd do it"),
        ("It’s a T-shirt", "It 's a T-shirt"),
        ("a bare-chested man (left) .", "a bare-chested man ( left ) ."),
        ("the/some water - cold.", "the / some water - cold ."),
        ("is n't 's", "is n't 's"),
        ("'quoted' 'so", "' quoted ' ' so"),
        ("", ""),
    ],
)
def test_raw_text_loses_punctuation_and_clitics_to_tokens_of_their_own(
    text: str, tokens: str
) -> None:
    assert tokens_raw(text) == tokens.split()


@given(st.text(st.one_of(st.sampled_from("nt'srevldm-’ ,a"), st.characters()), max_size=30))
def test_raw_tokens_lose_nothing_and_stay_as_they_are(text: str) -> None:
    tokens = tokens_raw(text)
    assert "".join(tokens) == "".join(text.replace("’", "'").split())
    assert tokens_raw(" ".join(tokens)) == tokens


# Vectors.

CASED = "the 1 2 3\nParis 4 5 6\n. . 7 8 9\nparis 1.5 -2e-1 0\nthe 0 0 0\n"


def test_glove_and_word2vec_text_is_read(tmp_path: Path) -> None:
    vectors = _vectors(tmp_path, CASED)
    assert list(vectors.rows) == ["the", "Paris", ". .", "paris"], "a word's first row counts"
    assert vectors.matrix.dtype == np.float32
    expected = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1.5, -0.2, 0]]
    np.testing.assert_array_equal(vectors.matrix, np.array(expected, np.float32))
    assert (vectors.name, vectors.width, vectors.cased) == ("made.up", 3, True)
    packed = read_vectors(str(_write(tmp_path / "p.vec.gz", gzip.compress(CASED.encode()))))
    assert packed.name == "p"
    assert packed.digest == vectors.digest == digest_of([tmp_path / "made.up.txt"])
    for other in ("5 3\n" + CASED, CASED.replace("\n", " \r\n") + "\n"):
        read = _vectors(tmp_path, other)
        assert read.rows == vectors.rows
        np.testing.assert_array_equal(read.matrix, vectors.matrix)
        assert read.digest != vectors.digest
    assert list(_vectors(tmp_path, "7 1 2\n1.5 3 4\n").rows) == ["7", "1.5"]


@FEW
@given(
    table=st.dictionaries(
        st.text("aAbBß", min_size=1, max_size=3), st.integers(-9, 9), min_size=1, max_size=9
    ),
    needed=st.sets(st.text("aAbBß", min_size=1, max_size=3), max_size=5),
)
def test_only_needed_rows_are_kept_and_found_as_in_the_whole_table(
    table: dict[str, int], needed: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = "".join(f"{word} {value} 0\n" for word, value in table.items())
    folder = tmp_path_factory.getbasetemp()
    whole, kept = _vectors(folder, text), _vectors(folder, text, needed)
    assert (kept.cased, kept.digest, kept.width) == (whole.cased, whole.digest, 2)
    assert {word.lower() for word in kept.rows} <= {word.lower() for word in needed}
    for word in needed:
        one, two = whole.find(word), kept.find(word)
        assert (one is None) == (two is None)
        if one is not None and two is not None:
            np.testing.assert_array_equal(whole.matrix[one], kept.matrix[two])


def test_words_with_spaces_do_not_stand_for_their_first_piece(tmp_path: Path) -> None:
    text = "at 1 2\nto name@domain.com 3 4\nof name@domain.com 3 4\nto 5 6\n"
    vectors = _vectors(tmp_path, text, {"to"})
    assert list(vectors.rows) == ["to"]
    assert vectors.matrix.tolist() == [[5, 6]]
    assert list(_vectors(tmp_path, text, {"to name@domain.com"}).rows) == ["to name@domain.com"]


def test_how_a_word_is_found(tmp_path: Path) -> None:
    cased = _vectors(tmp_path, "the 1\nParis 2\nUS 3\nus 4\n")
    words = ("the", "The", "THE", "paris", "PARIS", "US", "us", "Us", "of")
    assert [cased.find(word) for word in words] == [0, 0, 0, 1, 1, 2, 3, 3, None]
    lower = _vectors(tmp_path, "the 1\nparis 2\n")
    assert [lower.find(word) for word in ("The", "PARIS", "of")] == [0, 1, None]


def test_the_quantised_table_is_scaled_and_centred_over_all_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "q.tsv.gz"
    rows = [["the", "2.54", "127 -127 50"], ["of", "1.27", "100 0 -3"], ["in", "0.5", "0 0 127"]]
    rows.append(["the", "9", "1 1 1"])  # the first row of a word counts
    write_table(path, ["word", "scale", "q"], rows)
    expected = np.array([[2.54, -2.54, 1.0], [1.0, 0, -0.03], [0, 0, 0.5]])
    expected -= expected.mean(axis=0)
    whole = read_vectors(str(path))
    np.testing.assert_allclose(whole.matrix, expected, atol=1e-6)
    assert (whole.cased, whole.matrix.dtype) == (False, np.float32)
    kept = read_vectors(str(path), None, {"In", "x"})
    assert list(kept.rows) == ["in"]
    np.testing.assert_array_equal(kept.matrix, whole.matrix[2:])


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ("empty",)),
        ("the\n", (":1:", "no components")),
        ("the 1 2\nof 1\n", (":2:", "1 components", "expected 2")),
        ("the 1 2\nof 1 2 3\n", (":2:", "3 components", "expected 2")),
        ("the 1 2\nof  1 2\n", (":2:", "3 components", "expected 2")),
        ("the 1 x\n", (":1:", "'x'", "finite numbers")),
        ("the 1 2\nof 1 nan\n", (":2:", "'nan'", "finite numbers")),
        ("the 1 2\nof 1 1e99\n", (":2:", "1e99", "finite numbers")),
        ("3 2\nthe 1 2\nof 1 2\n", (":1:", "announces 3 words, 2 follow")),
        (b"the 1 2\ncaf\xe9 1 2\n", (":2:", "UTF-8")),
        (b"PK\x03\x04 and so on", ("zip archive", "unzip")),
        ("word\tv\nthe\t1 2\nof\t1\n", (":3:", "1 components", "expected 2")),
        ("word\tv\n", ("no components",)),
        ("word\tscale\tq\n", ("no words",)),
        ("word\tscale\tq\nthe\t1\t1 2\nof\t1\n", (":3:", "2 fields")),
        ("word\tscale\tq\nthe\t1\t1 2\nof\t1\t1 2 3\n", (":3:", "3 components", "2")),
        ("word\tscale\tq\nthe\t1\t1 300\n", (":2:", "300", "8 bits")),
        ("word\tscale\tq\nthe\t1\t1 x\n", (":2:", "'x'", "8 bits")),
        ("word\tscale\tq\nthe\tinf\t1 2\n", (":2:", "'inf'", "finite numbers")),
    ],
)
def test_bad_vectors_are_refused_with_their_line(
    content: str | bytes, parts: tuple[str, ...], tmp_path: Path
) -> None:
    _refused(("made.up.txt", *parts), _vectors, tmp_path, content)


def test_a_short_row_is_refused_even_where_its_word_is_not_needed(tmp_path: Path) -> None:
    _refused((":2: 1 components",), _vectors, tmp_path, "the 1 2\nof 1\nin 1 2\n", {"in"})


def test_a_table_is_chosen_by_one_name_and_unknown_names_list_them(
    folder: Path, tmp_path: Path
) -> None:
    quantised = read_vectors("top10k_100d", folder)
    assert quantised.name == read_vectors("top10k_100d_int8", folder).name == "top10k_100d_int8"
    assert canonical("top10k_100d", folder) == canonical("top10k_100d_int8", folder)
    inside = folder / "glove" / "top10k_100d_int8.tsv.gz"
    assert canonical(str(inside), folder) == "top10k_100d_int8"
    other = _write(tmp_path / "mine.txt", "a 1 2\n")
    there = tmp_path / ".." / tmp_path.name / "mine.txt"
    assert canonical(str(there), folder) == canonical(str(other), None) == str(other.resolve())
    assert (quantised.width, read_vectors("sick_840B_300d", folder).width) == (20, 30)
    every = "sick_840B_300d, top10k_100d_int8"
    _refused(("no word vectors 'glove.6B'", every), read_vectors, "glove.6B", folder)
    _refused(("no word vectors 'top10k_10'",), canonical, "top10k_10", folder)
    _refused(("no word vectors 'top10k_100d'", "--data"), read_vectors, "top10k_100d", None)
    _refused(("tables in ", ": none"), read_vectors, "top10k_100d", tmp_path)


def test_of_two_tables_the_first_keeps_what_the_second_has_too(tmp_path: Path) -> None:
    """Either way round: the same words, each by its own numbers, found as its own table finds."""
    low = _write(tmp_path / "low.txt", "paris 1 2\nthe 3 4\nrare 5 6\nof 7 8\n")
    high = _write(tmp_path / "high.txt", "Paris 1 2 3\nthe 4 5 6\nThe 7 8 9\nother 1 1 1\n")
    both = f"{low}&{high}"
    first = read_vectors(both)
    assert list(first.rows) == ["paris", "the"]
    np.testing.assert_array_equal(first.matrix, [[1, 2], [3, 4]])
    assert first.find("THE") == 1
    assert first.find("rare") is None
    second = read_vectors(f"{high}&{low}")
    assert list(second.rows) == ["Paris", "the", "The"]
    np.testing.assert_array_equal(second.matrix, [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert list(read_vectors(both, None, {"the", "of"}).rows) == ["the"]
    assert first.digest == vectors_digest(both) != second.digest != read_vectors(str(low)).digest
    assert (first.name, canonical(both)) == ("low&high", f"{low.resolve()}&{high.resolve()}")
    _refused(("no word vectors 'none of it'",), read_vectors, f"{low}&none of it")
    named = _write(tmp_path / "a&b.txt", "the 1\n")
    assert read_vectors(str(named)).width == 1, "a file's own name"


def test_coverage_counts_words_and_running_words(tmp_path: Path) -> None:
    sentences = [["The", "the", "cat"], ["the", "Bmxs", "bmxs", "bmxs", "THE"]]
    lower = coverage(sentences, _vectors(tmp_path, "the 1\ncat 2\n"))
    assert lower == Coverage("made.up", 3, 2, 8, 5)
    cased = coverage(sentences, _vectors(tmp_path, "the 1\nCat 2\n"))
    assert cased == Coverage("made.up", 6, 4, 8, 5)


# Vocabulary and embedding.


def test_lower_case_vectors_make_a_lower_case_vocabulary(tmp_path: Path) -> None:
    vectors = _vectors(tmp_path, "the 1\ncat 2\n")
    vocabulary = Vocabulary.build([["Zebra", "The", "ox", "rare"], ["zebra", "OX"]], vectors)
    assert vocabulary.words == ("the", "cat", "ox", "zebra")
    words = ["THE", "Cat", "OX", "Zebra", "rare", "new"]
    assert vocabulary.encode(words) == [2, 3, 4, 5, UNKNOWN, UNKNOWN]
    bare = Vocabulary.build([["B", "a", "c"], ["b", "A"]], no_vectors(3))
    assert bare.words == ("a", "b")
    assert bare.encode(["A", "b", "c"]) == [2, 3, UNKNOWN]


WORD = st.text("abAB", min_size=1, max_size=3)


@given(
    sentences=st.lists(st.lists(WORD, max_size=5), max_size=5),
    others=st.lists(WORD, max_size=5),
    table=st.lists(WORD, max_size=6, unique=True),
    cased=st.booleans(),
)
def test_every_frequent_word_has_a_row_and_the_row_is_its_words(
    sentences: list[list[str]], others: list[str], table: list[str], cased: bool
) -> None:
    words = table if cased else list(dict.fromkeys(word.lower() for word in table))
    rows = {word: row for row, word in enumerate(words)}
    matrix = np.arange(1, len(words) + 1, dtype=np.float32)[:, None]
    vectors = Vectors("made up", rows, matrix, cased, "")
    vocabulary = Vocabulary.build(sentences * 2, vectors)
    embedding = vocabulary.embedding(0)
    assert len(set(vocabulary.words)) == len(vocabulary.words) == len(embedding) - SPECIAL
    assert Vocabulary.build(reversed(sentences * 2), vectors).words == vocabulary.words
    trained = {token for sentence in sentences for token in sentence}
    for word in [*trained, *others]:
        row, source = vocabulary.index(word), vectors.find(word)
        assert PADDING != row < len(embedding)
        if source is not None:
            assert embedding[row] == matrix[source]
        elif word in trained:
            assert vocabulary.words[row - SPECIAL] == vectors.folded(word)
        elif row != UNKNOWN:
            assert vectors.folded(word) in {vectors.folded(token) for token in trained}


def test_the_embedding_has_vectors_where_there_are_some_and_small_values_elsewhere(
    tmp_path: Path,
) -> None:
    vectors = _vectors(tmp_path, "the 1 2\ncat 3 4\n")
    sentences = [[f"w{number}" for number in range(4000)]] * 2
    table = Vocabulary.build(sentences, vectors).embedding(3)
    assert table.dtype == np.float32
    assert table.shape == (4004, 2)
    np.testing.assert_array_equal(table[[PADDING, 2, 3]], [[0, 0], [1, 2], [3, 4]])
    random = np.delete(table, [PADDING, 2, 3], axis=0)
    assert 0.0499 < random.max() <= np.float32(0.05)
    assert -np.float32(0.05) <= random.min() < -0.0499
    assert abs(random.mean()) < 0.002
    assert (table[UNKNOWN] != 0).all()
    # A random row depends on seed and place only.
    bare = Vocabulary.build([*sentences, ["the", "cat"] * 2], no_vectors(2))
    np.testing.assert_array_equal(bare.embedding(3)[[UNKNOWN, 4, 99]], table[[UNKNOWN, 4, 99]])
    assert (bare.embedding(4)[1:] != bare.embedding(3)[1:]).all()


# Corpora and their checksums.


def test_a_copy_is_right_by_its_content(folder: Path, tmp_path: Path) -> None:
    file = next(f for f in made_up_corpus(folder).files if f.name == "trec/train.tsv")
    assert found_in(folder, file).status == "right"
    packed = (folder / "trec" / "train.tsv.gz").read_bytes()
    place = tmp_path / "trec"
    place.mkdir()
    assert found_in(tmp_path, file).status == "missing"
    assert str(place / "train.tsv.gz") in found_in(tmp_path, file).detail
    content = gzip.decompress(packed)
    (place / "train.tsv").write_bytes(content)
    assert found_in(tmp_path, file).status == "right"
    (place / "train.tsv.gz").write_bytes(gzip.compress(content, compresslevel=1))
    assert found_in(tmp_path, file).status == "right"
    for wrong in (gzip.compress(content + b"x"), packed[:-20], b"no gzip"):
        (place / "train.tsv.gz").write_bytes(wrong)
        finding = found_in(tmp_path, file)
        assert finding.status == "wrong"
        assert str(place / "train.tsv.gz") in finding.detail
        assert "\n" not in finding.detail


def test_files_that_are_not_the_listed_ones_are_found(folder: Path) -> None:
    record = task("trec")
    assert is_known("trec", data_digest(record, folder, "none")) is False
    assert is_known("mirrored_summation", "") is None, "there is nothing to know"
    vectors = read_vectors(record.vectors, folder)
    both = data_digest(record, folder, "none") + vectors.digest
    assert data_digest(record, folder, record.vectors) == both
    assert [one.name for one in unlike(folder, record.files)] == list(record.files)


def test_data_list_says_what_there_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNBENCH_DATA", "")
    monkeypatch.setenv("COLUMNS", "200")
    listed = here("data", "list", "--json", "list.json", cwd=tmp_path, code=0)
    for corpus in corpora().values():
        for text in (corpus.what, corpus.licence, corpus.original):
            assert text in listed.stdout
        for file in corpus.files:
            assert f"DIR/{file.name}.gz: {file.rows:,} rows" in listed.stdout
            assert file.sha256 in listed.stdout
    assert {c["name"] for c in json.loads((tmp_path / "list.json").read_text())} == set(corpora())
    for elsewhere in ("hub", str(tmp_path / "gone")):
        monkeypatch.setenv("ATTNBENCH_DATA", elsewhere)
        done = here("data", "list", "trec", cwd=tmp_path, code=0)
        assert "DIR/trec/train.tsv.gz: 5,452 rows" in done.stdout
    there = here("data", "list", "trec", "--data", str(folder), cwd=tmp_path)
    assert f"{folder}/trec/train.tsv.gz" in there.stdout
    assert there.stdout.count(", there") == 2
    assert "customer reviews" not in there.stdout


def test_data_check_says_what_is_wrong(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    wrong = here("data", "check", "--data", str(folder), "--json", "c.json", cwd=tmp_path, code=1)
    assert re.search(r"wrong +trec/train.tsv: .*SHA-256 of its content is", wrong.stdout)
    lacking = tmp_path / "lacking"
    (lacking / "trec").mkdir(parents=True)
    shutil.copy(folder / "trec" / "train.tsv.gz", lacking / "trec")
    one = here("data", "check", "trec", "--data", str(lacking), cwd=tmp_path)
    assert re.search(r"missing +trec/test.tsv", one.stdout)
    found = {f["name"]: f["status"] for f in json.loads((tmp_path / "c.json").read_text())}
    assert found["snli/train.tsv"] == "wrong"
    assert "30 examples, expected 549,367; what is trained on it is not SNLI" in wrong.stdout
    here("data", "check", "cr", "--data", ".", cwd=tmp_path, code=1)
    yours = here("data", "check", "snli", "--data", ".", cwd=tmp_path)
    assert re.search(r"missing +snli/train.tsv: .*e-SNLI", yours.stdout)


@real("README.md")
@pytest.mark.parametrize("name", list(corpora()))
def test_the_real_files_are_right(name: str) -> None:
    for finding in findings(REAL, corpora()[name]):
        assert finding.status == "right" or finding.name in supplied(), finding
    for file in corpora()[name].files:
        packed = (REAL / f"{file.name}.gz").read_bytes()
        content = gzip.decompress(packed)
        assert hashlib.sha256(packed).hexdigest() == file.sha256
        assert (content.count(b"\n") - 1, len(packed)) == (file.rows, file.bytes)
        assert tuple(content.split(b"\n", 1)[0].decode().split("\t")) == file.columns
