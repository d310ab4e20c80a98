"""What `serve --tune` found fastest, remembered beside active.json until bundle, machine or packages change."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.cpus import cpu_features, cpu_model
from twinlens.encoders.encoder import tower_files
from twinlens.encoders.runtime import Provider, RunPrecision, Tower
from twinlens.encoders.tuning import BATCHES, Choice, Measured, expected_s, fastest, plan, tune
from twinlens.index.durable import make_folder, replace_file
from twinlens.server.core.not_tuned import NotTuned

TUNED_NAME = "tuned.json"
_PACKAGES = ("onnxruntime", "onnxruntime-gpu", "openvino")

# What is said of each field of `Circumstances` that is another now.
_ELSEWHERE = {
    "space_id": "for another space than that of {bundle}",
    "files": "with other files than {bundle} has",
    "cpu": "on another processor",
    "features": "with other features of the processor",
    "threads": "with another number of threads",
    "packages": "with other versions of the runtimes",
}

log = logging.getLogger(__name__)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Circumstances(_Frozen):
    """All that a measurement holds for: if any of it changes, another choice may be the fastest, or a wrong one."""

    space_id: str
    # SHA-256 of each tower's files: reduced ones may be made anew within the same space.
    files: dict[str, str]
    cpu: str
    features: tuple[str, ...]
    threads: int
    packages: dict[str, str]


class TunedTower(_Frozen):
    """Where a tower runs and in which precision."""

    provider: Provider
    precision: RunPrecision
    # Speed over fp32 on the default provider, and worst cosine to the trainer's vectors when it was chosen.
    gain: float = Field(ge=0)
    cosine: float = Field(ge=-1.1, le=1.1)


class Tuned(_Frozen):
    """tuned.json."""

    circumstances: Circumstances
    towers: dict[Tower, TunedTower]

    @property
    def providers(self) -> dict[Tower, Provider]:
        """By tower."""
        return {name: tower.provider for name, tower in self.towers.items()}

    @property
    def precisions(self) -> dict[Tower, RunPrecision]:
        """By tower."""
        return {name: tower.precision for name, tower in self.towers.items()}


def measure(data: Path, bundle: Path, threads: int) -> Tuned:
    """Measures what is fastest here and remembers it; the table goes to the log as it grows.

    Args:
        data: The data folder; made if missing.
        bundle: The bundle's folder.
        threads: Threads of a tower.

    Raises:
        BundleError: if the bundle does not run at all.
        RuntimeUnavailable: if there is no runtime.
        NotTuned: if the choice cannot be written down.
    """
    for line in announce(plan(bundle), threads):
        log.info("tuning: %s", line)
    measured = tune(bundle, threads=threads, report=lambda entry: log.info("%s", describe(entry)))
    chosen = fastest(measured)
    found = Tuned(
        circumstances=_circumstances(bundle, threads),
        towers={
            entry.tower: TunedTower(
                provider=entry.choice.provider,
                precision=entry.choice.precision,
                gain=round(entry.gain, 3),
                cosine=entry.cosine or 0.0,
            )
            for entry in measured
            if chosen[entry.tower] == entry.choice
        },
    )
    for name, tower in found.towers.items():
        log.info("tuned: %s runs in %s on %s", name, tower.precision, tower.provider)
    try:
        make_folder(data)
        replace_file(data / TUNED_NAME, found.model_dump_json(indent=2) + "\n")
    except OSError as error:
        msg = f"{data / TUNED_NAME} cannot be written: {error.strerror}"
        raise NotTuned(msg) from None
    return found


def recall(data: Path, bundle: Path, threads: int) -> Tuned:
    """What was found fastest for this bundle on this machine with these packages.

    Raises:
        NotTuned: if nothing was measured, or for other circumstances; says which.
        BundleError: if the bundle cannot be read.
    """
    way_out = "start once with --tune, or name a precision"
    path = data / TUNED_NAME
    try:
        found = Tuned.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        msg = f"nothing was measured for {data} yet: {way_out}"
        raise NotTuned(msg) from None
    except (OSError, ValidationError):
        msg = f"{path} cannot be read: {way_out}"
        raise NotTuned(msg) from None
    now = _circumstances(bundle, threads)
    for field in Circumstances.model_fields:
        if getattr(found.circumstances, field) != getattr(now, field):
            msg = f"{path} was measured {_ELSEWHERE[field].format(bundle=bundle)}: {way_out}"
            raise NotTuned(msg)
    if set(found.towers) != set(tower_files(read_manifest(bundle))):
        msg = f"{path} does not choose for every tower: {way_out}"
        raise NotTuned(msg)
    return found


def announce(planned: Sequence[tuple[Tower, Choice]], threads: int) -> list[str]:
    """What will be measured and about how long it takes, and what the columns of the table are."""
    choices: dict[Tower, list[str]] = {}
    for tower, choice in planned:
        choices.setdefault(tower, []).append(f"{choice.precision} on {choice.provider}")
    measuring = "; ".join(f"{tower} in {', '.join(names)}" for tower, names in choices.items())
    batches = ", ".join(map(str, BATCHES))
    minutes = math.ceil(expected_s(len(planned)) / 60)
    reference = planned[0][1]
    length = f"takes about {minutes} min at most, more where a batch takes more than half a second"
    speeds = f"items a second by batch, speed against {reference.precision} on {reference.provider} (x1.00)"
    return [
        f"measuring {measuring}",
        f"batches of {batches}, threads a tower: {threads}; {length}",
        f"columns: tower, provider, precision, {speeds}, worst cosine to the trainer's vectors",
    ]


def describe(entry: Measured) -> str:
    """A line of the table."""
    what = f"{entry.tower:<5} {entry.choice.provider:<8} {entry.choice.precision:<4}"
    if entry.problem:
        return f"{what}  not usable: {entry.problem}"
    speeds = "  ".join(f"{rate:8.1f}/s at {batch}" for batch, rate in entry.per_second.items())
    return f"{what}  {speeds}  x{entry.gain:.2f}  worst cosine {entry.cosine:.5f}"


def _circumstances(bundle: Path, threads: int) -> Circumstances:
    manifest = read_manifest(bundle)
    digests = {entry.path: entry.sha256 for entry in manifest.files}
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return Circumstances(
        space_id=manifest.space_id,
        files={
            path: digests[path] for files in tower_files(manifest).values() for path in files.by_precision().values()
        },
        cpu=cpu_model(),
        features=cpu_features(),
        threads=threads,
        packages=packages,
    )
