from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.support.image_files import encode, scene
from twinlens.encoders.encoder import Encoder
from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.errors import ExportError
from twinlens.training.published_weights import published_weights
from twinlens.training.pull import Source, parse_source, pull

CLIP_CFG: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "clip": CLIP_CFG,
    "quick-gelu": {**CLIP_CFG, "quick_gelu": True},
    # SigLIP's parts with CLIP's tokenizer: sees the padding, pools the last position, sigmoid with a bias.
    "sigmoid": {
        **CLIP_CFG,
        "init_logit_bias": -10.0,
        "custom_text": True,
        "text_cfg": {**CLIP_CFG["text_cfg"], "no_causal_mask": True, "pool_type": "last"},
    },
}
TEXTS = ("a cat", "A  Photo of &amp; two DOGS", "café 猫 🐱", "long " * 100)


@dataclass
class Pulled:
    model: Any
    preprocess: Any
    tokenizer: Any
    folder: Path
    checkpoint: Path
    config: Path


@pytest.fixture(scope="module", params=list(CONFIGS))
def pulled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pulled:
    folder = tmp_path_factory.mktemp("pull")
    config = folder / f"tiny-{request.param}.json"
    config.write_text(json.dumps(CONFIGS[request.param]))
    open_clip.add_model_config(config)
    torch.manual_seed(0)
    model, _, preprocess = open_clip.create_model_and_transforms(config.stem)
    model.eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if name.endswith("mlp.c_proj.weight"):  # fresh weights are so small that the activation hardly matters
                weights.mul_(100.0)
    checkpoint = folder / "epoch_7.pt"
    # As open_clip's trainer writes it.
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    torch.save({"epoch": 7, "name": "run", "state_dict": state}, checkpoint)
    pull(config.stem, checkpoint, folder / "bundle")
    return Pulled(model, preprocess, open_clip.get_tokenizer(config.stem), folder / "bundle", checkpoint, config)


def test_served_vectors_are_open_clips_own(pulled: Pulled) -> None:
    encoder = Encoder.load(pulled.folder, provider="cpu", threads=1)
    pictures = [scene(40, 90, seed=1), scene(64, 48, seed=2), scene(32, 32, seed=3)]
    with torch.no_grad():
        pixels = torch.stack([pulled.preprocess(Image.fromarray(picture)) for picture in pictures])
        image = pulled.model.encode_image(pixels, normalize=True).numpy()
        text = pulled.model.encode_text(pulled.tokenizer(list(TEXTS)), normalize=True).numpy()
    served = encoder.encode_images(np.stack([encoder.prepare_image(encode(picture)) for picture in pictures]))
    assert row_cosines(image, served).min() >= 0.9999
    served = encoder.encode_texts([encoder.prepare_text(text) for text in TEXTS])
    assert row_cosines(text, served).min() >= 0.9999
    one_by_one = np.concatenate([encoder.encode_texts([encoder.prepare_text(text)]) for text in TEXTS])
    np.testing.assert_allclose(one_by_one, served, atol=1e-5)


def test_the_other_gelu_would_show(pulled: Pulled) -> None:
    other = open_clip.create_model(pulled.config.stem, quick_gelu="quick" not in pulled.config.stem).eval()
    other.load_state_dict(pulled.model.state_dict())
    pixels = torch.stack([pulled.preprocess(Image.fromarray(scene(40, 90)))])
    with torch.no_grad():
        cosines = row_cosines(pulled.model.encode_image(pixels).numpy(), other.encode_image(pixels).numpy())
    assert cosines.min() < 0.9999


def test_a_published_tag_brings_its_own_gelu_and_preprocessing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "tiny-published.json"
    config.write_text(json.dumps(CLIP_CFG))
    open_clip.add_model_config(config)
    tag = {"quick_gelu": True, "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5), "resize_mode": "squash"}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny-published", {"tag": tag})
    torch.save(open_clip.model.CLIP(**json.loads(json.dumps(CLIP_CFG))).state_dict(), tmp_path / "weights.pt")
    monkeypatch.setattr("twinlens.training.pull.published_weights", lambda *_: tmp_path / "weights.pt")
    published: list[Any] = []
    monkeypatch.setattr("twinlens.training.pull.publish_towers", lambda *towers: published.append(towers))
    pull("tiny-published", "tag", tmp_path / "bundle")
    image, text, about, _ = published[0]
    assert (image.activation, text.activation, about.name) == ("quick_gelu", "quick_gelu", "tiny-published-tag")
    assert (image.preprocess.mean, image.preprocess.resize_mode) == ((0.1, 0.2, 0.3), "squash")
    kinds = {type(module).__name__ for module in (*image.module.modules(), *text.module.modules())}
    assert "QuickGELU" in kinds
    assert "GELU" not in kinds


