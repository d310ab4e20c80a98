from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.image_files import encode, scene
from tests.training.export.conftest import DIMENSION, TinyImage
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import Lineage, ScoringRule
from twinlens.training.export import bundle
from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.bundle import About, publish_towers
from twinlens.training.export.errors import ExportError
from twinlens.training.export.towers import ImageExport, TextExport, export_image

ABOUT = About(name="tiny", version="1", scoring=ScoringRule(scale=5.0), lineage=Lineage(method="test"))


def test_a_published_bundle_gives_torchs_vectors_and_the_same_space_again(
    image_tower: ImageExport, text_tower: TextExport, tmp_path: Path
) -> None:
    manifest = publish_towers(image_tower, text_tower, ABOUT, tmp_path / "a")
    assert (manifest.dimension, manifest.scoring.scale, manifest.lineage.method) == (DIMENSION, 5.0, "test")
    assert "torch" in manifest.lineage.packages
    encoder = Encoder.load(tmp_path / "a", provider="cpu", threads=1)  # runs the parity check
    pictures = [encode(scene(40, 30, seed)) for seed in range(3)]
    found = encoder.encode_images(np.stack([encoder.prepare_image(data) for data in pictures]))
    with torch.no_grad():
        expected = image_tower.module(torch.from_numpy(image_tower.pixels(pictures))).numpy()
    assert row_cosines(expected, found).min() > 0.99999
    texts = ["dog", "a photo of a red dog", "of " * 100]
    found = encoder.encode_texts([encoder.prepare_text(text) for text in texts])
    expected = text_tower.expected(text_tower.tokenise(texts))
    assert row_cosines(expected, found).min() > 0.99999

    again = publish_towers(image_tower, text_tower, ABOUT, tmp_path / "b")
    assert again.space_id == manifest.space_id
    assert publish_towers(image_tower, text_tower, ABOUT, tmp_path / "a") == manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_an_image_only_bundle_has_no_text_tower(image_tower: ImageExport, tmp_path: Path) -> None:
    stages: list[str] = []
    manifest = publish_towers(image_tower, None, ABOUT, tmp_path / "bundle", stages.append)
    assert [stage.split()[0] for stage in stages] == ["writing", "checking"]
    assert manifest.text is None
    Encoder.load(tmp_path / "bundle", provider="cpu", threads=1)


def test_towers_of_different_dimension_are_refused_and_nothing_is_left(
    image_tower: ImageExport, text_tower: TextExport, tmp_path: Path
) -> None:
    wide = dataclasses.replace(image_tower, module=TinyImage(DIMENSION + 1).eval())
    with pytest.raises(ExportError, match="same dimension"):
        publish_towers(wide, text_tower, ABOUT, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_bundle_and_leaves_nothing(
    image_tower: ImageExport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as writes do, which name no file

    monkeypatch.setattr(bundle, "write_parity", full)
    out = tmp_path / "models/tiny/1"
    with pytest.raises(ExportError, match=f"^cannot write {out}: No space left on device$"):
        publish_towers(image_tower, None, ABOUT, out)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_things_in_it_is_refused_before_any_work(image_tower: ImageExport, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ExportError, match="not empty and holds no bundle"):
        publish_towers(image_tower, None, ABOUT, tmp_path)
    with pytest.raises(ExportError, match="is a file"):
        publish_towers(image_tower, None, ABOUT, tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_with_another_bundle_is_refused(image_tower: ImageExport, tiny_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="it holds tiny"):
        publish_towers(image_tower, None, ABOUT, tiny_bundle)


def test_a_graph_that_does_not_agree_with_torch_is_refused(
    image_tower: ImageExport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twinlens.training.export import graph, towers

    def export_then_change_the_weights(module: nn.Module, inputs: object, path: Path) -> None:
        original(module, inputs, path)  # type: ignore[arg-type]
        with torch.no_grad():
            module.conv.weight.mul_(torch.linspace(0.5, 1.5, DIMENSION).view(-1, 1, 1, 1))  # type: ignore[union-attr,operator]

    original = graph.export_graph
    monkeypatch.setattr(towers, "export_graph", export_then_change_the_weights)
    with pytest.raises(ExportError, match="image tower: the exported graph does not agree with torch: cosine 0"):
        export_image(image_tower, [encode(scene())], tmp_path)


def test_a_tower_whose_output_is_not_finite_is_refused(image_tower: ImageExport, tmp_path: Path) -> None:
    with torch.no_grad():
        image_tower.module.conv.bias.fill_(float("nan"))  # type: ignore[union-attr,operator]
    with pytest.raises(ExportError, match="not finite"):
        export_image(image_tower, [encode(scene())], tmp_path)
