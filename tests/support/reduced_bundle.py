"""The tiny bundle with reduced files whose weights are off by as much as a test wants."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tests.support.forged_bundle import forge
from tests.support.tiny_bundle import TinyTowers
from twinlens.encoders.runtime import Tower

Reduce = Callable[..., Path]
_AGREEMENT = {"mean_cosine": 0.999, "worst_cosine": 0.99, "items": 8}


def reducer(tiny_bundle: Path, folder: Path) -> Reduce:
    """Gives a function that adds a reduced file to a copy of the tiny bundle in `folder`."""

    def reduce(tower: Tower, precision: Literal["int8", "fp16"] = "int8", *, noise: float) -> Path:
        """Weights are off by `noise` of their own spread."""
        import onnx

        if not folder.is_dir():
            shutil.copytree(tiny_bundle, folder)
        towers = TinyTowers()
        drawn = np.random.default_rng(3)
        for exact in (towers.weight, towers.table):
            exact[:] += (noise * exact.std() * drawn.standard_normal(exact.shape)).astype(np.float32)
        name = f"{tower}.{precision}.onnx"
        onnx.save(towers.image_graph() if tower == "image" else towers.text_graph(), str(folder / name))

        def name_it(content: dict[str, Any]) -> None:
            files = content[tower]["files"]
            files[precision] = name
            files["agreement"] = {**files.get("agreement", {}), precision: _AGREEMENT}

        forge(folder, name_it)
        return folder

    return reduce
