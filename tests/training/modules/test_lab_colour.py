from __future__ import annotations

import pytest
import torch
from torch import Tensor

from twinlens.training.modules.lab_colour import grey_of_lightness, lab_of


def colours() -> Tensor:
    """Random ones, greys, and the corners of the cube; shape (1, 3, n, 1), float64."""
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    greys = torch.linspace(0, 1, 23, dtype=torch.float64)[:, None].expand(-1, 3)
    drawn = torch.rand(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.cat([corners, greys, drawn, 0.04 * drawn]).T.reshape(1, 3, -1, 1)


def slow(red: float, green: float, blue: float) -> tuple[float, float, float]:
    """IEC 61966-2-1, then CIE 15, one colour."""

    def linear(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    def f(t: float) -> float:
        return t ** (1 / 3) if t > (6 / 29) ** 3 else t * (29 / 6) ** 2 / 3 + 4 / 29

    r, g, b = linear(red), linear(green), linear(blue)
    x = 0.412453 * r + 0.357580 * g + 0.180423 * b
    y = 0.212671 * r + 0.715160 * g + 0.072169 * b
    z = 0.019334 * r + 0.119193 * g + 0.950227 * b
    fx, fy, fz = f(x / 0.95047), f(y), f(z / 1.08883)
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def test_lab_equals_the_slow_transcription() -> None:
    rgb = colours()
    lab = lab_of(rgb)
    for index in range(rgb.shape[2]):
        assert lab[0, :, index, 0].tolist() == pytest.approx(slow(*rgb[0, :, index, 0].tolist()), abs=1e-9)


def test_lab_equals_that_of_scikit_image() -> None:
    from skimage.color import rgb2lab

    rgb = colours()
    expected = rgb2lab(rgb[0].permute(1, 2, 0).numpy())
    torch.testing.assert_close(lab_of(rgb)[0].permute(1, 2, 0), torch.from_numpy(expected), rtol=0, atol=1e-3)


def test_white_black_and_grey_are_where_they_belong() -> None:
    greys = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64).reshape(1, 1, 3, 1).expand(1, 3, 3, 1)
    lab = lab_of(greys)
    assert lab[0, 0, :, 0].tolist() == pytest.approx([0, 53.389, 100], abs=1e-3)
    assert float(lab[0, 1:].abs().max()) < 1e-2


def test_the_grey_of_a_lightness_has_that_lightness() -> None:
    lab = lab_of(colours())
    grey = grey_of_lightness(lab[:, 0])
    assert float(grey.min()) >= 0
    assert float(grey.max()) <= 1 + 1e-6
    torch.testing.assert_close(lab_of(grey.unsqueeze(1).expand(-1, 3, -1, -1))[:, 0], lab[:, 0], rtol=0, atol=1e-4)


def test_a_grey_is_its_own_grey() -> None:
    values = torch.linspace(0, 1, 256, dtype=torch.float64).reshape(1, 1, -1, 1)
    grey = grey_of_lightness(lab_of(values.expand(-1, 3, -1, -1))[:, 0])
    torch.testing.assert_close(grey, values[:, 0], rtol=0, atol=1e-5)


def test_gradients_stay_finite_at_black() -> None:
    black = torch.zeros(1, 3, 1, 1, requires_grad=True)
    torch.autograd.backward(lab_of(black).sum())
    assert black.grad is not None
    assert bool(torch.isfinite(black.grad).all())
