from __future__ import annotations

from pathlib import Path

from twinlens.training.mining.manifest import MinedNegatives, write_manifest


def write_mined_scenes(path: Path, count: int, *, shift: int = 1) -> None:
    """The wrong caption of each scene of seed 3 is that of the one `shift` behind it."""
    mined = MinedNegatives(
        anchor_ids=[f"scene-3-{i}" for i in range(count)],
        negative_ids=[f"scene-3-{(i + shift) % count}" for i in range(count)],
        kinds=["text"] * count,
        scores=[0.5] * count,
        positive_scores=[0.6] * count,
        ranks=[1] * count,
        reasons=[""] * count,
        space_id="ab" * 32,
    )
    write_manifest(path, mined)
