"""What the tests of training share: one made-up data directory, and threads that are set back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from suites.support.made_up_data import write_data_directory, write_more_corpora


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up data directory with all corpora, SNLI's training file too; not to be changed."""
    return write_more_corpora(write_data_directory(tmp_path_factory.mktemp("data")), supplied=True)


@pytest.fixture(autouse=True, scope="module")
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
