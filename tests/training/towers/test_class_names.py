from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from twinlens.training.towers.class_names import ClassNameTower, build_class_names

DESCRIBED = {"timm": "test_efficientnet", "classes": 7, "temperature": 2.0}


def tower() -> ClassNameTower:
    torch.manual_seed(0)
    built = build_class_names(DESCRIBED, 5).eval()
    built.class_embeddings.copy_(torch.randn(7, 5))
    return built


def test_a_residual_adds_a_projection_of_the_pooled_features_and_starts_at_nothing() -> None:
    plain, pixels = tower(), torch.randn(3, 3, 64, 64)
    with_residual = copy.deepcopy(plain)
    with_residual.add_residual()
    assert with_residual.residual is not None
    with torch.no_grad():
        torch.testing.assert_close(with_residual(pixels), plain(pixels))
        with_residual.residual.weight.normal_()
        pooled = plain.classifier.forward_head(plain.classifier.forward_features(pixels), pre_logits=True)
        expected = plain(pixels) + pooled @ with_residual.residual.weight.T
        torch.testing.assert_close(with_residual(pixels), expected)


def test_its_description_builds_it_with_the_same_names_of_weights() -> None:
    plain = tower()
    plain.add_residual()
    again = build_class_names({**DESCRIBED, "residual": True}, 5)
    again.load_state_dict(plain.state_dict())


def test_the_class_embeddings_are_not_trained() -> None:
    assert "class_embeddings" not in dict(tower().named_parameters())


def test_what_has_no_linear_last_layer_takes_no_residual() -> None:
    with pytest.raises(ValueError, match="no linear last layer"):
        ClassNameTower(nn.Flatten(), torch.zeros(2, 2), 1.0).add_residual()


def test_an_unknown_classifier_is_named() -> None:
    with pytest.raises(ValueError, match="timm has no model 'resnet1'"):
        build_class_names({**DESCRIBED, "timm": "resnet1"}, 5)
