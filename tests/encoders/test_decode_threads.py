"""Decoding in many threads at once, as the server does."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.support.fuzz_decode import damaged_file
from tests.support.picture_corpus import corpus
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage


def outcome(data: bytes) -> bytes | str:
    try:
        return decode_image(data).tobytes()
    except InvalidImage as refusal:
        return str(refusal)


def test_threads_do_not_disturb_each_other() -> None:
    files = corpus()
    tries = [*files.values(), *(damaged_file(name, seed, files) for seed, name in enumerate(files))]
    alone = [outcome(data) for data in tries]
    assert any(isinstance(each, str) for each in alone)
    order = np.random.default_rng(5).permutation(len(tries) * 6) % len(tries)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(outcome, [tries[i] for i in order]))
    for i, found in zip(order, together, strict=True):
        assert found == alone[i]
