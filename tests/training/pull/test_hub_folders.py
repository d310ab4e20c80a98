"""Folders of timm, transformers and sentence-transformers: what is read from them and what is refused."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.support import tiny_hugging_face, tiny_timm
from tests.support.tiny_weights import awaken
from tests.training.pull.conftest import Published
from twinlens.training.export.errors import ExportError
from twinlens.training.pull import hugging_face_vision
from twinlens.training.pull.families import pull


def test_without_transformers_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_hugging_face.hf_vit(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ExportError, match=r"need transformers: pip install 'twinlens\[huggingface\]'"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


def test_a_repository_of_timm_brings_its_preprocessing(tmp_path: Path, published: Published) -> None:
    tiny_timm.timm_model(tmp_path)
    stated = {"input_size": [3, 96, 96], "crop_pct": 0.75, "mean": [0.5] * 3, "std": [0.5] * 3, "classifier": "fc"}
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "test_resnet", "pretrained_cfg": stated}))
    pull(f"hf:{tmp_path}", tmp_path / "bundle")
    assert published.image is not None
    assert (published.image.preprocess.size, published.image.preprocess.resize_size) == (96, 128)
    assert published.text is None
    pull(f"timm:test_resnet:{tmp_path / 'model.safetensors'}", tmp_path / "bundle")
    assert published.image.preprocess.size == 96


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="not the folder of a model"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ExportError, match="model type 'llama' is not supported: known are albert, bert"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")
    (tmp_path / "config.json").write_text('{"model_type": "siglip2"}')
    with pytest.raises(ExportError, match="NaFlex"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")
    with pytest.raises(ExportError, match="is a file; name the folder"):
        pull(f"hf:{tmp_path / 'config.json'}", tmp_path / "bundle")


def test_transformers_weights_that_lack_a_part_are_refused(tmp_path: Path) -> None:
    """transformers itself warns, and leaves the part random."""
    tiny_hugging_face.hf_dinov2(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    removed = sorted(tensors)[3]
    save_file({name: value for name, value in tensors.items() if name != removed}, path, {"format": "pt"})
    with pytest.raises(ExportError, match=r"do not fit Dinov2Model: .* is missing"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")
    path.unlink()
    with pytest.raises(ExportError, match="holds no weights"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


def test_a_folder_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    tiny_hugging_face.hf_vit(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(ExportError, match="brings code of its own"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


@pytest.mark.parametrize("name", ["config.json", "open_clip_config.json"])
def test_a_configuration_of_endless_layers_is_refused_before_it_is_built(name: str, tmp_path: Path) -> None:
    tiny_hugging_face.hf_vit(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"num_hidden_layers": 10**9}
    if name != "config.json":
        config = {"embed_dim": 16, "vision_cfg": {"layers": [1, 10**9]}, "text_cfg": {}}
    (tmp_path / name).write_text(json.dumps(config))
    with pytest.raises(ExportError, match=r"asks for 1,000,000,000 layers .* at most 2,000 can be built"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


def test_weights_of_other_shapes_and_pickles_are_refused_without_advice_to_switch_that_off(tmp_path: Path) -> None:
    tiny_hugging_face.hf_vit(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"image_size": 64}))
    with pytest.raises(ExportError, match=r"its weights have other shapes than its configuration says$"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").unlink()
    torch.save({"code": open}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ExportError, match=r"its weights are not a file of plain tensors$"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


def test_pictures_of_another_size_than_the_tower_takes_are_refused(tmp_path: Path) -> None:
    tiny_hugging_face.hf_vit(tmp_path)
    prepared = json.loads((tmp_path / "preprocessor_config.json").read_text())
    prepared["size"] = {"height": 48, "width": 48}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(prepared))
    with pytest.raises(ExportError, match="prepares pictures of 48 pixels, its tower takes 32"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ExportError, match=r"no preprocessor_config\.json"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


@pytest.mark.parametrize(
    "change",
    [{"image_mean": None}, {"image_std": ["x", 1, 1]}, {"size": {"height": "x", "width": "x"}}, {"rescale_factor": []}],
)
def test_a_value_of_another_kind_is_one_line(change: dict[str, Any], tmp_path: Path) -> None:
    tiny_hugging_face.hf_vit(tmp_path)
    prepared = json.loads((tmp_path / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**prepared, **change}))
    with pytest.raises(ExportError, match="a file of it is not as its kind should be") as caught:
        pull(f"hf:{tmp_path}", tmp_path / "bundle")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", [{"idx": 0, "path": "", "type": "x.Transformer"}], "a chain of Transformer; supported is"),
        ("modules.json", {"a": 1}, "is not a list of modules"),
        ("1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "pools by pooling_mode_lasttoken"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "pools by cls, mean",
        ),
        ("sentence_bert_config.json", {"do_lower_case": True}, "lower-cases texts before its tokenizer"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
            "puts the prompt 'query' before every text",
        ),
        ("2_Dense/config.json", {"in_features": 32, "out_features": 24, "activation_function": "a.Swish"}, "Swish"),
    ],
)
def test_sentence_transformers_that_do_something_else_are_refused(
    file: str, content: Any, message: str, tmp_path: Path
) -> None:
    tiny_hugging_face.sentence_model(tmp_path, dense=True)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(ExportError, match=message):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


def test_the_window_is_the_shortest_of_what_is_stated(tmp_path: Path, published: Published) -> None:
    for kind, stated, window in (("bert", 20, 20), ("bert", 512, 40), ("roberta", 512, 39), ("mpnet", None, 39)):
        folder = tmp_path / f"{kind}-{stated}"
        folder.mkdir()
        tiny_hugging_face.sentence_model(folder, kind)
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": stated} if stated else {}))
        pull(f"hf:{folder}", tmp_path / "bundle")
        assert published.text is not None
        assert published.text.spec.context_length == window
        assert published.text.spec.attention_mask


# Pooling sees vectors alone, whatever made them: each kind is tried with one way, and each way with several kinds.
POOLINGS = itertools.cycle(["mean", "max", "mean_sqrt_len"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "pooling"), [(kind, next(POOLINGS)) for kind in sorted(tiny_hugging_face.TEXT_CONFIGS)]
)
def test_every_kind_of_text_encoder_gives_the_padded_result_without_padding(
    kind: str, pooling: str, tmp_path: Path
) -> None:
    tiny = tiny_hugging_face.sentence_model(tmp_path, kind, pooling)
    pull(tiny.source, tmp_path / "bundle")
    session = onnxruntime.InferenceSession(str(tmp_path / "bundle" / "text.onnx"), providers=["CPUExecutionProvider"])
    assert tiny.padded is not None
    for length in range(1, tiny_hugging_face.WINDOW + 1):
        ids = np.arange(1000, 1000 + length)[None]
        (found,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        wanted = tiny.padded(ids.tolist())
        assert np.abs(found / np.linalg.norm(found) - wanted / np.linalg.norm(wanted)).max() <= 1e-5


VISION_KINDS: dict[str, tuple[str, str, str]] = {
    "vit": ("ViTConfig", "ViTModel", "last_hidden_state"),
    "deit": ("DeiTConfig", "DeiTModel", "last_hidden_state"),
    "dinov2": ("Dinov2Config", "Dinov2Model", "last_hidden_state"),
    "dinov2_with_registers": ("Dinov2WithRegistersConfig", "Dinov2WithRegistersModel", "last_hidden_state"),
    "clip_vision_model": ("CLIPVisionConfig", "CLIPVisionModelWithProjection", "image_embeds"),
    "siglip_vision_model": ("SiglipVisionConfig", "SiglipVisionModel", "pooler_output"),
}


@pytest.mark.parametrize("kind", VISION_KINDS)
def test_every_kind_of_image_model_gives_the_librarys_vector(kind: str, tmp_path: Path, published: Published) -> None:
    config_name, class_name, vector = VISION_KINDS[kind]
    config = getattr(transformers, config_name)(**tiny_hugging_face.BERT_SIZE, image_size=32, patch_size=8)
    torch.manual_seed(0)
    model: Any = awaken(getattr(transformers, class_name)(config))
    model.save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    pull(f"hf:{tmp_path}", tmp_path / "bundle")
    assert published.image is not None
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = getattr(model(pixel_values=pixels), vector)
        torch.testing.assert_close(published.image.module(pixels), wanted if wanted.ndim == 2 else wanted[:, 0])


def test_every_kind_of_image_model_is_tested() -> None:
    assert set(VISION_KINDS) == set(hugging_face_vision.MODEL_TYPES)
