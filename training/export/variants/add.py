"""Giving a bundle int8 and fp16 files: each is made, judged, and written only if it passes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.encoder import Encoder, tower_files
from twinlens.encoders.manifest import NAME_PATTERN, Manifest, Precision, TowerFiles
from twinlens.encoders.publish import BundleDraft, publish
from twinlens.encoders.runtime import Tower
from twinlens.training.export.destination import room_beside
from twinlens.training.export.errors import ExportError
from twinlens.training.export.variants.calibration import CalibrationData
from twinlens.training.export.variants.enough import refuse_too_little
from twinlens.training.export.variants.make import REDUCED, Maker
from twinlens.training.export.variants.report import Outcome, VariantReport, data_for_people
from twinlens.training.export.variants.samples import Samples, prepare_samples
from twinlens.training.export.variants.speed import MIN_SPEEDUP
from twinlens.training.export.variants.watch import Watch, unwatched
from twinlens.training.versions import versions


def add_variants(
    bundle: Path,
    out: Path,
    wanted: Sequence[Precision],
    calibration: CalibrationData,
    *,
    version: str | None = None,
    min_speedup: float = MIN_SPEEDUP,
    say: Callable[[str], object] = str,
    watch: Watch = unwatched,
) -> VariantReport:
    """Publishes the bundle anew, of the same `space_id`, with the reduced files that pass the gate.

    Each tower is judged beside the other in fp32; where both have an int8 file, also together: if they only pass one by
    one, the one that gains less speed is not written. Files of other precisions that the bundle has stay; one of a
    precision that is made anew goes, whether the new one passes or not.

    Args:
        bundle: The bundle's folder.
        out: The new bundle's folder: new, or empty.
        wanted: `int8`, `fp16` or both.
        calibration: What to calibrate on and to judge by.
        version: The new bundle's version; default: the old one's.
        min_speedup: Over fp32 in ONNX Runtime on this CPU, the least worth an int8 file; 0 leaves speed out.
        say: Told what is being done.
        watch: Told how far each stage is.

    Returns:
        What became of each file asked for. Nothing is published if none passed.

    Raises:
        ExportError: if the data is too little, the folder in use or on a full disk, or a graph cannot be read.
        BundleError: if the bundle is not sound.
    """
    for precision in wanted:
        if precision not in REDUCED:
            raise ExportError(f"there is no variant {precision!r}: {' and '.join(REDUCED)} can be made")
    if not wanted:
        raise ExportError("no variant named: int8 and fp16 can be made")
    refuse_used(out)
    if version is not None and not re.fullmatch(NAME_PATTERN, version):
        raise ExportError(f"no bundle can have the version {version!r}: letters, digits, '.', '_' and '-' only")
    manifest = read_manifest(bundle)
    refuse_too_little(calibration, image=manifest.image is not None, text=manifest.text is not None)
    encoder = Encoder.load(bundle, provider="cpu")
    with room_beside(out) as folder:
        scratch, staging = folder / "scratch", folder / "bundle"
        scratch.mkdir()
        say(f"preparing {len(calibration.photos)} pictures and what else there is")
        samples = prepare_samples(encoder, calibration, scratch, watch)
        encoder.close()
        maker = Maker(manifest, bundle, samples, scratch, min_speedup, say, watch)
        outcomes = [maker.make(tower, precision) for precision in dict.fromkeys(wanted) for tower in maker.towers]
        outcomes = maker.together(outcomes)
        if not any(not outcome.refused for outcome in outcomes):
            return VariantReport(tuple(outcomes), None, samples.unreadable)
        _stage(bundle, manifest, staging, outcomes, scratch)
        draft = _draft(manifest, outcomes, samples, version or manifest.version)
        return VariantReport(tuple(outcomes), publish(draft, staging, out), samples.unreadable)


def refuse_used(out: Path) -> None:
    """Refuses early a folder that cannot take a new bundle.

    Raises:
        ExportError: if `out` is a file, or a folder with something in it.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ExportError(f"{out} is in use; bundles are immutable: name a new folder")


def _stage(bundle: Path, manifest: Manifest, staging: Path, outcomes: Sequence[Outcome], scratch: Path) -> None:
    """Copies the bundle's files, and those that passed, to the staging folder."""
    replaced = {tower_files(manifest)[outcome.tower].by_precision().get(outcome.precision) for outcome in outcomes}
    for entry in manifest.files:
        if entry.path not in replaced:
            (staging / entry.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle / entry.path, staging / entry.path)
    for outcome in outcomes:
        if not outcome.refused:
            for file in scratch.glob(f"{outcome.tower}.{outcome.precision}.onnx*"):
                shutil.copyfile(file, staging / file.name)


def _with(files: TowerFiles, outcome: Outcome, samples: Samples) -> TowerFiles:
    """The tower's files with what passed, and without an older file of a precision that did not pass."""
    agreement = {precision: of for precision, of in files.agreement.items() if precision != outcome.precision}
    path = None
    if not outcome.refused:
        path = f"{outcome.tower}.{outcome.precision}.onnx"
        agreement[outcome.precision] = outcome.agreement(data_for_people(samples, outcome.judgement))
    return TowerFiles(**{**files.model_dump(), outcome.precision: path, "agreement": agreement})


def _draft(manifest: Manifest, outcomes: Sequence[Outcome], samples: Samples, version: str) -> BundleDraft:
    towers: dict[Tower, Any] = {"image": manifest.image, "text": manifest.text}
    for name, tower in towers.items():
        if tower is None:
            continue
        files: TowerFiles = tower.files
        for outcome in outcomes:
            if outcome.tower == name:
                files = _with(files, outcome, samples)
        towers[name] = tower.model_copy(update={"files": files})
    made_with = versions(("onnx", "onnxruntime"))
    return BundleDraft(
        name=manifest.name,
        version=version,
        dimension=manifest.dimension,
        image=towers["image"],
        text=towers["text"],
        scoring=manifest.scoring,
        lineage=manifest.lineage.model_copy(update={"packages": {**manifest.lineage.packages, **made_with}}),
        metrics=manifest.metrics,
        licence=manifest.licence,
        languages=manifest.languages,
        description=manifest.description,
    )
