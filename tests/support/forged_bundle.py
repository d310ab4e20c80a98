"""A manifest changed by somebody who makes everything fit that can be computed from it: digests, sizes, space_id."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinlens.encoders.bundle import sha256_of
from twinlens.encoders.manifest import FileEntry, ImageTower, TextTower, compute_space_id


def forge(bundle: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> None:
    """Rewrites `bundle.json`: every file that is there is listed as it is, then `change` is made, then the space_id.

    Args:
        bundle: The bundle's folder.
        change: Edits the manifest's JSON in place.
    """
    content = json.loads((bundle / "bundle.json").read_text())
    content["files"] = [
        {"path": file.relative_to(bundle).as_posix(), "sha256": sha256_of(file), "size": file.stat().st_size}
        for file in sorted(bundle.rglob("*"))
        if file.is_file() and file != bundle / "bundle.json"
    ]
    change(content)
    content["space_id"] = compute_space_id(
        content["dimension"],
        None if content["image"] is None else ImageTower.model_validate(content["image"]),
        None if content["text"] is None else TextTower.model_validate(content["text"]),
        tuple(FileEntry.model_validate(entry) for entry in content["files"]),
    )
    (bundle / "bundle.json").write_text(json.dumps(content))
