"""Making one reduced file of a tower: written, judged by the gate, measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from twinlens.encoders.encoder import tower_files
from twinlens.encoders.manifest import Manifest, Precision
from twinlens.encoders.runtime import Tower, TowerSession, open_tower
from twinlens.encoders.tokenise import TokenisedText, collate
from twinlens.training.export.variants.gate import Judgement
from twinlens.training.export.variants.half import loud_nodes, write_fp16
from twinlens.training.export.variants.judge import Judge
from twinlens.training.export.variants.observe import Feed
from twinlens.training.export.variants.prepare import Prepared, prepare
from twinlens.training.export.variants.report import Outcome
from twinlens.training.export.variants.samples import Samples, by_length
from twinlens.training.export.variants.search import LEAST_SHARE, search
from twinlens.training.export.variants.sensitivity import most_sensitive_first
from twinlens.training.export.variants.speed import speedups
from twinlens.training.export.variants.static_qdq import write_int8
from twinlens.training.export.variants.tower_graph import TowerGraph, save
from twinlens.training.export.variants.watch import Watch, unwatched

REDUCED: tuple[Precision, ...] = ("int8", "fp16")
_PIXELS_A_BATCH = 8


class Maker:
    """Makes and judges the files of one bundle, in a scratch folder."""

    def __init__(
        self,
        manifest: Manifest,
        bundle: Path,
        samples: Samples,
        scratch: Path,
        min_speedup: float,
        say: Callable[[str], object],
        watch: Watch = unwatched,
    ) -> None:
        self.towers: list[Tower] = list(tower_files(manifest))
        self._manifest = manifest
        self._bundle = bundle
        self._samples = samples
        self._scratch = scratch
        self._min_speedup = min_speedup
        self._say = say
        self._watch = watch
        say("embedding what judges with the fp32 towers")
        self._judge = Judge(manifest, bundle, samples, watch)

    def make(self, tower: Tower, precision: Precision) -> Outcome:
        """Makes one file, judges it and measures it."""
        graph = TowerGraph.load(self._bundle / tower_files(self._manifest)[tower].fp32)
        return self._int8(tower, graph) if precision == "int8" else self._fp16(tower, graph)

    def together(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Judges reduced towers of one precision beside each other; gives up the slower where only one can stay."""
        for precision in REDUCED:
            both = [outcome for outcome in outcomes if outcome.precision == precision and not outcome.refused]
            if len(both) < 2:
                continue
            self._say(f"judging both {precision} towers together")
            judged = self._judge({outcome.tower: self._session(outcome.tower, precision) for outcome in both})
            if judged.passed:
                continue
            slower = min(both, key=lambda outcome: outcome.speedup)
            refused = dataclasses.replace(slower, refused=f"beside the other {precision} tower: {judged.problems[0]}")
            outcomes = [refused if outcome is slower else outcome for outcome in outcomes]
        return outcomes

    def _int8(self, tower: Tower, graph: TowerGraph) -> Outcome:
        self._say(f"{tower} int8: observing the tower and rounding its weights")
        prepared = prepare(graph, lambda: self._feeds(tower), self._watch)
        names = frozenset(layer.name for layer in prepared.layers)
        if prepared.share(names) < LEAST_SHARE:
            return Outcome(tower, "int8", Judgement(1.0, 1.0, 1), refused="it has too little that int8 could compute")

        def attempt(kept: frozenset[str]) -> Judgement:
            save(write_int8(prepared, kept), self._path(tower, "int8"))
            judged = self._judge({tower: self._session(tower, "int8")})
            self._say(f"{tower} int8, {len(kept)} nodes in fp32: {'; '.join(judged.problems) or 'passes'}")
            return judged

        trial = search(
            attempt,
            lambda: self._ranked(tower, prepared),
            lambda kept: prepared.share(names - kept),
        )
        share = prepared.share(names.difference(trial.kept))
        made = Outcome(tower, "int8", trial.judgement, trial.kept, share)
        if not trial.judgement.passed:
            return dataclasses.replace(
                made, refused=f"with {len(trial.kept)} nodes in fp32, {trial.judgement.problems[0]}"
            )
        save(write_int8(prepared, trial.kept), self._path(tower, "int8"))
        if self._min_speedup > 0:
            self._say(f"{tower} int8: measuring its speed")
            found = speedups(self._judge.fp32[tower], self._session(tower, "int8"), self._ordinary_batch(tower))
            made = dataclasses.replace(made, speedups=found)
            if made.speedup < self._min_speedup:
                slow = f"it runs ×{made.speedup:.2f} as fast as fp32, at least ×{self._min_speedup} is wanted"
                made = dataclasses.replace(made, refused=slow)
        return made

    def _fp16(self, tower: Tower, graph: TowerGraph) -> Outcome:
        self._say(f"{tower} fp16: looking for values that half precision cannot hold")
        kept = loud_nodes(graph, self._feeds(tower))
        save(write_fp16(graph, kept), self._path(tower, "fp16"))
        judged = self._judge({tower: self._session(tower, "fp16")})
        refused = "" if judged.passed else judged.problems[0]
        return Outcome(tower, "fp16", judged, tuple(kept), refused=refused)

    def _ranked(self, tower: Tower, prepared: Prepared) -> list[str]:
        self._say(f"{tower} int8: ranking {len(prepared.layers)} nodes by how much each alone changes the vectors")
        few = _PIXELS_A_BATCH if tower == "image" else None
        feed = {name: value[:few] for name, value in self._ordinary_batch(tower).items()}
        return most_sensitive_first(prepared, feed, self._watch)

    def _feeds(self, tower: Tower) -> Iterator[Feed]:
        starts = range(0, len(self._samples.calibration_pixels), _PIXELS_A_BATCH)
        texts = list(by_length(self._samples.calibration_texts))
        with self._watch("observing", len(starts) if tower == "image" else len(texts)) as progress:
            if tower == "image":
                for start in starts:
                    yield {"pixels": self._samples.calibration_pixels[start : start + _PIXELS_A_BATCH]}
                    progress.advance()
            else:
                for batch in texts:
                    yield self._text_feed(batch)
                    progress.advance()

    def _text_feed(self, batch: Sequence[TokenisedText]) -> Feed:
        assert self._manifest.text is not None  # noqa: S101 - the tower is there
        ids, mask = collate(batch, self._manifest.text.text)
        return (
            {"input_ids": ids, "attention_mask": mask}
            if self._manifest.text.text.attention_mask
            else {"input_ids": ids}
        )

    def _ordinary_batch(self, tower: Tower) -> Feed:
        """What speed is measured on and layers are ranked by: items that calibrate, texts of middle length."""
        if tower == "image":
            return {"pixels": self._samples.calibration_pixels[:32]}
        texts = sorted(self._samples.calibration_texts, key=lambda tokens: len(tokens.ids))
        middle = len(texts) // 2
        return self._text_feed(texts[max(0, middle - 16) : middle + 16])

    def _path(self, tower: Tower, precision: Precision) -> Path:
        return self._scratch / f"{tower}.{precision}.onnx"

    def _session(self, tower: Tower, precision: Precision) -> TowerSession:
        return open_tower(self._path(tower, precision), provider="cpu")
