"""What trained models said of their test examples: a small file for each run, beside the journal.

The record of a run has its name and SHA-256; published ones are packed into one file.
"""

from __future__ import annotations

import base64
import hashlib
import io
import lzma
import math
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from harness.errors import UsageError
from harness.json_file import replace_file
from harness.stats import SUMMED, correlation_parts

if TYPE_CHECKING:
    import numpy as np

FOLDER = "predictions"
"""Beside the sessions' files of a journal."""
PACKED = ".predictions.tar.xz"
"""Behind the name of a journal, as `harness.records.journal.PACKED`."""
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 1, "lp": 1, "pb": 1}]
"""For numbers of two bytes."""
CERTAIN = 255
"""A probability of 1, as it is kept."""


_KINDS = {
    "items": "i",
    "seen": "b",
    "truth": "uf",
    "said": "uf",
    "confidence": "u",
    "errors": "f",
    "lengths": "u",
    "counts": "iu",
}
"""What numpy calls the type of each array."""
_UNREADABLE = (ValueError, TypeError, KeyError, EOFError, BadZipFile, zlib.error, MemoryError)
"""What numpy raises for bytes that are no archive of arrays, or claim more than there is."""


class PredictionsLost(UsageError):
    """A file that a record names is missing, or is not what was written."""


_OF_SEQUENCES = ("lengths", "counts")
"""Arrays that are written only where there are any; older files have none."""


