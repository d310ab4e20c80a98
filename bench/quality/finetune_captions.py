"""Fine-tunes the starter encoder on captions of photos: what it learns, and what it forgets.

    python bench/quality/finetune_captions.py [--seeds 5] [--data ../shared/data] [--served] [--json FILE]

Each seed splits the 500 photos of flickr8k_a (5 captions each) anew: `twinlens train clip` runs on 400 with
docs/examples/clip-finetune.toml, 100 are never seen. Measured on those 100 (a caption's own photo among the first 1, 5
and 10 of the 100), and on imagenet_names, of which nothing is seen either: the share of the 1,000 class names whose own
photo is the first of the 1,000. --served exports the model of the first seed and measures the bundle, as `twinlens
eval` does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from twinlens.encoders.encoder import Encoder
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig, read_config
from twinlens.training.data.pair_sources import load_pairs
from twinlens.training.data.pairs import Pairs, tokenise
from twinlens.training.evaluation.bundles.bundle_embedder import BundleEmbedder
from twinlens.training.evaluation.bundles.config import eval_config
from twinlens.training.evaluation.bundles.measure import evaluate_model
from twinlens.training.evaluation.measured_pairs import measured
from twinlens.training.export.checkpoint_bundle import export_checkpoint
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.progress import silent_report
from twinlens.training.run_files import CHECKPOINT_FILE, TUNED_FILE
from twinlens.training.sections.data import CaptionsData
from twinlens.training.start import Parent, start_of
from twinlens.training.starter.build import build_starter
from twinlens.training.train import train
from twinlens.training.tuning.locked_features import Known, with_features
from twinlens.training.tuning.prepare import prepare

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
RECIPE = ROOT / "docs" / "examples" / "clip-finetune.toml"
PHOTOS, KNOWN = "flickr8k_a", "imagenet_names"
HELD_BACK = 100
# What must be gained at R@10 of the photos, and may be lost at R@1 of the names.
GAIN, LOSS = 0.10, 0.02


@dataclass(frozen=True)
class Figures:
    """What one model is worth.

    Attributes:
        model: What it is.
        seed: Of the split, and of the run.
        photos: R@1, R@5 and R@10 on the held-back photos.
        names: R@1 on the class names.
    """

    model: str
    seed: int
    photos: tuple[float, float, float]
    names: float


class Photos:
    """Both sets with the features of the starter's locked towers, which are the same in every model here."""

    def __init__(self, starter: Path, data: Path) -> None:
        """Decodes and encodes all photos and captions once."""
        config = _config(starter, data / PHOTOS / "captions.jsonl", data, seed=0)
        start = start_of(config.model)
        assert isinstance(start, Parent)
        spec, model = start.build([])
        self._spec = prepare(spec, model, config.tuning)
        towers = DualEncoder(model, spec.preprocess.mean, spec.preprocess.std).eval()

        def ready(name: str) -> Pairs:
            section = CaptionsData(source="captions", path=data / name / "captions.jsonl")
            raw = load_pairs(section, spec.preprocess)
            return with_features(tokenise(raw, spec.tokenizer_json, spec.text), towers, Known(images=True, texts=True))

        self._photos, self._names = ready(PHOTOS), ready(KNOWN)
        self._starter = towers

    def starter(self, seed: int) -> Figures:
        """The model that every run starts from."""
        return self._figures("starter", seed, self._starter)

    def of(self, checkpoint: Path, model: str, seed: int) -> Figures:
        """A model that was trained from it."""
        spec, module, _ = load_checkpoint(checkpoint)
        return self._figures(model, seed, DualEncoder(module, spec.preprocess.mean, spec.preprocess.std).eval())

    def _figures(self, model: str, seed: int, towers: DualEncoder) -> Figures:
        _, held_back = _split(len(self._photos.pixels_nhwc), seed)
        with torch.no_grad():
            photos = measured(towers, _of_pictures(self._photos, held_back))
            names = measured(towers, self._names)
        at = tuple(photos[f"text_to_image_r{k}"] for k in (1, 5, 10))
        return Figures(model, seed, (at[0], at[1], at[2]), names["text_to_image_r1"])


