from __future__ import annotations

import pytest

from twinlens.training.image_config import recipe_text
from twinlens.training.methods.image_method import ImageMethod
from twinlens.training.methods.registry import IMAGE_METHODS, image_method


@pytest.mark.parametrize("name", IMAGE_METHODS)
def test_every_name_gives_its_method_which_has_a_recipe(name: str) -> None:
    found = image_method(name)
    assert issubclass(found, ImageMethod)
    assert found.name == name
    assert "[train]" in recipe_text(name)
