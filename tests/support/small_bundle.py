"""Bundles of pictures only whose weights lie beside the graph; small ones with few files, to be copied often."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.tiny_bundle import TinyTowers, stage_tiny_bundle, tiny_draft
from twinlens.encoders.manifest import Manifest
from twinlens.encoders.parity import write_parity
from twinlens.encoders.publish import publish


def stage(folder: Path, *, change: float = 0.0, **layout: Any) -> Path:
    """A staging folder of an image-only bundle whose weights lie beside the graph."""
    towers = TinyTowers()
    towers.weight = towers.weight + np.float32(change)
    stage_tiny_bundle(folder, towers, text=False)
    keep_beside(folder / "image.onnx", **layout)
    return folder


def keep_beside(graph: Path, **layout: Any) -> None:
    """Moves a graph's weights to files beside it; the layout is `onnx.save_model`'s."""
    if "/" in str(layout.get("location", "")):
        (graph.parent / layout["location"]).parent.mkdir(exist_ok=True)
    import onnx

    model = onnx.load(str(graph))
    # What shapes follow from has to stay in the graph: the runtime does not look for it elsewhere.
    onnx.save_model(model, str(graph), save_as_external_data=True, size_threshold=64, **layout)


def build_small(destination: Path, *, version: str = "1", change: float = 0.0) -> Manifest:
    """Publishes a bundle of six files, of which w.bin has the weights; another `change` makes another space."""
    staging = destination.parent / "staging"
    stage(staging, location="w.bin", change=change)
    shrink_parity(staging / "parity")
    manifest = publish(tiny_draft(text=False, version=version), staging, destination)
    shutil.rmtree(staging)
    return manifest


def shrink_parity(folder: Path) -> None:
    """Keeps one picture: tests that copy a bundle again and again need no more."""
    name = "grey.png"
    data = (folder / "images" / name).read_bytes()
    with np.load(folder / "embeddings.npz") as archive:
        vectors = archive["image_embeddings"]
    at = json.loads((folder / "manifest.json").read_text())["images"].index(name)
    shutil.rmtree(folder)
    write_parity(folder, {name: data}, (), vectors[at : at + 1], None)
