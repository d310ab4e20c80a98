"""`make demo-loop`: the whole loop once, in small, on drawn scenes, through a real server.

Train, export, serve, search, mine, train on with what was mined, export, re-index, serve again. The training that goes
on is run twice, with and without the mined negatives, so the table tells what mining brought and what more steps did.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from twinlens.client import Client
from twinlens.client.contact_sheet import contact_sheet
from twinlens.training.config import TrainConfig
from twinlens.training.data.scenes import KINDS, SIBLINGS, Scene, SceneStyle, generate, write_scenes
from twinlens.training.demo.failed import DemoFailed
from twinlens.training.demo.loop_measure import Measured, measure_served, measure_vectors, store
from twinlens.training.demo.loop_tables import Row, results_table
from twinlens.training.demo.own_folder import make_anew
from twinlens.training.demo.served import served
from twinlens.training.interruption import RunInterrupted
from twinlens.training.mining.command import report_table
from twinlens.training.mining.manifest import write_manifest
from twinlens.training.mining.mine import MineOptions, mine
from twinlens.training.progress import lines_or_bar
from twinlens.training.sections.data import CaptionsData
from twinlens.training.sections.hard_negatives import HardNegativesConfig
from twinlens.training.sections.model import ModelConfig
from twinlens.training.sections.run import RunConfig

TRAINING, HELD_OUT = "scenes-train", "scenes-test"
_MARK = ".twinlens-demo-loop"
_SIZE = 64
_TOWERS: dict[str, Any] = {
    "embed_dim": 128,
    "vision_cfg": {"image_size": _SIZE, "layers": [1, 1, 1, 1], "width": 16},
    "text_cfg": {"context_length": 24, "width": 128, "heads": 4, "layers": 2},
}
_SCRATCH = ModelConfig(name="scenes", config=_TOWERS, position_std=1.5)


@dataclass(frozen=True)
class LoopScript:
    """How much of everything.

    Attributes:
        scenes: Training scenes, mined from as well.
        held_out: Scenes that no training sees, of another seed.
        steps: Of the first training: short, or it unlearns to tell places apart, which nothing asks for yet.
        more_steps: Of the training that goes on.
        batch_size: Pairs a step.
        seed: Of scenes and training.
        style: How rich the scenes are.
    """

    scenes: int = 4000
    held_out: int = 256
    steps: int = 80
    more_steps: int = 350
    batch_size: int = 128
    seed: int = 0
    style: SceneStyle = SceneStyle(three_share=0.0, sibling_share=0.8, textures=("plain",))  # noqa: RUF009 - frozen

    @classmethod
    def of(cls, *, steps: int | None, scenes: int | None, seed: int) -> Self:
        """The default script with some of it changed."""
        changes: dict[str, Any] = {"seed": seed}
        if steps is not None:
            changes |= {"steps": steps, "more_steps": steps}
        if scenes is not None:
            changes["scenes"] = scenes
        return cls(**changes)


def run_loop(script: LoopScript, out: Path, console: Console | None = None) -> list[Row]:
    """Walks the loop and prints what it measures.

    Args:
        script: How much of everything.
        out: Where scenes, runs, bundles, collections and the contact sheet are left; an earlier run's is replaced.
        console: Where the tables go.

    Returns:
        The rows of the last table.

    Raises:
        DemoFailed: if `out` holds something else, or a stage fails.
    """
    console = console or Console()
    make_anew(out, _MARK)
    began = time.monotonic()
    loop = _Loop(script, out, console)
    rows = loop.walk()
    console.print(results_table(rows, script.held_out))
    console.print(f"Contact sheet, before and after mining: [bold]{out / 'contact_sheet.png'}[/bold]")
    console.print(f"The whole loop took {time.monotonic() - began:.0f} s.")
    return rows


class _Loop:
    def __init__(self, script: LoopScript, out: Path, console: Console) -> None:
        self._script = script
        self._out = out
        self._console = console
        self._data = out / "data"
        self._train = list(generate(script.scenes, 2 * script.seed + 1, _SIZE, style=script.style))
        self._test = list(generate(script.held_out, 2 * script.seed + 2, _SIZE, style=script.style))

    def walk(self) -> list[Row]:
        script, out = self._script, self._out
        with self._stage("drew and wrote the scenes"):
            write_scenes(out / "scenes", script.scenes, 2 * script.seed + 1, _SIZE, style=script.style)
        with self._stage("trained a small CLIP from scratch"):
            first = self._fit("1", steps=script.steps, model=_SCRATCH, learning_rate=1e-3)
        space_1 = self._export(first, "1")

        mined = out / "mined.parquet"
        with served(self._data, out / "models/scenes/1") as address, Client(address) as client:
            with self._stage(f"stored {len(self._train):,} + {len(self._test):,} scenes through the server"):
                store(client, TRAINING, self._train)
                store(client, HELD_OUT, self._test)
            with self._stage("searched and measured"):
                before = measure_served(client, HELD_OUT, self._test)
            with self._stage("mined hard negatives from the live index"):
                # No two scenes are copies of each other, and an encoder this young thinks all pictures alike.
                options = MineOptions(kinds=("text",), top_k=50, per_anchor=12, near_duplicate=None)
                negatives, report = mine(client, TRAINING, space_1, options)
                write_manifest(mined, negatives)
            self._console.print(report_table(report, f"{len(negatives):,} hard negatives in {mined}"))
            sheet = self._hits(client, "before")

        going_on = ModelConfig(name="scenes", from_checkpoint=first)
        hard = HardNegativesConfig(manifest=mined, texts_per_anchor=0, pairs_per_anchor=3)
        with self._stage("trained on without them (control)"):
            control = self._fit("2-control", steps=script.more_steps, model=going_on, learning_rate=1.5e-3)
        with self._stage("trained on with the mined negatives"):
            second = self._fit("2", steps=script.more_steps, model=going_on, learning_rate=1.5e-3, hard=hard)
        space_2 = self._export(second, "2")
        with self._stage("re-indexed both collections under the new space"):
            self._command("reindex", "--local", str(self._data), "--bundle", str(out / "models/scenes/2"))
        with served(self._data) as address, Client(address) as client:
            with self._stage("served the new pair, searched and measured"):
                after = measure_served(client, HELD_OUT, self._test)
                if client.get_collection(HELD_OUT).space_id != space_2:
                    raise DemoFailed("the collection is not in the new model's space")
            sheet += self._hits(client, "after")
        contact_sheet(sheet, columns=5, cell=128, font_size=11).save(out / "contact_sheet.png")
        more = f"+ {script.more_steps} steps"
        return [
            Row(f"{script.steps} steps", "served", space_1, before),
            Row(f"{more}, not mined", "in process", "", self._in_process(control)),
            Row(f"{more}, mined", "served", space_2, after),
        ]

    def _fit(
        self,
        run: str,
        *,
        steps: int,
        model: ModelConfig,
        learning_rate: float,
        hard: HardNegativesConfig | None = None,
    ) -> Path:
        from twinlens.training.train import train  # noqa: PLC0415 - torch takes seconds to load

        config = TrainConfig(
            data=CaptionsData(source="captions", path=self._out / "scenes/captions.jsonl"),
            model=model,
            train=RunConfig(
                steps=steps,
                batch_size=self._script.batch_size,
                learning_rate=learning_rate,
                warmup_steps=30,
                seed=self._script.seed,
                log_every=25,
            ),
            hard_negatives=hard,
        )
        with lines_or_bar(f"run {run}", steps) as progress:
            try:
                return train(config, self._out / "runs" / run, progress).checkpoint
            except RunInterrupted as ended:  # what it says of going on is no use: the walk begins anew
                signal.raise_signal(ended.signal)
                raise

    def _export(self, checkpoint: Path, version: str) -> str:
        from twinlens.training.export.checkpoint_bundle import export_checkpoint  # noqa: PLC0415

        with self._stage(f"exported bundle scenes/{version}"):
            manifest = export_checkpoint(checkpoint, self._out / "models/scenes" / version, "scenes", version)
        self._console.print(f"          its space: {manifest.space_id[:12]}")
        return manifest.space_id

    def _in_process(self, checkpoint: Path) -> Measured:
        import torch  # noqa: PLC0415

        from twinlens.training.checkpoint import load_checkpoint  # noqa: PLC0415
        from twinlens.training.data.pairs import from_scenes, tokenise  # noqa: PLC0415
        from twinlens.training.modules.dual_encoder import DualEncoder  # noqa: PLC0415

        spec, model, _ = load_checkpoint(checkpoint)
        towers = DualEncoder(model, spec.preprocess.mean, spec.preprocess.std).eval()

        def texts(captions: Sequence[str]) -> NDArray[np.float32]:
            from twinlens.encoders.tokenise import TextTokenizer, collate  # noqa: PLC0415

            tokenizer = TextTokenizer(spec.tokenizer_json.encode(), spec.text)
            ids, _ = collate([tokenizer(caption) for caption in captions], spec.text)
            vectors: NDArray[np.float32] = towers.texts(torch.from_numpy(ids)).numpy()
            return vectors

        with torch.inference_mode():
            pairs = tokenise(from_scenes(self._test), spec.tokenizer_json, spec.text)
            images = towers.images(torch.from_numpy(pairs.pixels_nhwc)).numpy()
            wrong = {kind: texts([scene.negatives[kind] for scene in self._test]) for kind in KINDS}
            return measure_vectors(images, texts([scene.caption for scene in self._test]), wrong)

    def _hits(self, client: Client, when: str) -> list[tuple[str, list[tuple[bytes, str]]]]:
        """The hits for the four captions of one family: the same words in four orders."""
        rows = []
        for scene in _family(self._test):
            hits = client.search(HELD_OUT, text=scene.caption, top_k=5)
            cells = [
                (
                    client.get_item(HELD_OUT, hit.id, include_image=True).image or b"",
                    f"{'RIGHT ' if hit.id == scene.id else ''}{hit.score:.2f}",
                )
                for hit in hits
            ]
            rows.append((f"{when}: {scene.caption}", cells))
        return rows

    def _command(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "twinlens", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise DemoFailed(f"twinlens {arguments[0]} failed: {' '.join(done.stderr.split()[-60:])}")

    @contextmanager
    def _stage(self, done: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._console.print(f"{time.monotonic() - began:6.1f} s  {done}")


def _family(scenes: Sequence[Scene]) -> Sequence[Scene]:
    """The first four scenes in a row that share all their words."""
    for start in range(0, len(scenes), SIBLINGS):
        family = scenes[start : start + SIBLINGS]
        if len({" ".join(sorted(scene.caption.split())) for scene in family}) == 1:
            return family
    return scenes[:SIBLINGS]