def nothing() -> np.ndarray:
    """An empty array."""
    import numpy as np

    return np.empty(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Of one run, in the order of the test split.

    Attributes
    ----------
    items : ndarray of int32, shape [S]
        Places of the examples in the corpus' test table; with folds in its only table.
    seen : ndarray of bool, shape [S]
        Whether the same text is an example of the training table (of the other folds) too.
    truth, said : ndarray, shape [S]
        Classes (uint8), or degrees (float32 and float16); empty for vectors. Of sequences, uint8
        of shape [L], one behind the other: tags, or what was written, in UTF-8; the truth of the
        latter is empty, it stands in the corpus.
    confidence : ndarray of uint8, shape [S]
        Probability of the class that was said, in 255ths; empty where there are no classes.
    errors : ndarray of float16, shape [S]
        Mean squared error of each example, where vectors are predicted; empty otherwise.
    lengths : ndarray of uint32, shape [S]
        Of each sequence; their sum is L. Empty otherwise.
    counts : ndarray of int32, shape [S, K]
        Of each example, for metrics that are functions of sums, see `harness.stats.sums.SUMMED`;
        empty otherwise.
    """

    items: np.ndarray
    seen: np.ndarray
    truth: np.ndarray
    said: np.ndarray
    confidence: np.ndarray
    errors: np.ndarray
    lengths: np.ndarray = field(default_factory=nothing)
    counts: np.ndarray = field(default_factory=nothing)

    def sequences(self, name: str) -> list[np.ndarray]:
        """``truth`` or ``said`` of each example that is a sequence."""
        import numpy as np

        return np.split(getattr(self, name), np.cumsum(self.lengths.astype(int))[:-1])

    def text(self) -> str:
        """As it travels from a child: base64 of what `read` takes."""
        import numpy as np

        out = io.BytesIO()
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        np.savez(out, **{n: a for n, a in arrays.items() if a.size or n not in _OF_SEQUENCES})
        return base64.b64encode(out.getvalue()).decode()


def metric_of(metric: str, of: Predictions, where: np.ndarray | None = None) -> float:
    """A metric of some test examples, or of all; nan of none, or for one that isn't known here."""
    if metric in SUMMED and of.counts.size:
        return SUMMED[metric].value(of.counts if where is None else of.counts[where])
    parts = parts_of(metric, of)
    if where is not None and parts.size:
        parts = parts_of(metric, replace(of, truth=of.truth[where], said=of.said[where]))
    return float(parts.mean()) if parts.size else math.nan


def parts_of(metric: str, of: Predictions) -> np.ndarray:
    """What each example has in a metric, whose value is their mean; empty for other metrics."""
    import numpy as np

    if metric in SUMMED and of.counts.size:
        return SUMMED[metric].parts(of.counts)
    if metric not in ("accuracy", "pearson") or not of.said.size or of.lengths.size:
        return np.empty(0)
    return of.truth == of.said if metric == "accuracy" else correlation_parts(of.said, of.truth)


def unseen_of(metrics: Iterable[str], of: Predictions) -> dict[str, Any]:
    """``examples`` of the test, how many of them are ``seen``, and ``test`` metrics of the others,
    of which none or an unknown metric is left out.
    """
    values = {metric: metric_of(metric, of, ~of.seen) for metric in metrics}
    kept = {metric: value for metric, value in values.items() if not math.isnan(value)}
    return {"examples": len(of.items), "seen": int(of.seen.sum()), "test": kept}


def keep(folder: Path, key: str, text: str) -> dict[str, str]:
    """Write what a run said; what its record tells of it.

    Parameters
    ----------
    folder : Path
        Of the journal.
    key : str
        Of the run.
    text : str
        From `Predictions.text`.

    Raises
    ------
    UsageError
        If the disk refuses.
    """
    content = base64.b64decode(text)
    path = folder / FOLDER / f"{key}.npz"
    try:
        replace_file(path, content)
    except OSError as error:
        raise UsageError(
            f"can't write {path}: {error.strerror}; free some space and start again"
        ) from None
    return {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}


def read(folders: Sequence[Path], record: Mapping[str, Any]) -> Predictions | None:
    """What a run said of its test examples; None if its record tells of none.

    Parameters
    ----------
    folders : sequence of Path
        Journals, one of which has the record.
    record : mapping
        Of the run.

    Raises
    ------
    PredictionsLost
        If its file is in none of them, or is not what was written.
    """
    told = record.get("predictions")
    if not told:
        return None
    name = Path(str(told["file"])).name
    place = str(folders[0] / FOLDER / name)
    if len(folders) > 1:
        place += f" (nor in {len(folders) - 1} more that were read)"
    of = f"predictions of {record.get('case') or record['key']}"
    try:
        found = next(filter(None, (_content(folder, name) for folder in folders)), None)
    except OSError as error:
        raise PredictionsLost(f"{of} can't be read: {place}: {error.strerror}") from None
    if found is None:
        raise PredictionsLost(f"{of} are lost: no {place}; copy the file there again")
    if hashlib.sha256(found).hexdigest() != told["sha256"]:
        raise PredictionsLost(
            f"{of} were altered since they were written: {place}; copy the file there again"
        )
    try:
        return _decoded(found)
    except _UNREADABLE as error:
        raise PredictionsLost(f"{of} can't be read: {place}: {error}") from None


def _decoded(content: bytes) -> Predictions:
    """Arrays of one length (or empty) and of their types: what they hold can be counted with."""
    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        names = (f.name for f in fields(Predictions))
        found = Predictions(
            **{name: arrays[name] for name in names if name in arrays or name not in _OF_SEQUENCES}
        )
    shape = found.items.shape
    if len(shape) != 1 or not found.items.size:
        raise ValueError(f"items has shape {shape}; expected a number of examples")
    for name, kinds in _KINDS.items():
        array = getattr(found, name)
        if array.size and array.dtype.kind not in kinds:
            raise ValueError(f"{name} holds {array.dtype}")
        wanted = _shape(name, found)
        if array.shape != wanted and (array.size or name == "seen"):
            raise ValueError(f"{name} has shape {array.shape}; expected {wanted}")
    if found.truth.size != found.said.size and not (found.lengths.size and not found.truth.size):
        raise ValueError("truth and said are not of the same examples")
    if not (np.isfinite(found.truth).all() and np.isfinite(found.said).all()):
        raise ValueError("what was said is not finite")
    return found


def _shape(name: str, found: Predictions) -> tuple[int, ...]:
    """Which one an array of predictions has, unless it is empty."""
    count = found.items.size
    if name == "counts":
        return count, found.counts.shape[-1]
    if name in ("truth", "said") and found.lengths.size:
        return (int(found.lengths.sum(dtype=int)),)
    return (count,)


def _content(folder: Path, name: str) -> bytes | None:
    path = folder / FOLDER / name
    if path.is_file():
        return path.read_bytes()
    packed = Path(f"{folder}{PACKED}")
    return _unpacked(packed).get(name) if packed.is_file() else None


@lru_cache(maxsize=8)
def _unpacked(path: Path) -> Mapping[str, bytes]:
    """The files of a packed one, by name: read once, and only what is a plain file."""
    found = {}
    try:
        with tarfile.open(path, "r:xz") as tar:
            for member in tar:
                if member.isfile() and (file := tar.extractfile(member)) is not None:
                    found[member.name] = file.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise PredictionsLost(f"{path} can't be read: {error}; copy it again") from None
    return found


def pack(folder: Path, place: Path, records: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Write the predictions of some records of a journal as the packed file of another place.

    Those of drawn data are left out: anyone can draw them again.

    Parameters
    ----------
    folder, place : Path
        As of `harness.records.published.pack`.

    Returns
    -------
    frozenset of str
        The files that are in it; there is no packed file if there are none.

    Raises
    ------
    PredictionsLost
        If one is missing, or is not what was written.
    """
    contents: dict[str, bytes] = {}
    for record in records:
        found = read([folder], record)
        if found is not None and not found.errors.size:
            name = Path(str(record["predictions"]["file"])).name
            content = _content(folder, name)
            assert content is not None
            contents[name] = content
    target = Path(f"{place}{PACKED}")
    if not contents:
        target.unlink(missing_ok=True)
        return frozenset()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(contents.items()):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    replace_file(target, lzma.compress(packed.getbuffer(), filters=_FILTERS))
    _unpacked.cache_clear()
    return frozenset(contents)
