from __future__ import annotations

import tomllib
from pathlib import Path

import open_clip
import pytest

from twinlens.server.core.labels import DEFAULT_TEMPLATE
from twinlens.server.core.labels import fill as servers_fill
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation import prompt_templates
from twinlens.training.evaluation.prompt_templates import TEMPLATE_SETS, TemplateSet, fill, template_set


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("openai", open_clip.OPENAI_IMAGENET_TEMPLATES), ("simple", open_clip.SIMPLE_IMAGENET_TEMPLATES)],
)
def test_the_sets_by_name_are_those_of_open_clip(name: str, theirs: tuple[object, ...]) -> None:
    assert list(template_set(name).templates) == [template("{}") for template in theirs]  # type: ignore[operator]


def test_there_are_eighty_templates_of_openai() -> None:
    assert len(set(template_set("openai").templates)) == 80


def test_the_default_is_that_of_the_server() -> None:
    assert template_set("photo").templates == (DEFAULT_TEMPLATE,)


def test_every_set_says_where_it_is_from_and_its_licence() -> None:
    folder = Path(prompt_templates.__file__).parent / "templates"
    assert {path.stem for path in folder.glob("*.toml")} == set(TEMPLATE_SETS)
    for path in folder.glob("*.toml"):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        assert content["source"]
        assert content["licence"]


@pytest.mark.parametrize("name", ["cat", "{} {}", "{c}", ""])
def test_prompts_are_filled_as_the_server_fills_them(name: str) -> None:
    for template in ("a photo of a {}.", "{} and {}", "{c} {}"):
        assert fill(template, name) == servers_fill(template, name)


def test_prompts_of_a_class_stand_together() -> None:
    assert TemplateSet("two", ("a {}", "the {}")).prompts(["cat", "dog"]) == ["a cat", "the cat", "a dog", "the dog"]


def test_a_file_of_prompts_is_a_set(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("a drawing of a {}\n\n  {} on white \n", encoding="utf-8")
    assert template_set(str(path)) == TemplateSet("mine.txt", ("a drawing of a {}", "{} on white"))


@pytest.mark.parametrize(("text", "message"), [("", "holds no prompts"), ("a photo\n", "has no {}")])
def test_a_file_without_places_for_the_class_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.txt").write_text(text)
    with pytest.raises(ConfigError, match=message):
        template_set(str(tmp_path / "mine.txt"))


def test_a_mistyped_name_is_told_with_what_was_meant() -> None:
    with pytest.raises(ConfigError, match="no templates called 'opnai'; perhaps openai"):
        template_set("opnai")
