"""What guessing finds, against every choice there is and against random vectors."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from twinlens.training.evaluate import retrieval
from twinlens.training.evaluation.bundles.guessing import found_by_guessing


@pytest.mark.parametrize("right", [[1], [3], [1, 2, 2, 6]])
@pytest.mark.parametrize("k", [1, 2, 6, 9])
def test_it_is_the_share_of_all_choices_of_k_that_hold_a_right_answer(right: list[int], k: int) -> None:
    of = 6
    shares = []
    for count in right:
        choices = list(combinations(range(of), min(k, of)))
        shares.append(sum(min(choice) < count for choice in choices) / len(choices))
    assert found_by_guessing(np.array(right), of, k) == pytest.approx(np.mean(shares), abs=1e-12)


def test_it_is_what_random_vectors_find() -> None:
    owners = np.repeat(np.arange(20), 3)
    rng = np.random.default_rng(0)
    found = [retrieval(rng.normal(size=(20, 8)), rng.normal(size=(60, 8)), owners) for _ in range(200)]
    for k in (1, 5, 10):
        by_text, by_image = (
            np.mean([shares[k] for shares in each])
            for each in ([one.text_to_image for one in found], [one.image_to_text for one in found])
        )
        assert by_text == pytest.approx(found_by_guessing(np.ones(60, dtype=int), 20, k), abs=0.02)
        assert by_image == pytest.approx(found_by_guessing(np.full(20, 3), 60, k), abs=0.02)
