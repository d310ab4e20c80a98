from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.drawn_pictures import write_classes
from tests.support.small_image_runs import Reports, small_run
from twinlens.training.errors import ConfigError
from twinlens.training.train_images import train_images


@pytest.fixture
def albums(tmp_path: Path) -> Path:
    """Folders that may be classes, and a picture in none of them."""
    folder = write_classes(tmp_path / "albums", 4)
    (folder / "jade/000.png").rename(folder / "loose.png")
    return folder


def test_a_run_says_which_classes_it_has_found_and_what_they_are_for(albums: Path, tmp_path: Path) -> None:
    said: list[str] = []
    result = train_images(small_run("random", albums), tmp_path / "run", Reports(), say=said.append)
    kinds = ", ".join(sorted(each.name for each in albums.iterdir() if each.is_dir()))
    assert (
        f"classes: {kinds} (the names of its folders); 1 of {result.pictures} pictures have none; "
        "they only measure, and data.labels=false leaves them aside"
    ) in said
    assert result.knn is not None


def test_classes_may_be_left_aside(albums: Path, tmp_path: Path) -> None:
    said: list[str] = []
    config = small_run("random", albums, "data.labels=false")
    result = train_images(config, tmp_path / "run", Reports(), say=said.append)
    assert not any(line.startswith("classes:") for line in said)
    assert result.knn is None
    assert not (tmp_path / "run/evaluations.csv").exists()


def test_a_method_that_learns_from_classes_says_where_they_may_stand(albums: Path, tmp_path: Path) -> None:
    message = (
        r"supervised needs a class for every picture, and 1 of \d+ have none: put them in one folder .* or name a list"
    )
    with pytest.raises(ConfigError, match=message):
        train_images(small_run("supervised", albums), tmp_path / "run", Reports())
    with pytest.raises(ConfigError, match=r"data.labels: supervised learns from classes; leave it true"):
        train_images(small_run("supervised", albums, "data.labels=false"), tmp_path / "run", Reports())
