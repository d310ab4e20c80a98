"""What a user names: read, or refused in one clear line before anything is built or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import tiny_hugging_face
from twinlens.training.export.errors import ExportError
from twinlens.training.pull.families import pull
from twinlens.training.pull.published_weights import published_weights
from twinlens.training.pull.source import Choices, Source, parse_source


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
        (
            "ViT-B-16-SigLIP",
            "cannot download the tokenizer timm/ViT-B-16-SigLIP .*: no network .*, by --tokenizer FOLDER",
        ),
    ],
)
def test_without_a_network_it_is_one_line_that_says_what_to_do(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message) as caught:
        pull(source, tmp_path / "bundle")
    assert "\n" not in str(caught.value)


def test_weights_of_an_earlier_pull_are_used_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: "/cache/model.safetensors")
    assert published_weights("ViT-B-32", "openai", {"hf_hub": "owner/model/"}) == Path("/cache/model.safetensors")


def test_options_of_another_family_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="timm models have no text tower"):
        pull("timm:resnet18", tmp_path / "bundle", Choices(tokenizer="x"))
    tiny_hugging_face.hf_vit(tmp_path)
    with pytest.raises(ExportError, match="no text tower"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle", Choices(tokenizer="x"))
    with pytest.raises(ExportError, match="no --config"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle", Choices(weights_prefix="x."))
