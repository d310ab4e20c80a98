"""The smallest, the thinnest and the largest pictures."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.support.image_files import encode
from twinlens.encoders.decode import decode_image
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import load_pixels

KINDS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"]
SPECS = [
    PreprocessSpec(size=224, resize_size=224, mean=(0.5,) * 3, std=(0.5,) * 3, resize_mode=mode)
    for mode in ("shortest", "squash", "longest")
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (3, 1), (1, 17)])
def test_tiny_pictures(kind: str, size: tuple[int, int]) -> None:
    data = encode(Image.new("RGB", size, (250, 130, 20)), kind, quality=100)
    decoded = decode_image(data, min_side=224)
    assert decoded.shape == (size[1], size[0], 3)
    np.testing.assert_allclose(decoded[0, 0].astype(int), (250, 130, 20), atol=6)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "BMP"])
@pytest.mark.parametrize("size", [(1, 20_000), (20_000, 1), (3, 20_000)])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.resize_mode)
def test_thin_pictures_reach_the_tower(kind: str, size: tuple[int, int], spec: PreprocessSpec) -> None:
    """Resized by its shorter side, 1 x 20,000 would be 224 x 4,480,000 pixels on the way: 3 GB."""
    data = encode(Image.new("RGB", size, (250, 130, 20)), kind, quality=100)
    assert decode_image(data).shape == (size[1], size[0], 3)
    pixels = load_pixels(data, spec)
    assert pixels.shape == (3, 224, 224)
    np.testing.assert_allclose((pixels[:, 111, 111] + 1) * 127.5, (250, 130, 20), atol=6)


@pytest.mark.parametrize("kind", ["WEBP", "GIF", "AVIF"])
def test_thin_pictures_of_formats_with_a_limit_of_their_own(kind: str) -> None:
    for size in ((1, 16_383), (16_383, 1)):
        data = encode(Image.new("RGB", size, (250, 130, 20)), kind)
        assert decode_image(data).shape == (size[1], size[0], 3)


def test_48_megapixels_are_read() -> None:
    """In a process of its own: whole it takes some 350 MB, and with a side wanted a tenth of that."""
    script = (
        "import io, sys\n"
        "from pathlib import Path\n"
        "from PIL import Image\n"
        "from twinlens.encoders.decode import decode_image\n"
        "stream = io.BytesIO()\n"
        "Image.effect_noise((1000, 750), 60).resize((8000, 6000)).convert('RGB').save(stream, 'JPEG', quality=80)\n"
        "peak = Path('/proc/self/clear_refs')\n"
        "for side, shape, most in ((224, (750, 1000, 3), 60), (None, (6000, 8000, 3), 500)):\n"
        "    peak.write_text('5')\n"
        "    high = lambda: int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]) / 1024\n"
        "    before = high()\n"
        "    found = decode_image(stream.getvalue(), min_side=side).shape\n"
        "    assert found == shape, found\n"
        "    assert high() - before < most, high() - before\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
