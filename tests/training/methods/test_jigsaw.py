from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.errors import ConfigError
from twinlens.training.methods.jigsaw import Jigsaw, JigsawOptions
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.jigsaw_permutations import distant_permutations
from twinlens.training.modules.jigsaw_tiles import jigsaw_tiles

N, SIZE = 8, 24
RESNET = BackboneConfig(timm="resnet10t", stem="imagenet", arguments={"channels": [8, 8, 16, 16]})


def method(**options: Any) -> Jigsaw:
    torch.manual_seed(0)
    plan = RunPlan(steps=10, batch_size=N, dataset_size=32, size=SIZE)
    small = {"permutations": 5, "channel_shift": 1, "tile_width": 8, "width": 32, "dropout": 0.0}
    return Jigsaw(build_backbone(RESNET, SIZE), JigsawOptions(**{**small, **options}), plan)


def views() -> list[Tensor]:
    return [torch.randn(N, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(3))]


def batch() -> PictureBatch:
    return PictureBatch(torch.zeros(N, SIZE, SIZE, 3, dtype=torch.uint8), torch.full((N,), -1), torch.arange(N), 0)


def test_the_answer_is_the_order_in_which_the_tiles_are_shown() -> None:
    trained = method().eval()
    seen: list[Tensor] = []
    trained.backbone.trunk.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    torch.manual_seed(7)
    loss = trained.step(views(), batch()).loss
    torch.manual_seed(7)
    tiles = jigsaw_tiles(views()[0], 3, channel_shift=1)
    answer = torch.randint(0, 5, (N,))
    assert len(set(answer.tolist())) > 1
    orders = distant_permutations(5)
    shown = seen[0].unflatten(0, (N, 9))  # type: ignore[no-untyped-call]
    features = []
    for i in range(N):
        for place in range(9):
            assert torch.equal(shown[i, place], tiles[i, orders[int(answer[i]), place]])
        features.append(trained.tile_head(trained.backbone(shown[i])).flatten())
    expected = nn.functional.cross_entropy(trained.puzzle_head(torch.stack(features)), answer)
    torch.testing.assert_close(loss, expected)


def test_a_tile_is_encoded_without_knowing_the_others() -> None:
    trained = method().eval()
    tiles = jigsaw_tiles(views()[0], 3).flatten(0, 1)
    with torch.no_grad():
        torch.testing.assert_close(trained.backbone(tiles)[3:4], trained.backbone(tiles[3:4]))


def test_every_parameter_of_encoder_and_heads_learns() -> None:
    trained = method()
    torch.autograd.backward(trained.step(views(), batch()).loss)
    assert all(p.grad is not None for p in trained.parameters())


def test_one_embedding_a_picture_is_watched() -> None:
    trained = method()
    assert [each.shape for each in trained.step(views(), batch()).embeddings] == [(N, trained.backbone.dim)]


def test_it_learns_to_solve_puzzles() -> None:
    trained = method(permutations=3)
    # A glowing spot in the middle: each tile tells where it belongs.
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    picture = torch.stack([x, y, x * x + y * y]).expand(N, -1, -1, -1)
    optimiser = torch.optim.AdamW(trained.parameters(), lr=5e-3)
    right = []
    for _ in range(60):
        optimiser.zero_grad()
        output = trained.step([picture], batch())
        torch.autograd.backward(output.loss)
        optimiser.step()
        right.append(float(output.values["accuracy"]))
    assert sum(right[-10:]) / 10 > 0.9


def test_orders_are_not_part_of_the_state() -> None:
    assert "orders" not in method().state_dict()


def test_vision_transformers_and_tiny_pictures_are_refused() -> None:
    vit = build_backbone(
        BackboneConfig(
            timm="vit_tiny_patch16_224", arguments={"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
        ),
        SIZE,
    )
    plan = RunPlan(steps=1, batch_size=N, dataset_size=32, size=SIZE)
    with pytest.raises(ConfigError, match=r"model\.timm: jigsaw shows the encoder single tiles"):
        Jigsaw.check(JigsawOptions(), plan, vit)
    resnet = build_backbone(RESNET, SIZE)
    Jigsaw.check(JigsawOptions(), plan, resnet)
    small = RunPlan(steps=1, batch_size=N, dataset_size=32, size=14)
    with pytest.raises(ConfigError, match=r"augment\.size: tiles of a picture of 14 pixels would have 3; at least 15"):
        Jigsaw.check(JigsawOptions(), small, resnet)
    Jigsaw.check(JigsawOptions(), RunPlan(steps=1, batch_size=N, dataset_size=32, size=15), resnet)


def test_networks_that_shrink_tiles_to_nothing_are_refused() -> None:
    arguments = {"dims": [8, 8, 8, 8], "depths": [1, 1, 1, 1]}
    convnext = build_backbone(BackboneConfig(timm="convnext_atto", arguments=arguments), 48)
    plan = RunPlan(steps=1, batch_size=N, dataset_size=32, size=48)
    with pytest.raises(ConfigError, match=r"model\.timm: convnext_atto does not take tiles of 13x13 pixels: .*ResNet"):
        Jigsaw.check(JigsawOptions(), plan, convnext)
