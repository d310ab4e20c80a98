"""Damaged files of every format: a picture or a refusal of one line, whatever the damage.

Runs in processes of their own, so that a crash inside a codec fails a test and not the test run. A find is repeated
with `decode_image(damaged_file(name, seed))` from `tests.support.fuzz_decode`, and becomes a test of its kind.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.support.fuzz_decode import damaged_file
from tests.support.mutations import mutate, with_right_checksums
from tests.support.picture_corpus import corpus
from twinlens.encoders.decode import decode_image
from twinlens.encoders.sniff import sniff

HEIC = ["--heic"] if importlib.util.find_spec("pillow_heif") is not None else []
FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", *(["HEIC"] if HEIC else [])]


def fuzz(first: int, count: int, form: str, timeout_s: float) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.support.fuzz_decode", str(first), str(count), "--format", form, *HEIC]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s, errors="replace")
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2000:]}"
    report: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.parametrize("form", FORMATS)
def test_damage_gives_a_picture_or_a_refusal(form: str) -> None:
    report = fuzz(0, 2_000, form, timeout_s=300)
    assert int(str(report["pictures"])) + int(str(report["refused"])) == 2_000
    assert int(str(report["pictures"])) > 20, "damage so great that it tests nothing but the first check"
    assert int(str(report["refused"])) > 200, "damage so small that it tests nothing"


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_much_damage_gives_a_picture_or_a_refusal(form: str) -> None:
    """The same every time: further seeds are tried with the command in `tests.support.fuzz_decode`."""
    fuzz(1_000_000, 10_000, form, timeout_s=3000)


def test_the_files_that_fuzzing_starts_from_are_sound_and_of_every_format() -> None:
    files = corpus()
    kinds = Counter(sniff(data[:64]) for data in files.values())
    assert set(kinds) == {"JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"}
    for data in files.values():
        height, width, _ = decode_image(data).shape
        assert {height, width} == {24, 32}


def test_the_same_seed_gives_the_same_damage() -> None:
    files = corpus()
    for name in ("PNG", "JPEG"):
        tries = [damaged_file(name, seed, files) for seed in range(200)]
        assert tries == [damaged_file(name, seed, files) for seed in range(200)]
        assert len(set(tries)) > 150


def test_repaired_checksums_let_damage_through_to_the_decoder() -> None:
    sound = corpus()["PNG text"]
    assert with_right_checksums(sound) == sound
    broken = sound[:29] + b"\0\0\0\0" + sound[33:]
    assert with_right_checksums(broken) == sound
    assert mutate(sound, [sound], 3) != sound
