"""Tokenizers for the tiny models, made once."""

from __future__ import annotations

import pytest

from tests.support.tokenizer_families import Families


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> Families:
    return Families(tmp_path_factory.mktemp("tokenizers"))