def run_seed(photos: Photos, starter: Path, data: Path, work: Path, seed: int) -> Iterator[tuple[Figures, str]]:
    """Trains on what the seed's split leaves; gives figures and a remark for the starter and both ends of the run."""
    rows = [json.loads(line) for line in (data / PHOTOS / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    pictures = list(dict.fromkeys(row["image"] for row in rows))
    kept = {pictures[k] for k in _split(len(pictures), seed)[0]}
    path = work / f"train-{seed}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row["image"] in kept), encoding="utf-8")
    out = work / f"run-{seed}"
    began_s = time.perf_counter()
    result = train(_config(starter, path, data, seed), out, silent_report)
    seconds = time.perf_counter() - began_s
    yield photos.starter(seed), ""
    yield photos.of(out / TUNED_FILE, "trained weights", seed), f"{seconds:.0f} s"
    yield photos.of(out / CHECKPOINT_FILE, "checkpoint", seed), f"α = {result.interpolated['alpha']:.1f}"


def served(checkpoint: Path, data: Path, work: Path, seed: int) -> Figures:
    """The checkpoint as a bundle, measured as `twinlens eval` does."""
    bundle = work / "bundle"
    export_checkpoint(checkpoint, bundle)
    rows = [json.loads(line) for line in (data / PHOTOS / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    pictures = list(dict.fromkeys(row["image"] for row in rows))
    kept = {pictures[k] for k in _split(len(pictures), seed)[1]}
    path = work / "held-back.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row["image"] in kept), encoding="utf-8")
    sets = [{"path": path, "images": data / PHOTOS}, {"path": data / KNOWN / "captions.jsonl"}]
    with closing(Encoder.load(bundle)) as encoder:
        found = evaluate_model(BundleEmbedder(encoder), eval_config({"retrieval": sets}, "the benchmark"))
    photos, names = found.sets
    at = [photos.value(f"text_to_image_r{k}") for k in (1, 5, 10)]
    return Figures("its bundle", seed, (at[0], at[1], at[2]), names.value("text_to_image_r1"))


def _config(starter: Path, captions: Path, data: Path, seed: int) -> TrainConfig:
    given = {
        "data.path": captions,
        "data.images": data / PHOTOS,
        "model.from_checkpoint": starter,
        "train.seed": seed,
        "validation.seed": seed,
    }
    return read_config(
        RECIPE, [f"{key}={json.dumps(str(v)) if isinstance(v, Path) else v}" for key, v in given.items()]
    )


def _split(count: int, seed: int) -> tuple[list[int], list[int]]:
    """Which photos are trained on, and which are held back."""
    order = np.random.default_rng(seed).permutation(count).tolist()
    return order[:-HELD_BACK], order[-HELD_BACK:]


def _of_pictures(pairs: Pairs, pictures: Sequence[int]) -> Pairs:
    rows = np.flatnonzero(np.isin(pairs.slots, pictures))
    return replace(
        pairs,
        ids=tuple(pairs.ids[row] for row in rows),
        slots=pairs.slots[rows],
        first_captions=pairs.first_captions[rows],
        caption_counts=pairs.caption_counts[rows],
        image_keys=pairs.image_keys[rows],
    )


def _mean(figures: Sequence[Figures], model: str) -> Figures:
    some = [each for each in figures if each.model == model]
    at = np.mean([each.photos for each in some], axis=0).tolist()
    return Figures(model, -1, (at[0], at[1], at[2]), float(np.mean([each.names for each in some])))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of photo sets")
    parser.add_argument("--served", action="store_true", help="also export and measure the bundle of the first seed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    if not (arguments.data / PHOTOS).is_dir():
        print(f"skipped: no {PHOTOS} in {arguments.data}; name a folder of photo sets with --data")
        return 0
    table = Table(
        "seed", "model", "photos @1", "@5", "@10", "names @1", "", box=SIMPLE, title="Fine-tuned on captions (recall)"
    )
    for column in table.columns:
        column.no_wrap = True
    figures: list[Figures] = []

    def add(found: Figures, remark: str = "") -> None:
        at = [f"{share:.3f}" for share in (*found.photos, found.names)]
        table.add_row("mean" if found.seed < 0 else str(found.seed), found.model, *at, remark)

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        build_starter(work / "starter")
        photos = Photos(work / "starter", arguments.data)
        for seed in range(arguments.seeds):
            for found, remark in run_seed(photos, work / "starter", arguments.data, work, seed):
                figures.append(found)
                add(found, remark)
            if arguments.served and seed == 0:
                add(served(work / "run-0", arguments.data, work, seed))
            table.add_section()
    before, _, after = means = [_mean(figures, model) for model in ("starter", "trained weights", "checkpoint")]
    gain, loss = after.photos[2] - before.photos[2], before.names - after.names
    for found in means:
        add(found)
    Console().print(table)
    reached = gain >= GAIN and loss <= LOSS
    print(
        f"checkpoint over starter: R@10 {gain:+.3f} (goal: {GAIN:+.2f}), names R@1 {-loss:+.3f} (goal: at least "
        f"{-LOSS:+.2f}) {'✓' if reached else '✗'}"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(each) for each in figures], indent=2) + "\n", encoding="utf-8")
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
