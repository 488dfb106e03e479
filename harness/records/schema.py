"""What a record is, and the key by which a finished one is known again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SCHEMA = 1
"""Version of the journal; a reader refuses newer ones, because it can't know what they mean."""

KINDS = (
    "session", "block", "verify", "time", "anchor", "memory", "margin", "design", "run", "verdict",
    "diff", "diff-block",
)  # fmt: skip


def digest(value: Any) -> str:
    """Short hash of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def key(kind: str, case: str, block: int, code: str, fingerprint: Mapping[str, Any]) -> str:
    """Key of a finished measurement: the same key is never measured twice.

    Parameters
    ----------
    kind : str
        What was done: ``time``, ``memory``, ``margin`` or ``verify``.
    case : str
        Case id.
    block : int
    code : str
        Hash of the mechanism's and the harness's source.
    fingerprint : mapping
        Device, driver, CUDA, torch, python, threads, allocator.
    """
    return digest([kind, case, block, code, dict(fingerprint)])
