"""What cannot be pulled is one clear line, before anything is built or written."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from safetensors.torch import save_file

from tests.support import tiny_models
from tests.support.tiny_models import CLIP_CFG, awaken, build_open_clip
from tests.support.tokenizer_families import Families
from twinlens.encoders.manifest import Manifest
from twinlens.training.export.bundle import About
from twinlens.training.export.errors import ExportError
from twinlens.training.export.towers import ImageExport, TextExport
from twinlens.training.pull import families as families_module
from twinlens.training.pull.families import pull
from twinlens.training.pull.hub import published_weights
from twinlens.training.pull.source import Choices, Source, parse_source


class Published:
    """Stands in for the export, which other tests cover, and keeps what it was given."""

    def __init__(self) -> None:
        self.image: ImageExport | None = None
        self.text: TextExport | None = None
        self.about: About | None = None

    def __call__(self, image: ImageExport | None, text: TextExport | None, about: About, _: Path) -> Manifest:
        self.image, self.text, self.about = image, text, about
        return None  # type: ignore[return-value]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    stand_in = Published()
    monkeypatch.setattr(families_module, "publish_towers", stand_in)
    return stand_in


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    # Where an earlier look finds nothing, the client looks no further.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("ViT-B-32", Source("open_clip", "ViT-B-32")),
        ("ViT-B-32:openai", Source("open_clip", "ViT-B-32", "openai")),
        ("open_clip:ViT-B-32:openai", Source("open_clip", "ViT-B-32", "openai")),
        ("RN50:/weights/a:b.pt", Source("open_clip", "RN50", "/weights/a:b.pt")),
        ("timm:resnet18", Source("timm", "resnet18")),
        ("timm:resnet18.a1_in1k:/w.safetensors", Source("timm", "resnet18.a1_in1k", "/w.safetensors")),
        ("hf:/folders/a:b", Source("hf", "/folders/a:b")),
        ("hf:owner/name", Source("hf", "owner/name")),
        ("hf-hub:owner/name", Source("hf", "owner/name")),
        ("local-dir:./name", Source("hf", "./name")),
    ],
)
def test_a_source_says_family_name_and_weights(text: str, source: Source) -> None:
    assert parse_source(text) == source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "no model name in ''"),
        ("timm:", "no model name in 'timm:'"),
        ("no-such-model", "open_clip knows no model 'no-such-model'"),
        ("owner/name", "a folder or repository is written hf:owner/name"),
        ("RN50:no-such-tag", "no published weights 'no-such-tag'; known: openai"),
        ("RN50:missing/file.pt", "no checkpoint at missing/file.pt"),
        ("coca_base", "vocabulary of 64,000"),
        ("timm:resnet81", "timm knows no model 'resnet81'"),
        ("timm:resnet", r"timm knows no model 'resnet'; perhaps .*resnet"),
        ("timm:resnet18.no_tag", "resnet18 has no published weights 'no_tag'; known: a1_in1k"),
        ("timm:resnet18:missing.safetensors", "no checkpoint at missing.safetensors"),
        ("timm:naflexvit_base_patch16_gap", "NaFlex"),
        ("hf:/no/such/folder", "no folder /no/such/folder"),
        ("hf:name", "the name of a repository is written OWNER/NAME"),
    ],
)
def test_what_does_not_exist_is_one_clear_line(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message) as caught:
        pull(source, tmp_path / "bundle")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "ViT-B-32:openai",
            "cannot download ViT-B-32:openai: no network .*twinlens pull ViT-B-32:/path/to/checkpoint.pt",
        ),
        ("timm:resnet18.a1_in1k", "no network .*twinlens pull timm:resnet18.a1_in1k:/path/to/model.safetensors"),
        ("hf:owner/name", "cannot download owner/name: no network .*hf:/path/to/folder"),
        ("ViT-B-16-SigLIP", "ViT-B-16-SigLIP: the tokenizer timm/ViT-B-16-SigLIP .*, by --tokenizer FOLDER"),
    ],
)
def test_without_a_network_it_is_one_line_that_says_what_to_do(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message) as caught:
        pull(source, tmp_path / "bundle")
    assert "\n" not in str(caught.value)


def test_weights_of_an_earlier_pull_are_used_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: "/cache/model.safetensors")
    assert published_weights("ViT-B-32", "openai", {"hf_hub": "owner/model/"}) == Path("/cache/model.safetensors")


def test_without_transformers_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_models.hf_vit(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ExportError, match=r"need transformers: pip install 'twinlens\[huggingface\]'"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


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
    monkeypatch.setattr("twinlens.training.pull.open_clip_models.published_weights", lambda *_: weights)
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
    cfg = dict(tiny_models.OPEN_CLIP["siglip"])
    preprocess = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25], "resize_mode": "squash"}
    (siglip / "open_clip_config.json").write_text(json.dumps({"model_cfg": cfg, "preprocess_cfg": preprocess}))
    save_file(build_open_clip(cfg).state_dict(), siglip / "open_clip_model.safetensors")
    pull(f"hf:{siglip}", tmp_path / "bundle")
    assert published.image is not None
    assert published.text is not None
    assert published.about is not None
    assert (published.image.preprocess.std, published.image.preprocess.resize_mode) == ((0.25,) * 3, "squash")
    assert (published.text.spec.clean, published.text.spec.pad_to_context) == ("canonicalize", True)
    assert published.about.name == "my-siglip-open_clip_model"
    assert published.about.scoring.rule == "sigmoid"


def test_a_repository_of_timm_brings_its_preprocessing(tmp_path: Path, published: Published) -> None:
    tiny_models.timm_model(tmp_path)
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
    from safetensors.torch import load_file

    tiny_models.hf_dinov2(tmp_path)
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
    tiny_models.hf_vit(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(ExportError, match="brings code of its own"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


def test_pictures_of_another_size_than_the_tower_takes_are_refused(tmp_path: Path) -> None:
    tiny_models.hf_vit(tmp_path)
    prepared = json.loads((tmp_path / "preprocessor_config.json").read_text())
    prepared["size"] = {"height": 48, "width": 48}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(prepared))
    with pytest.raises(ExportError, match="prepares pictures of 48 pixels, its tower takes 32"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ExportError, match=r"no preprocessor_config\.json"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


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
    tiny_models.sentence_model(tmp_path, dense=True)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(ExportError, match=message):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


def test_the_window_is_the_shortest_of_what_is_stated(tmp_path: Path, published: Published) -> None:
    for kind, stated, window in (("bert", 20, 20), ("bert", 512, 40), ("roberta", 512, 39), ("mpnet", None, 39)):
        folder = tmp_path / f"{kind}-{stated}"
        folder.mkdir()
        tiny_models.sentence_model(folder, kind)
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": stated} if stated else {}))
        pull(f"hf:{folder}", tmp_path / "bundle")
        assert published.text is not None
        assert published.text.spec.context_length == window
        assert published.text.spec.attention_mask


def test_options_of_another_family_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="timm models have no text tower"):
        pull("timm:resnet18", tmp_path / "bundle", Choices(tokenizer="x"))
    tiny_models.hf_vit(tmp_path)
    with pytest.raises(ExportError, match="no text tower"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle", Choices(tokenizer="x"))
    with pytest.raises(ExportError, match="no --config"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle", Choices(weights_prefix="x."))


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(tiny_models.TEXT_CONFIGS))
@pytest.mark.parametrize("pooling", ["mean", "max", "mean_sqrt_len"])
def test_every_kind_of_text_encoder_gives_the_padded_result_without_padding(
    kind: str, pooling: str, tmp_path: Path
) -> None:
    import onnxruntime

    tiny = tiny_models.sentence_model(tmp_path, kind, pooling)
    pull(tiny.source, tmp_path / "bundle")
    session = onnxruntime.InferenceSession(str(tmp_path / "bundle" / "text.onnx"), providers=["CPUExecutionProvider"])
    assert tiny.padded is not None
    for length in range(1, tiny_models.WINDOW + 1):
        ids = np.arange(1000, 1000 + length)[None]
        (found,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        wanted = tiny.padded(ids.tolist())
        assert np.abs(found / np.linalg.norm(found) - wanted / np.linalg.norm(wanted)).max() <= 1e-5
