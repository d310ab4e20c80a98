"""What a run of a dual encoder is made of, checked before its first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from twinlens.encoders.manifest import Lineage, PreprocessSpec
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec
from twinlens.training.clip_sources import sources_digest
from twinlens.training.compiler import check_compiler
from twinlens.training.config import TrainConfig
from twinlens.training.data.batches import PairBatches
from twinlens.training.data.hard_share import hard_share_of
from twinlens.training.data.mined import MinedTable, tie
from twinlens.training.data.pair_sources import load_pairs
from twinlens.training.data.pairs import Pairs, RawPairs, tokenise
from twinlens.training.data.stream_source import StreamSource
from twinlens.training.data.streamed_pairs import StreamedPairs
from twinlens.training.device import device_of
from twinlens.training.errors import ConfigError
from twinlens.training.event_files import check_event_files
from twinlens.training.losses.pair_loss import pair_loss_of, starting_scale
from twinlens.training.methods.clip import Clip
from twinlens.training.mining.manifest import MinedNegatives, read_manifest
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.modules.global_batch_norm import share_batch_norm
from twinlens.training.opening_line import opening_line
from twinlens.training.optimiser import Schedule
from twinlens.training.pair_augment import stored_preprocess, train_views
from twinlens.training.precision import precision_of
from twinlens.training.progress import Say
from twinlens.training.ranks import Ranks
from twinlens.training.run_files import STATE_FILE
from twinlens.training.run_folder import cut_tables
from twinlens.training.run_records import PACKAGES, write_records
from twinlens.training.run_state import RunIdentity, read_state
from twinlens.training.sections.data import ShardsData, balance_power
from twinlens.training.start import Parent, Scratch, start_of
from twinlens.training.towers.unused import rest_unused
from twinlens.training.tuning.locked_features import known_features, with_features
from twinlens.training.tuning.locks import Locks
from twinlens.training.tuning.prepare import check_tower, prepare
from twinlens.training.tuning.rates import learning_rates
from twinlens.training.validation import Ending, HeldOut, check_validation, held_out, measures_on
from twinlens.training.validation_callback import Validation
from twinlens.training.versions import versions

METHOD = "clip"


@dataclass(frozen=True)
class PreparedClip:
    """A run with all checks behind it.

    Attributes:
        pairs: None where they are streamed.
        held: What it is measured on; None: nothing.
        ending: What mixes its weights with those of its parent at the end; None: nothing.
        identity: By which its state is known.
        first_step: The step it goes on from.
        steps_before: Of earlier runs behind the weights that it started from.
    """

    spec: DualEncoderSpec
    method: Clip
    locks: Locks
    batches: PairBatches | StreamedPairs
    raw: RawPairs | StreamSource
    pairs: Pairs | None
    mined: MinedTable | None
    held: HeldOut | None
    validation: Validation | None
    ending: Ending | None
    lineage: Lineage
    identity: RunIdentity
    first_step: int
    steps_before: int

    def meta(self, step: int, metrics: dict[str, float]) -> CheckpointMeta:
        """Of a checkpoint after so many steps of this run."""
        measured = {name: value for name, value in metrics.items() if name not in {"step", "seconds"}}
        return CheckpointMeta(self.steps_before + step, self.lineage, measured)


def prepare_clip(config: TrainConfig, out: Path, ranks: Ranks, say: Say, *, resume: bool) -> PreparedClip:
    """Reads, checks and builds everything, and writes the records of a new run.

    Args:
        config: What to train on what.
        out: The run folder, which is there.
        ranks: The processes that share each batch.
        say: Told in a line what is done with the data, once it is read.
        resume: Go on from the state in `out`.

    Raises:
        ConfigError, DataError, CheckpointError, MiningError: see `train`.
    """
    run = config.train
    # First what is quickly told: a mistake should not wait for the data.
    if run.tensorboard:
        check_event_files()
    if run.compile:
        check_compiler("cuda" if torch.cuda.is_available() else "cpu")
    if isinstance(config.data, ShardsData) and config.data.streaming and config.hard_negatives is not None:
        raise ConfigError("hard_negatives need all pairs in sight: leave them out, or set data.streaming = false")
    check_validation(config)
    pl.seed_everything(run.seed, verbose=False)
    start = start_of(config.model)
    check_tower(start.image_tower, config.tuning)
    hard = config.hard_negatives
    mined = None if hard is None or hard.manifest is None else read_manifest(hard.manifest)
    raw = _read(config, stored_preprocess(config.augment, start.preprocess), out, ranks)
    held = None
    if config.validation is not None:
        raw, held = held_out(config.validation, raw, start.preprocess, spill=out)
    log_scale, bias = starting_scale(config.loss)
    spec, model = start.build(raw.captions if start.learns_words else (), log_scale=log_scale, bias=bias)
    spec = prepare(spec, model, config.tuning)
    if ranks.world_size > 1:
        rest_unused(model, spec.preprocess, spec.text)
    locks = Locks(model, config.tuning, steps=run.steps, ranks=ranks)
    lineage = Lineage(
        method=METHOD,
        config_sha256=config.digest(),
        data_sha256=raw.digest(),
        parent_space_id=_parent_space(start, mined),
        packages=versions(PACKAGES),
    )
    identity = RunIdentity(METHOD, lineage.config_sha256, sources_digest(config, lineage.data_sha256, held))
    first_step = read_state(out / STATE_FILE, identity, ranks=ranks.world_size) if resume else 0
    method = _method(config, spec, model)
    known = known_features(config.tuning, augmented=config.augment is not None)
    if known.images or known.texts:
        method.towers.to(device_of(ranks))
    measures = None
    if held is not None and config.validation is not None:
        measures = measures_on(held, config.validation, spec, method.towers, known)
    batches, pairs, table = _batches(
        config, raw, spec, mined, first_step, ranks, lambda pairs: with_features(pairs, method.towers, known)
    )
    method.augmenter = train_views(config.augment, spec.preprocess, run.seed, ranks)
    if ranks.world_size > 1:
        share_batch_norm(method)
    say(
        opening_line(
            METHOD,
            trained_on=raw.told(),
            samples=None if pairs is None else len(pairs),
            steps=run.steps,
            batch_size=run.batch_size,
            precision=precision_of(run.precision),
            start=first_step,
            threads=run.threads,
            ranks=ranks,
        )
    )
    validation = ending = None
    if measures is not None and config.validation is not None:
        validation = measures.validation(config.validation.every)
        ending = measures.ending(method, config.validation)
    prepared = PreparedClip(
        spec,
        method,
        locks,
        batches,
        raw,
        pairs,
        table,
        held,
        validation,
        ending,
        lineage,
        identity,
        first_step,
        start.step,
    )
    if ranks.is_first:
        _write_tables(prepared, config, out, resume=resume)
    return prepared


def _method(config: TrainConfig, spec: DualEncoderSpec, model: torch.nn.Module) -> Clip:
    run = config.train
    method = Clip(
        DualEncoder(model, spec.preprocess.mean, spec.preprocess.std),
        pair_loss_of(config.loss),
        learning_rate=run.learning_rate,
        weight_decay=run.weight_decay,
        schedule=Schedule(run.steps, min(run.warmup_steps, run.steps)),
        hard_weight=1.0 if config.hard_negatives is None else config.hard_negatives.weight,
        chunk_size=run.chunk_size,
        ema_decay=run.ema_decay,
    )
    method.rates = learning_rates(model, config.tuning)
    if run.compile:
        method.compile_towers()
    return method


def _write_tables(run: PreparedClip, config: TrainConfig, out: Path, *, resume: bool) -> None:
    """The records of a new run; of one that goes on, the tables without what came after its state."""
    if resume:
        cut_tables(out, run.first_step)
        return
    write_records(out, config=config.model_dump(mode="json"), data=_record(run))


def _record(run: PreparedClip) -> dict[str, Any]:
    held_out = {} if run.held is None else {"held_out": run.held.described()}
    sha256 = run.lineage.data_sha256
    if isinstance(run.raw, StreamSource) or run.pairs is None:
        return {"sha256": sha256, "shards": run.raw.shards if isinstance(run.raw, StreamSource) else [], **held_out}
    return {
        "sha256": sha256,
        "pairs": len(run.pairs),
        "pictures": len(set(run.raw.image_digests)),
        "truncated_captions": run.pairs.truncated,
        "unreadable": run.raw.unreadable,
        "unknown_mined_rows": 0 if run.mined is None else run.mined.unknown_rows,
        **held_out,
    }


def _parent_space(start: Scratch | Parent, mined: MinedNegatives | None) -> str:
    """Of the vectors that the run started from, where it started from a checkpoint and that is known."""
    if not isinstance(start, Parent):
        return ""
    return start.space_id or ("" if mined is None else mined.space_id)


def _read(config: TrainConfig, preprocess: PreprocessSpec, out: Path, ranks: Ranks) -> RawPairs | StreamSource:
    data = config.data
    if not isinstance(data, ShardsData) or not data.streaming:
        return load_pairs(data, preprocess, spill=out)
    return StreamSource(data, preprocess, seed=config.train.seed, out=out, ranks=ranks)


def _batches(
    config: TrainConfig,
    raw: RawPairs | StreamSource,
    spec: DualEncoderSpec,
    mined: MinedNegatives | None,
    start: int,
    ranks: Ranks,
    ready: Callable[[Pairs], Pairs],
) -> tuple[PairBatches | StreamedPairs, Pairs | None, MinedTable | None]:
    """The batches from number `start` on, and what they are cut from where that is all in sight."""
    if isinstance(raw, StreamSource):
        return raw.batches(spec.tokenizer_json, spec.text, config.train.batch_size, start=start), None, None
    pairs = ready(tokenise(raw, spec.tokenizer_json, spec.text))
    table = None if mined is None else tie(mined, pairs)
    batches = PairBatches(
        pairs,
        config.train.batch_size,
        config.train.seed,
        mined=table,
        share=hard_share_of(config.hard_negatives, config.train.steps),
        start=start,
        rank=ranks.rank,
        world_size=ranks.world_size,
        balance=balance_power(config.data),
    )
    return batches, pairs, table
