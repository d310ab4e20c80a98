from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.image_files import encode, scene
from twinlens.__main__ import main
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.manifest import Lineage
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.repository import ModelRepository
from twinlens.encoders.tokenise import TextTokenizer, collate
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, build_model, save_checkpoint
from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.checkpoint_bundle import export_checkpoint
from twinlens.training.export.errors import ExportError


def test_an_exported_checkpoint_serves_the_trained_models_vectors(
    tiny_spec: DualEncoderSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command, into a repository, where it can be named."""
    torch.manual_seed(0)
    model = build_model(tiny_spec)
    meta = CheckpointMeta(7, Lineage(method="clip", data_sha256="0" * 64), {"recall": 0.5})
    save_checkpoint(tmp_path / "checkpoint.pt", tiny_spec, model, meta)
    out = tmp_path / "models" / "mine" / "2"
    assert main(["export", str(tmp_path / "checkpoint.pt"), "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    manifest = ModelRepository(str(tmp_path / "models")).manifest("mine")
    assert (manifest.name, manifest.version, manifest.metrics) == ("mine", "2", {"recall": 0.5})
    assert report == {
        "path": str(out),
        "name": "mine",
        "version": "2",
        "space_id": manifest.space_id,
        "dimension": manifest.dimension,
        "bytes": sum(entry.size for entry in manifest.files),
        "existed": False,
    }
    assert (manifest.lineage.method, manifest.lineage.data_sha256) == ("clip", "0" * 64)
    encoder = Encoder.load(out, provider="cpu", threads=1)
    model.eval()
    picture = encode(scene())
    tokenizer = TextTokenizer(tiny_spec.tokenizer_json.encode(), tiny_spec.text)
    texts = ["a red circle", "a small blue square left of a large green star", "red " * 60]
    ids, _ = collate([tokenizer(text) for text in texts], tiny_spec.text)
    with torch.no_grad():
        image = model.encode_image(torch.from_numpy(load_pixels(picture, tiny_spec.preprocess)[None]))  # type: ignore[operator]
        text = model.encode_text(torch.from_numpy(ids))  # type: ignore[operator]
    served_image = encoder.encode_images(np.stack([encoder.prepare_image(picture)]))
    served_text = encoder.encode_texts([encoder.prepare_text(text) for text in texts])
    assert row_cosines(image.numpy(), served_image).min() >= 0.9999
    assert row_cosines(text.numpy(), served_text).min() >= 0.9999


def test_a_checkpoint_that_is_not_one_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no checkpoint at"):
        export_checkpoint(tmp_path / "none.pt", tmp_path / "bundle")
    (tmp_path / "broken.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ExportError, match="not a readable checkpoint"):
        export_checkpoint(tmp_path / "broken.pt", tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
