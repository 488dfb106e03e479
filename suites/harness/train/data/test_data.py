"""The data of training: tables, tokens, vectors, vocabulary; made-up files and the real ones."""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.train.data.corpora import data_digest, is_known, unlike
from harness.train.data.corpus import Vocabulary, corpus, tokens_raw, tokens_whitespace
from harness.train.data.directory import VARIABLE, data_directory, digest_of, read_table
from harness.train.data.vectors import (
    PADDING,
    SPECIAL,
    UNKNOWN,
    Vectors,
    canonical,
    coverage,
    embedding_table,
    read_vectors,
)
from harness.train.task import task
from suites.support.command_line import attnbench
from suites.support.made_up_data import write_data_directory, write_table
from suites.support.real_data import REAL, real

CLASSES = {"ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"}

# As in the read-me of the data directory.
CHECKSUMS = {
    name: checksum
    for checksum, name in map(
        str.split,
        """
e66836df5c8cb3fb3255a949ae16b3e325ee36ab1608da83f738fcd67059875e glove/sick_840B_300d.tsv.gz
cdfb5d3dda38a4f8ca64028107864c398e04d8e6f4addd599c32da48b4f65776 glove/top10k_100d_int8.tsv.gz
81cf304480bbe05af0e318ee5e3ab43bdca94c82f2f74f482c292574d3e17826 sick/dev.tsv.gz
d917107f33bba038d4604fb87bd064b1da230d7be3bf64a9145b0db7e2fbfaa5 sick/test.tsv.gz
2e4fbdb5e9b095479c37634c545a83316b7ba312dafe608ce4de33d4a70eaded sick/train.tsv.gz
280008cd6bf1ee1d7c561263ad8deb5ce053aafff7be0fb9e39ff07dcdfe6476 trec/test.tsv.gz
994b1b2f0a50608468e8bba008709f9aa80694fea50c680f782f605d6389f9a5 trec/train.tsv.gz
""".strip().split("\n"),
    )
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up data directory."""
    return write_data_directory(tmp_path_factory.mktemp("data"))


def _questions(folder: Path, *splits: str) -> list[list[str]]:
    tables = [read_table(folder / "trec" / f"{split}.tsv.gz", ["text"]) for split in splits]
    return [tokens_whitespace(row["text"]) for table in tables for row in table]


def _pairs(folder: Path, *splits: str) -> list[list[str]]:
    columns = ["sentence_a", "sentence_b"]
    tables = [read_table(folder / "sick" / f"{split}.tsv.gz", columns) for split in splits]
    return [tokens_raw(row[column]) for table in tables for row in table for column in columns]


def _write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _vectors(folder: Path, text: str | bytes, needed: set[str] | None = None) -> Vectors:
    return read_vectors(str(_write(folder / "made.up.txt", text)), None, needed)


def _message(caught: pytest.ExceptionInfo[UsageError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


# Where the data is.


def test_the_option_goes_before_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other"))
    assert data_directory(str(tmp_path)) == tmp_path
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert data_directory(None) == tmp_path


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_folder_we_say_how_to_give_one(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(UsageError) as caught:
        data_directory(None)
    message = _message(caught)
    for part in ("--data DIR", VARIABLE, "trec/train.tsv.gz", "coarse fine text", "docs/data.md"):
        assert part in message


def test_a_folder_that_is_not_there_is_named_with_who_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = str(tmp_path / "gone")
    monkeypatch.setenv(VARIABLE, gone)
    with pytest.raises(UsageError, match="which is no folder") as one:
        data_directory(None)
    assert _message(one).startswith(f"{VARIABLE} says {gone!r}")
    for name in (gone, ""):
        with pytest.raises(UsageError) as two:
            data_directory(name)
        assert _message(two).startswith(f"--data says {name!r}")


# Tables.

FIELD = st.text(
    st.one_of(
        st.sampled_from("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\"'\\ "),
        st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]),
    ),
    max_size=12,
)


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


def test_the_digest_tells_contents_and_their_order_apart(tmp_path: Path) -> None:
    one, two = _write(tmp_path / "one.tsv", "a\nb\n"), _write(tmp_path / "two.tsv", "c\n")
    joined, empty = _write(tmp_path / "3.tsv", "a\nb\nc\n"), _write(tmp_path / "4.tsv", "")
    digests = {digest_of(files) for files in ([one, two], [two, one], [joined], [joined, empty])}
    assert len(digests) == 4
    assert digest_of([one]) == hashlib.sha256(hashlib.sha256(b"a\nb\n").digest()).hexdigest()[:16]


def test_a_last_line_without_an_end_counts(tmp_path: Path) -> None:
    assert len(read_table(_write(tmp_path / "t.tsv", "text\na\nb"), ["text"])) == 2


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("coarse\ttext\nNUM\tHow many ?\n", [":1:", "no column 'fine'", "coarse fine text"]),
        ("", [":1:", "no column 'coarse'"]),
        ("coarse\tfine\ttext\nNUM\tcount\ta\nNUM\tcount\n", [":3:", "2 fields", "3"]),
        ("coarse\tfine\ttext\nNUM\tcount\ta\tb\n", [":2:", "4 fields", "3"]),
        ("coarse\tfine\ttext\nNUM\tcount\ta\n\n", [":3:", "1 fields"]),
        (b"coarse\tfine\ttext\nNUM\tcount\tcaf\xe9 ?\n", [":2:", "not UTF-8", "0xe9", "convert"]),
    ],
)
def test_a_bad_table_is_refused_with_its_line(
    content: str | bytes, parts: list[str], tmp_path: Path
) -> None:
    path = _write(tmp_path / "train.tsv", content)
    with pytest.raises(UsageError) as caught:
        read_table(path, ["coarse", "fine", "text"])
    message = _message(caught)
    for part in (str(path), *parts):
        assert part in message


@pytest.mark.parametrize(
    "cut",
    [b"no gzip at all", gzip.compress(b"text\n" + b"a\n" * 99)[:-9]],
    ids=["none at all", "cut off"],  # the bytes hold the time of day: no name for a test
)
def test_a_bad_gzip_file_is_refused(cut: bytes, tmp_path: Path) -> None:
    path = _write(tmp_path / "train.tsv.gz", cut)
    for reading in (lambda: read_table(path, ["text"]), lambda: digest_of([path])):
        with pytest.raises(UsageError, match=r"not a whole gzip file.*copy it again") as caught:
            reading()
        assert str(path) in _message(caught)


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(b"text\n" + bytes(range(14, 256)) * 9))
    content[40:60] = b"\xff" * 20
    with pytest.raises(UsageError, match="not a whole gzip file"):
        digest_of([_write(tmp_path / "train.tsv.gz", bytes(content))])


def test_a_missing_table_is_named_with_its_twin(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file .*dev\.tsv\.gz, nor dev\.tsv ") as caught:
        read_table(tmp_path / "dev.tsv.gz", ["text"])
    assert "--data" in _message(caught)
    (tmp_path / "test.tsv").mkdir()
    with pytest.raises(UsageError, match=r"can't read .*: Is a directory") as caught:
        read_table(tmp_path / "test.tsv", ["text"])
    _message(caught)


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


def test_tokenised_text_is_only_split() -> None:
    assert tokens_whitespace(" What does  n't-x mean ?") == ["What", "does", "n't-x", "mean", "?"]


# Vectors.

CASED = "the 1 2 3\nParis 4 5 6\n. . 7 8 9\nparis 1.5 -2e-1 0\n"


def test_glove_text_is_read(tmp_path: Path) -> None:
    vectors = _vectors(tmp_path, CASED)
    assert list(vectors.rows) == ["the", "Paris", ". .", "paris"]
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(
        vectors.matrix,
        np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1.5, -0.2, 0]], np.float32),
    )
    assert (vectors.name, vectors.width, vectors.cased, vectors.centred) == (
        "made.up",
        3,
        True,
        False,
    )


def test_word2vec_header_gzip_and_ends_of_lines_change_nothing_but_the_digest(
    tmp_path: Path,
) -> None:
    plain = _vectors(tmp_path, CASED)
    packed = read_vectors(str(_write(tmp_path / "p.vec.gz", gzip.compress(CASED.encode()))))
    assert packed.name == "p"
    assert packed.digest == plain.digest == digest_of([tmp_path / "made.up.txt"])
    for other in ("4 3\n" + CASED, CASED.replace("\n", " \r\n") + "\n"):
        read = _vectors(tmp_path, other)
        assert read.rows == plain.rows
        np.testing.assert_array_equal(read.matrix, plain.matrix)
        assert read.digest != plain.digest


def test_of_a_word_that_stands_twice_the_first_counts(tmp_path: Path) -> None:
    vectors = _vectors(tmp_path, "the 1\nof 2\nthe 3\nin 4\n")
    assert [vectors.matrix[vectors.rows[w], 0] for w in ("the", "of", "in")] == [1, 2, 4]


def test_a_numeral_may_be_a_word(tmp_path: Path) -> None:
    assert list(_vectors(tmp_path, "7 1 2\n1.5 3 4\n").rows) == ["7", "1.5"]


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
    text = "at 1 2\nto name@domain.com 3 4\nto 5 6\n"
    vectors = _vectors(tmp_path, text, {"to"})
    assert list(vectors.rows) == ["to"]
    assert vectors.matrix.tolist() == [[5, 6]]
    assert list(_vectors(tmp_path, text, {"to name@domain.com"}).rows) == ["to name@domain.com"]


def test_how_a_word_is_found(tmp_path: Path) -> None:
    cased = _vectors(tmp_path, "the 1\nParis 2\nUS 3\nus 4\n")
    found = [cased.find(word) for word in ("the", "The", "THE", "paris", "PARIS", "US", "us", "Us")]
    assert found == [0, 0, 0, 1, 1, 2, 3, 3]
    assert cased.find("of") is None
    lower = _vectors(tmp_path, "the 1\nparis 2\n")
    assert [lower.find(word) for word in ("The", "PARIS", "of")] == [0, 1, None]
    assert (cased.cased, lower.cased) == (True, False)


def test_the_quantised_table_is_scaled_and_centred_over_all_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "q.tsv.gz"
    rows = [["the", "2.54", "127 -127 50"], ["of", "1.27", "100 0 -3"], ["in", "0.5", "0 0 127"]]
    rows.append(["the", "9", "1 1 1"])  # the first row of a word counts
    write_table(path, ["word", "scale", "q"], rows)
    expected = np.array([[2.54, -2.54, 1.0], [1.0, 0, -0.03], [0, 0, 0.5]])
    expected -= expected.mean(axis=0)
    whole = read_vectors(str(path))
    np.testing.assert_allclose(whole.matrix, expected, atol=1e-6)
    assert (whole.centred, whole.cased, whole.matrix.dtype) == (True, False, np.float32)
    kept = read_vectors(str(path), None, {"In", "x"})
    assert list(kept.rows) == ["in"]
    np.testing.assert_array_equal(kept.matrix, whole.matrix[2:])


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["empty"]),
        ("the\n", [":1:", "no components"]),
        ("the 1 2\nof 1\n", [":2:", "1 components", "expected 2"]),
        ("the 1 2\nof 1 2 3\n", [":2:", "3 components", "expected 2"]),
        ("the 1 2\nof  1 2\n", [":2:", "3 components", "expected 2"]),
        ("the 1 x\n", [":1:", "'x'", "finite numbers"]),
        ("the 1 2\nof 1 nan\n", [":2:", "'nan'", "finite numbers"]),
        ("the 1 2\nof 1 1e99\n", [":2:", "1e99", "finite numbers"]),
        ("3 2\nthe 1 2\nof 1 2\n", [":1:", "announces 3 words, 2 follow"]),
        (b"the 1 2\ncaf\xe9 1 2\n", [":2:", "UTF-8"]),
        (b"PK\x03\x04 and so on", ["zip archive", "unzip"]),
        ("word\tv\nthe\t1 2\nof\t1\n", [":3:", "1 components", "expected 2"]),
        ("word\tv\n", ["no components"]),
        ("word\tscale\tq\n", ["no words"]),
        ("word\tscale\tq\nthe\t1\t1 2\nof\t1\n", [":3:", "2 fields"]),
        ("word\tscale\tq\nthe\t1\t1 2\nof\t1\t1 2 3\n", [":3:", "3 components", "2"]),
        ("word\tscale\tq\nthe\t1\t1 300\n", [":2:", "300", "8 bits"]),
        ("word\tscale\tq\nthe\t1\t1 x\n", [":2:", "'x'", "8 bits"]),
        ("word\tscale\tq\nthe\tinf\t1 2\n", [":2:", "'inf'", "finite numbers"]),
    ],
)
def test_bad_vectors_are_refused_with_their_line(
    content: str | bytes, parts: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        _vectors(tmp_path, content)
    message = _message(caught)
    for part in ("made.up.txt", *parts):
        assert part in message


def test_a_short_row_is_refused_even_where_its_word_is_not_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=":2: 1 components"):
        _vectors(tmp_path, "the 1 2\nof 1\nin 1 2\n", {"in"})


def test_tables_are_chosen_by_name_and_unknown_names_list_them(
    folder: Path, tmp_path: Path
) -> None:
    quantised = read_vectors("top10k_100d", folder)
    assert quantised.name == read_vectors("top10k_100d_int8", folder).name == "top10k_100d_int8"
    assert (quantised.width, read_vectors("sick_840B_300d", folder).width) == (20, 30)
    with pytest.raises(UsageError, match=r"'glove\.6B'.*sick_840B_300d, top10k_100d_int8") as one:
        read_vectors("glove.6B", folder)
    with pytest.raises(UsageError, match="no word vectors 'top10k_10'"):
        read_vectors("top10k_10", folder)
    with pytest.raises(UsageError, match=r"no word vectors 'top10k_100d'.*--data") as two:
        read_vectors("top10k_100d", None)
    with pytest.raises(UsageError, match=r"tables in .*: none") as three:
        read_vectors("top10k_100d", tmp_path)
    for caught in (one, two, three):
        _message(caught)


def test_coverage_counts_words_and_running_words(tmp_path: Path) -> None:
    sentences = [["The", "the", "cat"], ["the", "Bmxs", "bmxs", "bmxs", "THE"]]
    lower = coverage(sentences, _vectors(tmp_path, "the 1\ncat 2\n"))
    assert (lower.vocabulary, lower.covered) == (3, 2)
    assert (lower.running_words, lower.covered_running) == (8, 5)
    assert str(lower) == "vectors made.up cover 66.7 % of 3 words, 62.5 % of 8 running words"
    cased = coverage(sentences, _vectors(tmp_path, "the 1\nCat 2\n"))
    assert (cased.vocabulary, cased.covered) == (6, 4)
    assert (cased.share, cased.running_share) == (4 / 6, 5 / 8)
    assert str(coverage([], _vectors(tmp_path, "the 1\n"))).startswith(
        "vectors made.up cover 0.0 %"
    )


# Vocabulary and embedding.


def test_lower_case_vectors_make_a_lower_case_vocabulary(tmp_path: Path) -> None:
    vectors = _vectors(tmp_path, "the 1\ncat 2\n")
    vocabulary = Vocabulary.build([["Zebra", "The", "ox"], ["zebra"]], vectors)
    assert vocabulary.words == ("the", "cat", "ox", "zebra")
    assert vocabulary.encode(["THE", "Cat", "OX", "Zebra", "new"]) == [2, 3, 4, 5, UNKNOWN]
    assert len(vocabulary) == 6


def test_cased_vectors_keep_surface_forms_apart_where_they_do(tmp_path: Path) -> None:
    vectors = _vectors(tmp_path, "the 1\nParis 2\n")
    vocabulary = Vocabulary.build([["The", "paris", "bmxs", "Bmxs"]], vectors)
    assert vocabulary.words == ("the", "Paris", "Bmxs", "bmxs")
    encoded = vocabulary.encode(["The", "THE", "paris", "PARIS", "Bmxs", "bmxs", "BMXS"])
    assert encoded == [2, 2, 3, 3, 4, 5, UNKNOWN]


def test_without_vectors_all_training_words_have_rows() -> None:
    vocabulary = Vocabulary.build([["B", "a"], ["b", "c"]], None)
    assert vocabulary.words == ("a", "b", "c")
    assert vocabulary.encode(["A", "b", "d"]) == [2, 3, UNKNOWN]


WORD = st.text("abAB", min_size=1, max_size=3)


@given(
    sentences=st.lists(st.lists(WORD, max_size=5), max_size=5),
    others=st.lists(WORD, max_size=5),
    table=st.lists(WORD, max_size=6, unique=True),
    cased=st.booleans(),
)
def test_every_training_word_has_a_row_and_the_row_is_its_words(
    sentences: list[list[str]], others: list[str], table: list[str], cased: bool
) -> None:
    words = table if cased else list(dict.fromkeys(word.lower() for word in table))
    rows = {word: row for row, word in enumerate(words)}
    matrix = np.arange(1, len(words) + 1, dtype=np.float32)[:, None]
    vectors = Vectors("made up", rows, matrix, cased, False, "")
    vocabulary = Vocabulary.build(sentences, vectors)
    embedding = embedding_table(vocabulary.words, vectors, 0, 1)
    assert len(set(vocabulary.words)) == len(vocabulary.words) == len(embedding) - SPECIAL
    assert Vocabulary.build(reversed(sentences), vectors).words == vocabulary.words
    trained = {token for sentence in sentences for token in sentence}
    for word in [*trained, *others]:
        row, source = vocabulary.index(word), vectors.find(word)
        assert PADDING != row < len(vocabulary)
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
    words = ["the", "cat", *(f"w{number}" for number in range(4000))]
    table = embedding_table(words, vectors, 3, 2)
    assert table.dtype == np.float32
    assert table.shape == (4004, 2)
    np.testing.assert_array_equal(table[[PADDING, 2, 3]], [[0, 0], [1, 2], [3, 4]])
    random = np.delete(table, [PADDING, 2, 3], axis=0)
    assert 0.0499 < random.max() <= np.float32(0.05)
    assert -np.float32(0.05) <= random.min() < -0.0499
    assert abs(random.mean()) < 0.002
    assert (table[UNKNOWN] != 0).all()


def test_random_rows_depend_on_seed_and_place_only(tmp_path: Path) -> None:
    vectors = _vectors(tmp_path, "the 1 2\ncat 3 4\n")
    words = ["the", "ox", "cat", "zebra"]
    table = embedding_table(words, vectors, 3, 2)
    np.testing.assert_array_equal(table, embedding_table(words, vectors, 3, 2))
    bare = embedding_table(words, None, 3, 2)
    np.testing.assert_array_equal(table[[UNKNOWN, 3, 5]], bare[[UNKNOWN, 3, 5]])
    assert (bare[2:] != embedding_table(words, None, 4, 2)[2:]).all()


def test_an_embedding_of_another_width_is_refused(tmp_path: Path) -> None:
    vectors = _vectors(tmp_path, "the 1 2\n")
    with pytest.raises(
        UsageError, match=r"made\.up have 2 components, the embedding 300"
    ) as caught:
        embedding_table(["the"], vectors, 0, 300)
    _message(caught)


# The made-up directory itself.


def test_the_made_up_directory_is_the_same_each_time_and_of_the_real_layout(
    folder: Path, tmp_path: Path
) -> None:
    again = write_data_directory(tmp_path)
    assert is_known("trec", data_digest(task("trec"), again, "none")) is False
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.gz"))
    assert {str(file) for file in files} == set(CHECKSUMS)
    assert all((folder / file).read_bytes() == (again / file).read_bytes() for file in files)
    other = write_data_directory(tmp_path / "other", seed=1)
    assert digest_of([other / file for file in files]) != digest_of([again / f for f in files])
    for split, rows in (("train", 120), ("dev", 40), ("test", 60)):
        table = read_table(folder / "sick" / f"{split}.tsv.gz", ["pair_id", "relatedness", "label"])
        assert len(table) == rows
        assert len({row["label"] for row in table}) == 3


def test_the_made_up_questions_can_be_learned(folder: Path) -> None:
    columns = ["coarse", "fine", "text"]
    train = read_table(folder / "trec" / "train.tsv.gz", columns)
    test = read_table(folder / "trec" / "test.tsv.gz", columns)
    assert {row["coarse"] for row in train} == CLASSES
    assert (len(train), len(test)) == (240, 60)
    assert not {row["text"] for row in train} & {row["text"] for row in test}
    votes: dict[str, Counter[str]] = {}
    for row in train:
        for token in tokens_whitespace(row["text"]):
            votes.setdefault(token, Counter())[row["coarse"]] += 1
    right = 0
    for row in test:
        scores = dict.fromkeys(CLASSES, 0.0)
        for token in tokens_whitespace(row["text"]):
            for coarse, count in votes.get(token, Counter()).items():
                scores[coarse] += count / votes[token].total()
        right += max(scores, key=scores.__getitem__) == row["coarse"]
    assert right >= 50


def test_made_up_coverage_is_partial(folder: Path) -> None:
    for name, sentences in (
        ("top10k_100d", _questions(folder, "train", "test")),
        ("sick_840B_300d", _pairs(folder, "train", "dev", "test")),
    ):
        found = coverage(sentences, read_vectors(name, folder))
        assert 0.8 < found.share < 1
        assert 0.8 < found.running_share < 1


def test_files_that_are_not_the_listed_ones_are_found(folder: Path) -> None:
    assert [one.name for one in unlike(folder, task("trec").files)] == list(task("trec").files)
    assert unlike(folder, ["snli/train.tsv"]) == [], "the user's own: no list knows it"


# The real files.


@pytest.mark.parametrize("name", [pytest.param(name, marks=real(name)) for name in CHECKSUMS])
def test_the_real_files_are_those_of_their_read_me(name: str) -> None:
    assert hashlib.sha256((REAL / name).read_bytes()).hexdigest() == CHECKSUMS[name]


@real("trec/train.tsv.gz", "trec/test.tsv.gz")
def test_real_trec() -> None:
    assert is_known("trec", data_digest(task("trec"), REAL, "none"))
    assert unlike(REAL, task("trec").files) == []
    columns = ["coarse", "fine", "text"]
    tables = [read_table(REAL / "trec" / f"{split}.tsv.gz", columns) for split in ("train", "test")]
    train, test = tables
    assert (len(train), len(test)) == (5452, 500)
    assert Counter(row["coarse"] for row in train) == {
        "ABBR": 86,
        "DESC": 1162,
        "ENTY": 1250,
        "HUM": 1223,
        "LOC": 835,
        "NUM": 896,
    }
    assert {row["coarse"] for row in test} == CLASSES
    assert len({(row["coarse"], row["fine"]) for row in train}) == 50
    sentences = _questions(REAL, "train", "test")
    words = Counter(token for sentence in sentences for token in sentence)
    assert (words.total(), len(words), len({word.lower() for word in words})) == (59393, 9775, 8981)
    assert max(map(len, sentences)) == 37


@real("sick/train.tsv.gz", "sick/dev.tsv.gz", "sick/test.tsv.gz")
def test_real_sick() -> None:
    assert is_known("sick_relatedness", data_digest(task("sick_relatedness"), REAL, "none"))
    splits = ("train", "dev", "test")
    labels = [read_table(REAL / "sick" / f"{split}.tsv.gz", ["label"]) for split in splits]
    assert [len(table) for table in labels] == [4500, 500, 4927]
    assert Counter(row["label"] for row in labels[0]) == {
        "neutral": 2536,
        "entailment": 1299,
        "contradiction": 665,
    }
    sentences = _pairs(REAL, *splits)
    words = Counter(token for sentence in sentences for token in sentence)
    assert (words.total(), len(words)) == (192193, 2409)
    assert len({word.lower() for word in words}) == 2313
    assert max(map(len, sentences)) == 36


@real(*CHECKSUMS)
@pytest.mark.parametrize("only_needed", [False, True])
def test_real_coverage_is_that_of_the_read_me(only_needed: bool) -> None:
    questions = _questions(REAL, "train", "test")
    pairs = _pairs(REAL, "train", "dev", "test")
    for sentences, name, expected in (
        (questions, "top10k_100d", "51.8 % of 8,981 words, 90.3 % of 59,393 running words"),
        (questions, "sick_840B_300d", "13.9 % of 9,775 words, 41.6 % of 59,393 running words"),
        (pairs, "top10k_100d", "57.5 % of 2,313 words, 92.0 % of 192,193 running words"),
        (pairs, "sick_840B_300d", "99.7 % of 2,409 words, 99.5 % of 192,193 running words"),
    ):
        needed = {token for sentence in sentences for token in sentence} if only_needed else None
        vectors = read_vectors(name, REAL, needed)
        assert str(coverage(sentences, vectors)) == f"vectors {vectors.name} cover {expected}"


@real("glove/top10k_100d_int8.tsv.gz", "glove/sick_840B_300d.tsv.gz")
def test_real_vectors() -> None:
    quantised = read_vectors("top10k_100d", REAL)
    assert quantised.matrix.shape == (10_000, 100)
    assert (quantised.cased, quantised.centred) == (False, True)
    np.testing.assert_allclose(quantised.matrix.mean(axis=0), 0, atol=1e-5)
    the, comma = (quantised.matrix[quantised.rows[word]] for word in ("the", ","))
    np.testing.assert_allclose(
        (the - comma)[:2],
        [(7 * 5.736062 - 4.866347) / 127, (-7 * 5.736062 - 8 * 4.866347) / 127],
        rtol=1e-4,
    )
    plain = read_vectors("sick_840B_300d", REAL)
    assert plain.matrix.shape == (2402, 300)
    assert (plain.cased, plain.centred) == (True, False)
    np.testing.assert_array_equal(
        plain.matrix[plain.rows["the"], :3], np.array([0.27204, -0.06203, -0.1884], np.float32)
    )


def test_rare_words_share_the_row_of_unknown_ones() -> None:
    train = [["often", "rare", "Often"], ["often"]]
    words = corpus(train, [["new", "rare"]], "none", None, seed=0, word_width=3)
    often = words.encode(["often"])
    assert often == words.encode(["OFTEN"])
    assert often[0] >= SPECIAL
    assert words.encode(["rare", "new"]) == [UNKNOWN, UNKNOWN]
    assert words.embedding.shape == (SPECIAL + 1, 3)
    assert words.coverage is None


def test_one_table_has_one_name(tmp_path: Path) -> None:
    folder = tmp_path / "glove"
    folder.mkdir()
    (folder / "small_2d.tsv").write_text("word\tv\na\t1 2\n")
    other = tmp_path / "mine.txt"
    other.write_text("a 1 2\n")
    assert canonical("small", tmp_path) == canonical("small_2d", tmp_path) == "small_2d"
    assert canonical(str(folder / "small_2d.tsv"), tmp_path) == "small_2d"
    there = tmp_path / "glove" / ".." / "mine.txt"
    assert canonical(str(there), tmp_path) == canonical(str(other), None) == str(other.resolve())
    with pytest.raises(UsageError, match="no word vectors 'large'"):
        canonical("large", tmp_path)


def test_the_hub_has_no_tables_of_vectors(tmp_path: Path) -> None:
    done = attnbench("train", "mtsa", "--task", "trec", "--data", "hub", cwd=tmp_path)
    assert done.returncode == 2
    assert "'top10k_100d_int8' are a table of a data directory" in done.stderr
    assert done.stderr.count("\n") == 1