def test_the_manifest_states_the_checkpoints_own_ways(pulled: Pulled) -> None:
    manifest = Encoder.load(pulled.folder, provider="cpu", threads=1, verify=False).manifest
    assert manifest.image is not None
    assert manifest.text is not None
    assert manifest.image.activation == ("quick_gelu" if "quick" in pulled.config.stem else "gelu")
    assert manifest.scoring.scale == pytest.approx(pulled.model.logit_scale.exp().item(), rel=1e-6)
    if "sigmoid" in pulled.config.stem:
        assert (manifest.scoring.rule, manifest.scoring.bias) == ("sigmoid", -10.0)
        assert manifest.text.text.pad_to_context
    else:
        assert manifest.scoring.rule == "softmax"
        assert not manifest.text.text.pad_to_context
    assert manifest.name == f"{pulled.config.stem}-epoch_7"
    assert str(pulled.checkpoint.parent) not in (pulled.folder / "bundle.json").read_text()


def test_a_safetensors_checkpoint_with_a_configuration_file_is_the_same_model(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    # As in a Hugging Face repository: with preprocessing beside the model.
    preprocess = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25], "resize_mode": "squash"}
    config.write_text(json.dumps({"model_cfg": CLIP_CFG, "preprocess_cfg": preprocess}))
    torch.manual_seed(3)
    model = open_clip.model.CLIP(**json.loads(json.dumps(CLIP_CFG)))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    manifest = pull("mine", tmp_path / "model.safetensors", tmp_path / "bundle", config=config, version="3")
    assert (manifest.name, manifest.version) == ("mine-model", "3")
    assert manifest.image is not None
    assert manifest.image.preprocess.mean == (0.5, 0.5, 0.5)
    assert manifest.image.preprocess.resize_mode == "squash"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("ViT-B-32", Source("ViT-B-32")),
        ("ViT-B-32:openai", Source("ViT-B-32", "openai")),
        ("RN50:/weights/a:b.pt", Source("RN50", "/weights/a:b.pt")),
    ],
)
def test_a_source_is_a_name_and_perhaps_a_tag_or_path(text: str, source: Source) -> None:
    assert parse_source(text) == source


@pytest.mark.parametrize(
    ("name", "pretrained", "message"),
    [
        ("no-such-model", None, "open_clip knows no model 'no-such-model'"),
        ("ViT-B-16-SigLIP", "webli", "another tokenizer"),
        ("coca_ViT-B-32", None, "CoCa"),
        ("roberta-ViT-B-32", None, "another tokenizer"),
        ("RN50", "no-such-tag", "no published weights 'no-such-tag'; known: openai"),
        ("RN50", "missing/file.pt", "no checkpoint at missing/file.pt"),
    ],
)
def test_what_cannot_be_pulled_is_one_clear_line(
    name: str, pretrained: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message) as caught:
        pull(name, pretrained, tmp_path / "bundle")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"no weights", None])
def test_a_checkpoint_of_another_model_is_refused(content: bytes | None, tmp_path: Path) -> None:
    checkpoint, config = tmp_path / "other.pt", tmp_path / "config.json"
    config.write_text(json.dumps(CLIP_CFG))
    if content is None:
        torch.save({"state_dict": {"weight": torch.zeros(2)}}, checkpoint)
    else:
        checkpoint.write_bytes(content)
    with pytest.raises(ExportError, match=r"cannot load other into mine"):
        pull("mine", checkpoint, tmp_path / "bundle", config=config)


@pytest.mark.parametrize(
    "content", ["{}", "[]", "not json", '{"model_cfg": 3}', '{"embed_dim": 16, "vision_cfg": 3, "text_cfg": {}}']
)
def test_a_wrong_configuration_file_is_refused(content: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(content)
    with pytest.raises(ExportError, match=r"config\.json is not"):
        pull("mine", None, tmp_path / "bundle", config=config)


def test_without_a_network_a_published_tag_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    with pytest.raises(ExportError, match="cannot download ViT-B-32:openai: no network") as caught:
        pull("ViT-B-32", "openai", tmp_path / "bundle")
    assert "ViT-B-32:/path/to/checkpoint.pt" in str(caught.value)


def test_weights_of_an_earlier_pull_are_used_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: "/cache/model.safetensors")
    assert published_weights("ViT-B-32", "openai", {"hf_hub": "owner/model/"}) == Path("/cache/model.safetensors")
