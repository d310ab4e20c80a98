"""A configuration written as TOML reads back as it was."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from twinlens.training.toml_text import toml_text

VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8"), max_size=8),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("ab.ü \x7f\n", min_size=1), inner)),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["data", "train", "ä b"]), st.dictionaries(st.text("xy_-", min_size=1), VALUES)))
def test_what_is_written_reads_back(content: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(content)) == content


def test_a_key_that_is_not_set_is_a_comment_and_tables_are_written_out() -> None:
    content = {"train": {"steps": None, "seed": 3}, "augment": {"views": [{"count": 2, "blur": {"kernel": None}}]}}
    assert toml_text(content) == (
        "[train]\n# steps is not set\nseed = 3\n\n[augment]\n\n[[augment.views]]\ncount = 2\nblur = {}\n"
    )
