"""What callers send."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.serving.photo_bytes import distinct, poisoned, read_photos
from bench.serving.photo_files import MANY_SIZES, write_photos
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder, 2)
    return read_photos(folder)


def test_a_drawn_photo_is_as_large_as_a_real_one(photos: list[bytes]) -> None:
    assert all(50_000 < len(photo) < 100_000 for photo in photos)
    assert decode_image(photos[0]).shape == (480, 640, 3)


def test_calls_bring_other_bytes_and_the_same_picture(photos: list[bytes]) -> None:
    first, second = distinct(photos[0], 1), distinct(photos[0], 2)
    assert first != second
    np.testing.assert_array_equal(np.asarray(decode_image(first)), np.asarray(decode_image(photos[0])))


@pytest.mark.parametrize("number", range(5))
def test_what_is_poisoned_is_refused(number: int, photos: list[bytes]) -> None:
    with pytest.raises(InvalidImage):
        decode_image(poisoned(photos[0], number))


def test_pictures_of_all_sizes_are_among_many(tmp_path: Path) -> None:
    write_photos(tmp_path, len(MANY_SIZES), MANY_SIZES)
    shapes = [decode_image(photo).shape for photo in read_photos(tmp_path)]
    assert shapes == [(height, width, 3) for width, height in MANY_SIZES]


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no pictures"):
        read_photos(tmp_path)
