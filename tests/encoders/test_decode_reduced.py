"""JPEGs decoded at a reduced scale: how far they may be reduced, and that no embedding notices."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.support.image_files import encode, scene
from twinlens.encoders.decode import decode_image
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.preprocess import preprocess

PHOTOS = ("astronaut", "coffee", "grass", "motorcycle_left", "text")
LEAST_COSINE = 0.995


@pytest.fixture(scope="module")
def encoder(starter_bundle: Path) -> Encoder:
    return Encoder.load(starter_bundle, provider="cpu", threads=1)


class TestReducedJpeg:
    big = encode(scene(480, 640), "JPEG", quality=95)

    @pytest.mark.parametrize(("min_side", "shape"), [(30, (60, 80)), (60, (120, 160)), (120, (240, 320))])
    def test_the_scale_leaves_at_least_twice_the_side_wanted(self, min_side: int, shape: tuple[int, int]) -> None:
        assert decode_image(self.big, min_side=min_side).shape == (*shape, 3)

    @pytest.mark.parametrize("min_side", [121, 240, 480, 5000])
    def test_no_reduction_that_would_leave_less(self, min_side: int) -> None:
        shorter = min(decode_image(self.big, min_side=min_side).shape[:2])
        assert shorter >= min(480, 2 * min_side)

    @pytest.mark.parametrize("min_side", [0, -1])
    def test_a_side_that_is_none_is_a_mistake_of_the_caller(self, min_side: int) -> None:
        with pytest.raises(ValueError, match="min_side must be at least 1"):
            decode_image(self.big, min_side=min_side)

    def test_without_a_side_the_picture_is_whole(self) -> None:
        assert decode_image(self.big).shape == (480, 640, 3)

    def test_the_reduced_picture_looks_the_same(self) -> None:
        whole = Image.fromarray(decode_image(self.big)).resize((80, 60), Image.Resampling.BOX)
        reduced = decode_image(self.big, min_side=30)
        assert np.abs(np.asarray(whole).astype(int) - reduced.astype(int)).mean() < 2

    def test_only_jpeg_is_reduced(self) -> None:
        assert decode_image(encode(scene(480, 640)), min_side=30).shape == (480, 640, 3)


class TestEmbeddings:
    """Between the whole and the reduced decode of one file, by the starter's tower."""

    def test_photos_as_large_as_a_cameras(self, encoder: Encoder) -> None:
        folder = Path(str(pytest.importorskip("skimage.data").__file__)).parent
        files = [found for name in PHOTOS for found in folder.glob(f"{name}.*")]
        assert len(files) == len(PHOTOS)
        sharp = [photo(Image.open(file), (4000, 3000)) for file in files[::2]]
        # Pictures of pictures: many edges, so that much is lost on the way down.
        tiles = np.concatenate([np.asarray(Image.open(file).convert("RGB").resize((800, 750))) for file in files], 1)
        sharp.append(photo(Image.fromarray(np.concatenate([tiles, tiles[:, ::-1], tiles, tiles[::-1]])), (4000, 3000)))
        cosines = self.cosines(encoder, sharp)
        assert min(cosines) >= LEAST_COSINE, cosines

    @pytest.mark.parametrize("scale", [2, 4, 8])
    def test_the_smallest_size_that_each_scale_is_used_for(self, encoder: Encoder, scale: int) -> None:
        assert encoder.manifest.image is not None
        height = scale * 2 * encoder.manifest.image.preprocess.resize_size
        folder = Path(str(pytest.importorskip("skimage.data").__file__)).parent
        size = (height * 4 // 3, height)
        sharp = [photo(Image.open(folder / name), size) for name in ("coffee.png", "text.png")]
        assert min(self.cosines(encoder, sharp)) >= LEAST_COSINE

    @pytest.mark.shared
    def test_real_photos(self, encoder: Encoder, shared_data: Path) -> None:
        """Those at hand are small; enlarged they are soft, so some are put side by side as one large picture."""
        rows = (shared_data / "imagenet_names" / "labels.jsonl").read_text(encoding="utf-8").splitlines()
        folder = shared_data / "imagenet_names"
        pictures = [Image.open(folder / json.loads(row)["image"]).convert("RGB") for row in rows[::25]]
        sharp = [photo(picture, (1600, 1200)) for picture in pictures]
        side = [np.asarray(picture.resize((400, 300))) for picture in pictures]
        for i in range(0, len(side) - 15, 16):
            grid = np.concatenate([np.concatenate(side[i + j : i + j + 4], axis=1) for j in range(0, 16, 4)])
            sharp.append(photo(Image.fromarray(grid), (1600, 1200)))
        cosines = self.cosines(encoder, sharp)
        assert min(cosines) >= LEAST_COSINE, sorted(cosines)[:5]

    @staticmethod
    def cosines(encoder: Encoder, files: list[bytes]) -> list[float]:
        assert encoder.manifest.image is not None
        spec = encoder.manifest.image.preprocess
        whole = np.stack([preprocess(decode_image(data), spec) for data in files])
        reduced = np.stack([encoder.prepare_image(data) for data in files])
        assert not np.array_equal(whole, reduced)
        products: NDArray[np.float32] = (encoder.encode_images(whole) * encoder.encode_images(reduced)).sum(axis=1)
        return [float(product) for product in products]


def photo(picture: Image.Image, size: tuple[int, int]) -> bytes:
    """A JPEG as a camera writes it, with some grain: enlarged alone it would have nothing to lose."""
    large = np.asarray(picture.convert("RGB").resize(size, Image.Resampling.LANCZOS), dtype=np.int16)
    block = np.random.default_rng(size[0]).normal(0, 6, (500, 500, 1)).astype(np.int16)
    grain = np.tile(block, (-(-size[1] // 500), -(-size[0] // 500), 1))[: size[1], : size[0]]
    stream = io.BytesIO()
    Image.fromarray(np.clip(large + grain, 0, 255).astype(np.uint8)).save(stream, "JPEG", quality=90)
    return stream.getvalue()
