"""Sets of prompts around the names of classes: by name, or from a file."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlens.training.errors import ConfigError
from twinlens.training.pull.near_names import near

PLACEHOLDER = "{}"
_FOLDER = Path(__file__).parent / "templates"
TEMPLATE_SETS = ("photo", "plain", "simple", "openai")


@dataclass(frozen=True)
class TemplateSet:
    """Prompts that are averaged to one vector a class.

    Attributes:
        name: What a person calls the set.
        templates: Prompts, each with a place for the class.
    """

    name: str
    templates: tuple[str, ...]

    def prompts(self, classes: Sequence[str]) -> list[str]:
        """Every prompt of every class, those of a class together."""
        return [fill(template, name) for name in classes for template in self.templates]


def fill(template: str, name: str) -> str:
    """Puts a name in the place of the first "{}", as the server does; other braces stay as they are."""
    return template.replace(PLACEHOLDER, name, 1)


def template_set(which: str) -> TemplateSet:
    """A set by its name, or from a file of one prompt a line.

    Args:
        which: `photo` ("a photo of a {}."), `plain` (the name alone), `simple` (7 prompts), `openai` (the 80 of Radford
            et al. 2021), or a file.

    Raises:
        ConfigError: if there is neither such a set nor such a file, or a line has no place for the class.
    """
    if which in TEMPLATE_SETS:
        content = tomllib.loads((_FOLDER / f"{which}.toml").read_text(encoding="utf-8"))
        return TemplateSet(which, tuple(content["templates"]))
    path = Path(which)
    if not path.is_file():
        meant = near(which, TEMPLATE_SETS)
        perhaps = f"; perhaps {meant[0]}" if meant else ""
        raise ConfigError(f"no templates called {which!r}{perhaps}: {', '.join(TEMPLATE_SETS)}, or a file of prompts")
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as text: {error}") from None
    return TemplateSet(path.name, checked([line for line in lines if line], str(path)))


def checked(templates: Sequence[str], whose: str) -> tuple[str, ...]:
    """Prompts that each have a place for the class.

    Raises:
        ConfigError: if there are none, or one has no place.
    """
    if not templates:
        raise ConfigError(f"{whose} holds no prompts")
    for template in templates:
        if PLACEHOLDER not in template:
            raise ConfigError(f"{whose}: {template!r} has no {PLACEHOLDER} for the name of the class")
    return tuple(templates)
