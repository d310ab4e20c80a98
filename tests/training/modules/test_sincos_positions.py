from __future__ import annotations

import math

import pytest
import torch

from twinlens.training.modules.sincos_positions import sincos_positions


def test_positions_equal_the_formula_value_by_value() -> None:
    rows, columns, dim = 2, 3, 8
    found = sincos_positions(dim, rows, columns)
    for y in range(rows):
        for x in range(columns):
            expected: list[float] = []
            for place in (x, y):
                angles = [place / 10000 ** (2 * i / (dim / 2)) for i in range(dim // 4)]
                expected += [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
            assert found[y * columns + x].tolist() == pytest.approx(expected, abs=1e-7)


def test_positions_equal_those_of_lightly() -> None:
    from lightly.models.utils import get_2d_sine_cosine_positional_embedding

    theirs = torch.from_numpy(get_2d_sine_cosine_positional_embedding(16, 5, cls_token=True)).float()
    torch.testing.assert_close(sincos_positions(16, 5, 5, prefix=1), theirs, rtol=0, atol=1e-6)


def test_tokens_without_a_place_have_none() -> None:
    found = sincos_positions(8, 2, 2, prefix=3)
    assert found.shape == (7, 8)
    assert not found[:3].any()
    assert len(torch.unique(found[3:], dim=0)) == 4


def test_widths_that_are_no_multiple_of_four_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 4, not 10"):
        sincos_positions(10, 2, 2)
