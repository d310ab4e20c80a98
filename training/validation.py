"""`[validation]` of a dual encoder: what is held out, how a run is measured on it, and which weights it ends with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.config import TrainConfig
from twinlens.training.csv_rows import append_row
from twinlens.training.data.errors import DataError
from twinlens.training.data.held_out import hold_out
from twinlens.training.data.pair_sources import load_pairs
from twinlens.training.data.pairs import Pairs, RawPairs, tokenise
from twinlens.training.data.stream_source import StreamSource
from twinlens.training.device import device_of
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation.measured_pairs import measure_names, measured
from twinlens.training.interpolation import Point, Weights, chosen, copied_weights, interpolate
from twinlens.training.methods.clip import Clip
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.sections.validation import ValidationConfig
from twinlens.training.tuning.locked_features import Known, with_features
from twinlens.training.validation_callback import Validation

# Before the measures of what must not be forgotten.
_FORGETTING = "forgetting_"


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """What a run is measured on.

    Attributes:
        pairs: Held out of the data, or of a source of their own.
        forgetting: What must not be forgotten; None: nothing is named.
    """

    pairs: RawPairs
    forgetting: RawPairs | None = None

    def described(self) -> dict[str, object]:
        """For the record of a run: how much, and digests of what."""
        parts = {"pairs": self.pairs, "forgetting": self.forgetting}
        return {
            name: {"pairs": len(part.ids), "pictures": len(set(part.image_digests)), "sha256": part.digest()}
            for name, part in parts.items()
            if part is not None
        }


def held_out(
    config: ValidationConfig, raw: RawPairs | StreamSource, preprocess: PreprocessSpec, *, spill: Path
) -> tuple[RawPairs | StreamSource, HeldOut]:
    """Splits the data of a run, or reads what it is measured on.

    Args:
        config: The section.
        raw: The data.
        preprocess: The image tower's.
        spill: See `load_pairs`.

    Returns:
        What is left to train on, and what is held out.

    Raises:
        ConfigError: if a source cannot be followed, or the data is streamed and no other is named.
        DataError: if too little is left, or a source cannot be read.
    """
    if config.data is None:
        if not isinstance(raw, RawPairs):
            raise ConfigError("pictures cannot be held out of data that is streamed: name others as validation.data")
        raw, pairs = hold_out(raw, config.share, config.seed)
        pairs = _at_size(pairs, preprocess.size)
    else:
        pairs = load_pairs(config.data, preprocess, spill=spill)
    forgetting = None if config.forgetting is None else load_pairs(config.forgetting, preprocess, spill=spill)
    return raw, HeldOut(pairs, forgetting)


@dataclasses.dataclass(frozen=True)
class HeldOutMeasures:
    """Measures towers on held-out pairs.

    Attributes:
        pairs: Ready for the towers.
        forgetting: Likewise; None: nothing is named.
        best_by: The measure that decides, and `kept_by` that of what must not be forgotten.
    """

    pairs: Pairs
    forgetting: Pairs | None
    best_by: str
    kept_by: str | None

    def __call__(self, towers: DualEncoder) -> dict[str, float]:
        """The measures by name; those of `forgetting` begin with `forgetting_`."""
        measures = measured(towers, self.pairs)
        if self.forgetting is not None:
            kept = measured(towers, self.forgetting)
            measures |= {f"{_FORGETTING}{name}": value for name, value in kept.items()}
        return measures

    def point(self, alpha: float, measures: dict[str, float]) -> Point:
        """What decides about a share of the tuned weights."""
        return Point(alpha, measures[self.best_by], None if self.kept_by is None else measures[self.kept_by])

    def validation(self, every: int) -> Validation:
        """What the loop calls every so many steps."""
        return Validation(lambda method: self(method.trained()), every, self.best_by)

    def ending(self, method: Clip, config: ValidationConfig) -> Ending | None:
        """What a run ends with, taken before it begins; None where the trained weights stay as they are."""
        return Ending(copied_weights(method.exported()), self, config) if config.interpolate else None


@dataclasses.dataclass(frozen=True)
class Ending:
    """Ends a run with a share of its weights and the rest of its parent's (WiSE-FT).

    Attributes:
        parent: The weights that the run started from.
        measures: By which the share is chosen.
        config: How.
    """

    parent: Weights
    measures: HeldOutMeasures
    config: ValidationConfig

    def __call__(self, method: Clip, table: Path) -> dict[str, float]:
        """Changes the weights that the method exports; see `interpolate` and `chosen`.

        Args:
            method: At the end of its run.
            table: The CSV file to write: `alpha`, and every measure.

        Returns:
            `alpha`, and the measures of the chosen weights.
        """
        towers = method.trained().eval().to(device_of())
        rows: list[dict[str, float]] = []
        table.unlink(missing_ok=True)

        def measure(alpha: float) -> Point:
            with torch.no_grad():
                values = self.measures(towers)
            rows.append({"alpha": alpha, **values})
            append_row(table, rows[-1])
            return self.measures.point(alpha, values)

        def choose(points: Sequence[Point]) -> Point:
            return chosen(points, kept_gain=self.config.kept_gain, max_forgotten=self.config.max_forgotten)

        steps = self.config.interpolation_steps
        *_, taken = interpolate(method.exported(), self.parent, steps=steps, measure=measure, choose=choose)
        return next(row for row in rows if row["alpha"] == taken.alpha)


def check_validation(config: TrainConfig) -> None:
    """Refuses what would come to nothing, before anything is read.

    Raises:
        ConfigError: if there is no parent to interpolate with, or held-out data would be streamed.
    """
    section = config.validation
    if section is None:
        return
    if section.interpolate and config.model.from_checkpoint is None:
        raise ConfigError("validation.interpolate mixes weights with those of a parent: set model.from_checkpoint")
    if any(getattr(data, "streaming", False) for data in (section.data, section.forgetting)):
        raise ConfigError("held-out data is looked at again and again: leave streaming out of it")


def measures_on(
    held: HeldOut, config: ValidationConfig, spec: DualEncoderSpec, towers: DualEncoder, known: Known
) -> HeldOutMeasures:
    """Makes held-out pairs ready for the towers.

    Args:
        held: What is held out.
        config: The section.
        spec: Of the model.
        towers: As they start.
        known: See `with_features`.

    Raises:
        ConfigError: if the measure that shall decide is none of this data.
        DataError: if a caption cannot be tokenised, or that measure is 1 for every model.
    """

    def ready(raw: RawPairs) -> Pairs:
        return with_features(tokenise(raw, spec.tokenizer_json, spec.text), towers, known)

    pairs = ready(held.pairs)
    forgetting = None if held.forgetting is None else ready(held.forgetting)
    names = measure_names(pairs)
    best_by = config.best_by or names[0]
    if best_by not in names:
        raise ConfigError(f"validation.best_by: nothing is called {best_by!r}: {', '.join(names)}")
    _refuse_what_all_reach(best_by, pairs)
    kept_by = None
    if forgetting is not None:
        kept_by = _FORGETTING + ("top_1" if "top_1" in measure_names(forgetting) else "text_to_image_r1")
    return HeldOutMeasures(pairs, forgetting, best_by, kept_by)


def _refuse_what_all_reach(best_by: str, pairs: Pairs) -> None:
    """Among ten pictures every model finds the right one within ten: nothing would be better than the parent."""
    way, _, within = best_by.rpartition("_r")
    if not within.isdigit():
        return
    among = len(np.unique(pairs.image_keys)) if way == "text_to_image" else int(pairs.caption_counts.sum())
    if among <= int(within):
        what = "pictures" if way == "text_to_image" else "captions"
        raise DataError(
            f"validation.best_by = {best_by} is 1 for every model, as only {among} {what} are held out: hold out more "
            "(validation.share or data), or take mean_recall"
        )


def _at_size(raw: RawPairs, size: int) -> RawPairs:
    """Where views are cut from larger pictures, held-out ones are shown whole, at the tower's size."""
    if raw.pixels_nhwc.shape[1] == size:
        return raw
    used, slots = np.unique(raw.slots, return_inverse=True)
    pictures = [
        F.interpolate(
            torch.from_numpy(raw.pixels_nhwc[slot]).permute(2, 0, 1)[None].float(),
            size=(size, size),
            mode="bicubic",
            antialias=True,
        )
        for slot in used.tolist()
    ]
    pixels = torch.cat(pictures).round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous()
    return dataclasses.replace(raw, pixels_nhwc=pixels.numpy(), slots=slots)
