from __future__ import annotations

import io

import pytest
import torch

from twinlens.training.export.errors import ExportError
from twinlens.training.starter.efficientnet import load_efficientnet
from twinlens.training.starter.packages import EFFICIENTNET_WEIGHTS, read_pinned


def saved(state: dict[str, torch.Tensor]) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(io.BytesIO(read_pinned(EFFICIENTNET_WEIGHTS)), weights_only=True)
    return loaded


def test_every_tensor_finds_its_place(state: dict[str, torch.Tensor]) -> None:
    model = load_efficientnet(saved(state))
    assert not model.training
    ours = list(model.state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(ours, state.values(), strict=True))


def test_tensors_in_another_order_are_refused(state: dict[str, torch.Tensor]) -> None:
    names = list(state)
    names[3], names[4] = names[4], names[3]  # running mean and variance: same shape
    with pytest.raises(ExportError, match="does not fit"):
        load_efficientnet(saved({name: state[name] for name in names}))


def test_too_few_tensors_and_foreign_files_are_refused(state: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ExportError, match="holds 295 tensors, timm's model 296"):
        load_efficientnet(saved(dict(list(state.items())[:-1])))
    with pytest.raises(ExportError, match="cannot be read"):
        load_efficientnet(b"not a torch file")
