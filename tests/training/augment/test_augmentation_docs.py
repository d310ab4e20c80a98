"""docs/augmentation.md says what the recipes do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.augment.test_recipe import shipped
from twinlens.training.augment.description import describe
from twinlens.training.methods.registry import IMAGE_METHODS

PAGE = Path(__file__).parents[3] / "docs" / "augmentation.md"


def told(method: str) -> str:
    """The lines of the page on a method."""
    large = describe(shipped(method, 224))
    small = [line for line in describe(shipped(method, 32)) if line.startswith("at 32")]
    return "\n".join([method, *(f"  {line}" for line in (*large, *small))])


@pytest.mark.parametrize("method", IMAGE_METHODS)
def test_the_page_tells_each_recipe_as_the_command_does(method: str) -> None:
    assert told(method) in PAGE.read_text(encoding="utf-8")
