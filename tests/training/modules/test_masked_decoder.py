from __future__ import annotations

import torch
from torch import Tensor

from twinlens.training.modules.masked_decoder import MaskedDecoder

ROWS, PATCHES, ENCODER, WIDTH, VALUES = 3, 9, 12, 16, 27


def decoder(prefix: int = 1) -> MaskedDecoder:
    torch.manual_seed(0)
    return MaskedDecoder(
        encoder_dim=ENCODER, rows=ROWS, patch_values=VALUES, prefix=prefix, width=WIDTH, depth=2, heads=4
    ).eval()


def tokens(prefix: int, visible: int) -> Tensor:
    return torch.randn(2, prefix + visible, ENCODER, generator=torch.Generator().manual_seed(1))


def places(visible: int) -> Tensor:
    return torch.stack(
        [torch.randperm(PATCHES, generator=torch.Generator().manual_seed(i))[:visible] for i in range(2)]
    )


def test_predictions_equal_those_of_lightlys_parts() -> None:
    from lightly.models import utils
    from lightly.models.modules.masked_vision_transformer_decoder_timm import MaskedVisionTransformerDecoderTIMM

    ours = decoder()
    theirs = MaskedVisionTransformerDecoderTIMM(num_patches=PATCHES, embed_dim=WIDTH, depth=2, num_heads=4).eval()
    theirs.blocks.load_state_dict(ours.blocks.state_dict())
    theirs.norm.load_state_dict(ours.norm.state_dict())
    visible = places(4)
    encoded = tokens(1, 4)
    # As in lightly's documented MAE: mask tokens everywhere, visible ones set over them, positions added.
    keep = torch.cat([torch.zeros(2, 1, dtype=torch.int64), visible + 1], dim=1)
    masked = utils.repeat_token(ours.mask_token, (2, PATCHES + 1))
    masked = utils.set_at_index(masked, keep, ours.embed(encoded))
    expected = ours.predict(theirs(masked))[:, 1:]
    torch.testing.assert_close(ours(encoded, visible), expected, rtol=1e-5, atol=1e-5)


def test_the_order_of_visible_patches_does_not_matter() -> None:
    ours, visible, encoded = decoder(), places(4), tokens(1, 4)
    order = torch.tensor([3, 1, 0, 2])
    shuffled = torch.cat([encoded[:, :1], encoded[:, 1:][:, order]], dim=1)
    torch.testing.assert_close(ours(encoded, visible), ours(shuffled, visible[:, order]))


def test_every_patch_is_predicted_also_without_a_class_token() -> None:
    assert decoder(prefix=0)(tokens(0, 4), places(4)).shape == (2, PATCHES, VALUES)
    assert decoder(prefix=3)(tokens(3, 4), places(4)).shape == (2, PATCHES, VALUES)


def test_hidden_patches_differ_by_their_positions_only() -> None:
    ours, visible = decoder(), places(4)
    predicted = ours(tokens(1, 4), visible)
    hidden = [patch for patch in range(PATCHES) if patch not in set(visible[0].tolist())]
    assert len(torch.unique(predicted[0, hidden], dim=0)) == len(hidden)
    ours.positions.zero_()
    without = ours(tokens(1, 4), visible)[0, hidden]
    torch.testing.assert_close(without, without[:1].expand_as(without))


def test_positions_are_not_trained() -> None:
    assert "positions" not in dict(decoder().named_parameters())


def test_it_runs_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert bool(torch.isfinite(decoder()(tokens(1, 4), places(4))).all())
