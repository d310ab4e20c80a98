"""What open_clip leaves to the user or bends silently, and how `pull` decides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from safetensors.torch import save_file

from tests.support import tiny_open_clip
from tests.support.tiny_open_clip import CLIP_CFG, build_open_clip
from tests.support.tiny_weights import awaken
from tests.support.tokenizer_families import Families
from tests.training.pull.conftest import Published
from twinlens.training.export.errors import ExportError
from twinlens.training.pull.families import pull
from twinlens.training.pull.source import Choices


def write_clip(folder: Path, *, seed: int = 0, **changes: Any) -> tuple[Path, Path]:
    """A configuration and a checkpoint of a tiny CLIP."""
    cfg = {**CLIP_CFG, **changes}
    (folder / "config.json").write_text(json.dumps(cfg))
    torch.manual_seed(seed)
    torch.save(awaken(build_open_clip(cfg)).state_dict(), folder / "weights.pt")
    return folder / "config.json", folder / "weights.pt"


def test_a_published_tag_brings_its_own_gelu_and_preprocessing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: Published
) -> None:
    _, weights = write_clip(tmp_path)
    config = tmp_path / "tiny-published.json"
    config.write_text(json.dumps(CLIP_CFG))
    open_clip.add_model_config(config)
    tag = {"quick_gelu": True, "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5), "resize_mode": "squash"}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny-published", {"tag": tag})
    for module in ("before_loading", "open_clip_models"):
        monkeypatch.setattr(f"twinlens.training.pull.{module}.published_weights", lambda *_: weights)
    pull("tiny-published:tag", tmp_path / "bundle")
    assert published.image is not None
    assert published.text is not None
    assert published.about is not None
    assert (published.image.activation, published.text.activation) == ("quick_gelu", "quick_gelu")
    assert published.about.name == "tiny-published-tag"
    assert (published.image.preprocess.mean, published.image.preprocess.resize_mode) == ((0.1, 0.2, 0.3), "squash")
    kinds = {type(module).__name__ for module in (*published.image.module.modules(), *published.text.module.modules())}
    assert "QuickGELU" in kinds
    assert "GELU" not in kinds
    # A file of the same model: the preprocessing all its published weights have, and the configuration's GELU.
    said: list[str] = []
    pull(f"tiny-published:{weights}", tmp_path / "bundle", say=said.append)
    assert published.image.preprocess.resize_mode == "squash"
    assert published.image.activation == "gelu"


def test_a_file_for_a_model_with_a_quick_gelu_twin_comes_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: Published
) -> None:
    _, weights = write_clip(tmp_path)
    for name in ("tiny-twin", "tiny-twin-quickgelu"):
        config = tmp_path / f"{name}.json"
        config.write_text(json.dumps({**CLIP_CFG, "quick_gelu": "quick" in name}))
        open_clip.add_model_config(config)
    said: list[str] = []
    pull(f"tiny-twin:{weights}", tmp_path / "bundle", say=said.append)
    assert said == [
        "computed with GELU; if the weights descend from OpenAI's, they need quick-GELU: pull tiny-twin-quickgelu:FILE"
    ]
    said.clear()
    pull(f"tiny-twin-quickgelu:{weights}", tmp_path / "bundle", say=said.append)
    assert said == []
    pull("tiny-twin", tmp_path / "bundle", say=said.append)
    assert "RANDOM" in said[0]
    assert published.about is not None
    assert published.about.name == "tiny-twin-random"


def test_openais_archives_are_computed_with_quick_gelu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: Published
) -> None:
    config, weights = write_clip(tmp_path)
    tensors = torch.load(weights, weights_only=True)
    constants = {name: torch.tensor(7) for name in ("input_resolution", "context_length", "vocab_size")}
    monkeypatch.setattr("twinlens.training.pull.checkpoints.is_torchscript", lambda _: True)
    monkeypatch.setattr("twinlens.training.pull.checkpoints.read_torchscript", lambda _: {**tensors, **constants})
    pull(f"mine:{weights}", tmp_path / "bundle", Choices(config))
    assert published.image is not None
    assert published.image.activation == "quick_gelu"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("positions", r"positional_embedding has shape \(17, 32\) instead of \(26, 32\)"),
        ("bias", "logit_bias is missing"),
        ("another", "is missing"),
    ],
)
def test_weights_that_open_clip_would_bend_to_fit_are_refused(kind: str, message: str, tmp_path: Path) -> None:
    """open_clip resamples position embeddings and takes a missing bias to be zero, both without a word."""
    config, weights = write_clip(tmp_path)
    changed = dict(CLIP_CFG)
    if kind == "positions":
        changed["vision_cfg"] = {**CLIP_CFG["vision_cfg"], "image_size": 40}
    if kind == "bias":
        changed["init_logit_bias"] = -10.0
    if kind == "another":
        torch.save({"state_dict": {"weight": torch.zeros(2)}}, weights)
    config.write_text(json.dumps(changed))
    with pytest.raises(ExportError, match=message) as caught:
        pull(f"mine:{weights}", tmp_path / "bundle", Choices(config))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", ["{}", "[]", "not json", '{"model_cfg": 3}', '{"embed_dim": 16, "vision_cfg": 3, "text_cfg": {}}']
)
def test_a_wrong_configuration_file_is_refused(content: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(content)
    with pytest.raises(ExportError, match=r"config\.json is not"):
        pull("mine", tmp_path / "bundle", Choices(config))


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("vision_cfg", {"patch_size": 0}),
        ("vision_cfg", {"image_size": []}),
        ("vision_cfg", {"layers": [1, 2]}),
        ("text_cfg", {"context_length": "x"}),
        ("text_cfg", {"context_length": -1}),
        ("text_cfg", {"vocab_size": None}),
        ("preprocess_cfg", {"mean": "x"}),
        ("preprocess_cfg", ["x"]),
    ],
)
def test_a_value_of_another_kind_in_a_configuration_is_one_line(part: str, values: Any, tmp_path: Path) -> None:
    cfg = {part: {**CLIP_CFG[part], **values}} if part in CLIP_CFG else {}
    whole = {"model_cfg": {**CLIP_CFG, **cfg}, "preprocess_cfg": {} if cfg else values}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    with pytest.raises(ExportError, match="mine") as caught:
        pull("mine", tmp_path / "bundle", Choices(tmp_path / "config.json"))
    assert "\n" not in str(caught.value)


def test_a_text_tower_with_code_of_its_own_is_refused(tmp_path: Path, families: Families) -> None:
    tiny = tiny_open_clip.open_clip_model("roberta", tmp_path, families)
    folder = tmp_path / "tower"
    shutil.copytree(str(tiny.choices.tokenizer), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(ExportError, match="nobody/roberta brings code of its own"):
        pull(tiny.source, tmp_path / "bundle", Choices(tiny.choices.config, str(folder)))


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, families: Families) -> None:
    config, weights = write_clip(tmp_path)
    with pytest.raises(ExportError, match="pools at an end token, but this tokenizer ends texts with id"):
        pull(f"mine:{weights}", tmp_path / "bundle", Choices(config, str(families.siglip_folder())))
    cfg = {**CLIP_CFG, "text_cfg": {**CLIP_CFG["text_cfg"], "vocab_size": 1000, "hf_tokenizer_name": "a/b"}}
    config.write_text(json.dumps(cfg))
    with pytest.raises(ExportError, match=r"the tokenizer has ids up to [34],\d+, but mine has 1,000 rows"):
        pull(f"mine:{weights}", tmp_path / "bundle", Choices(config, str(families.siglip_folder())))


def test_a_repository_of_open_clip_brings_configuration_weights_and_tokenizer(
    tmp_path: Path, published: Published, families: Families
) -> None:
    siglip = tmp_path / "my-siglip"
    shutil.copytree(families.siglip_folder(), siglip)
    cfg = dict(tiny_open_clip.OPEN_CLIP["siglip"])
    preprocess = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25], "resize_mode": "squash"}
    (siglip / "open_clip_config.json").write_text(json.dumps({"model_cfg": cfg, "preprocess_cfg": preprocess}))
    save_file(build_open_clip(cfg).state_dict(), siglip / "open_clip_model.safetensors")
    pull(f"hf:{siglip}", tmp_path / "bundle")
    assert published.image is not None
    assert published.text is not None
    assert published.about is not None
    assert (published.image.preprocess.std, published.image.preprocess.resize_mode) == ((0.25,) * 3, "squash")
    assert (published.text.spec.clean, published.text.spec.pad_to_context) == ("canonicalize", True)
    assert published.about.name == "my-siglip"
    assert published.about.scoring.rule == "sigmoid"
