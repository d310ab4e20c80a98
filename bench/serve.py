"""The server under load: pictures, texts and searches a second, beside a loop without a server and beside infinity-emb.

    python bench/serve.py [--parts …] [--variants cpu:fp32,openvino:bf16] [--infinity PYTHON] [--json FILE] [--docs]

About a quarter of an hour on a machine that does nothing else. The load comes from a process of its own, no two calls
bring the same bytes. The model has the size of CLIP's ViT-B/32; its random weights are as fast as any. Pictures are
measured in every variant, the rest as `serve --tune` chooses. infinity-emb serves the same architecture where an
environment with it is named (--infinity, or TWINLENS_BENCH_INFINITY): docs/load.md tells how to make one. `--docs`
writes the tables into that page. `--seconds 4` is a quick look.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measured_page import write_between_marks  # noqa: E402
from bench.serving import parts  # noqa: E402
from bench.serving.bundles import cache_folder, starter, vit_b_32  # noqa: E402
from bench.serving.collection import fill  # noqa: E402
from bench.serving.infinity_server import clip_folder  # noqa: E402
from bench.serving.parts import Plan, say  # noqa: E402
from bench.serving.photo_files import MANY_SIZES, write_photos  # noqa: E402
from bench.serving.sheets import sheets  # noqa: E402
from bench.serving.twinlens_server import TUNED, Running, Variant, twinlens_server  # noqa: E402
from twinlens.encoders.bundle import read_manifest  # noqa: E402
from twinlens.encoders.cpus import allowed_cpus, cpu_model  # noqa: E402
from twinlens.encoders.runtime import available_precisions, available_providers  # noqa: E402

PARTS = ("images", "infinity", "texts", "searches", "overload", "poison", "soak", "start")
PAGE = ROOT / "docs" / "load.md"
_FP32 = Variant("cpu", "fp32")


def main() -> int:
    """Returns 0 if everything could be measured."""
    options = _options()
    figures: dict[str, Any] = {
        "machine": cpu_model(),
        "cpus": allowed_cpus(),
        "seconds": options.seconds,
        "image": {},
        "bare": {},
    }
    failed: list[str] = []

    def keep() -> None:
        if options.json is not None:
            options.json.write_text(json.dumps(figures, indent=2) + "\n")

    @contextmanager
    def part(name: str) -> Iterator[None]:
        """A part that fails leaves the others their turn."""
        try:
            yield
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            say(f"{name} is left out: {error}")
            failed.append(name)
        keep()

    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        plan = _plan(options, Path(scratch))
        bundle = options.bundle or vit_b_32(quantize=options.quantize)
        variants = options.variants or _variants(bundle)
        for variant in variants if "images" in options.parts else []:
            with part(f"pictures, {variant.name}"):
                figures["bare"][variant.name], figures["image"][variant.name] = _images(bundle, variant, plan)
        if "infinity" in options.parts and options.infinity is not None:
            with part("infinity"):
                model = clip_folder(options.infinity, cache_folder() / "infinity-clip-vit-b-32", bundle)
                figures["infinity"] = parts.infinity(options.infinity, model, plan)
                figures["infinity"]["version"] = _version(options.infinity)
        served = options.served
        figures["served"] = served.name
        if set(options.parts) & {"texts", "searches", "overload", "poison", "soak"}:
            with part("the loaded server"), twinlens_server(plan.scratch / "loaded", bundle, served) as server:
                for name in _loaded(server, served, figures, options, plan):
                    say(f"{name} is done")
                    keep()
        if "start" in options.parts:
            figures["start"] = {}
            for name, variant in (("starter", _FP32), ("ViT-B/32", variants[-1])):
                with part(f"start of {name}"):
                    folder = starter() if name == "starter" else bundle
                    figures["start"][name] = parts.cold_start(folder, variant, plan)
    for sheet in sheets(figures):
        sheet.show()
    if options.docs:
        head = f"{figures['machine']}, {figures['cpus']} CPUs, {options.seconds:g} s each:"
        write_between_marks(
            PAGE, "bench/serve.py", "\n\n".join([head, *(sheet.markdown() for sheet in sheets(figures))])
        )
    return 1 if failed else 0


def _images(bundle: Path, variant: Variant, plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """The server between two runs of the bare loop, so that both feel alike what else the machine does."""
    before = parts.bare_loop(bundle, variant, plan)
    with twinlens_server(plan.scratch / f"images-{variant.provider}-{variant.precision}", bundle, variant) as server:
        of_server = parts.by_callers(server, "image", plan, photos=str(plan.photos))
    return parts.of_bare(before, parts.bare_loop(bundle, variant, plan)), of_server


def _loaded(
    server: Running, served: Variant, figures: dict[str, Any], options: argparse.Namespace, plan: Plan
) -> Iterator[str]:
    """What needs one server with a full collection; yields the name of each part behind it."""
    if set(options.parts) & {"searches", "soak"}:
        figures["collection"] = fill(server.address, options.rows, _made(plan.scratch / "vectors"))
        yield "filling"
    if "texts" in options.parts:
        figures["text"] = parts.by_callers(server, "text", plan)
        yield "texts"
    if "searches" in options.parts:
        figures["search"] = parts.by_callers(server, "search", plan)
        figures["steady"] = parts.steady_search(server, figures["search"][str(parts.MOST_CALLERS)]["ok_per_s"], plan)
        yield "searches"
    if set(options.parts) & {"overload", "poison"} and served.name not in figures["image"]:
        figures["image"][served.name] = parts.by_callers(server, "image", plan, photos=str(plan.photos))
        yield "pictures"
    if "overload" in options.parts:
        at_capacity = figures["image"][served.name][str(parts.MOST_CALLERS)]
        figures["overload"] = parts.overload(server, at_capacity, plan)
        yield "overload"
    if "poison" in options.parts:
        figures["poison"] = parts.poison(server, plan)
        yield "poison"
    if "soak" in options.parts:
        figures["soak"] = parts.soak(server, options.soak_minutes, plan)
        yield "soak"


def _plan(options: argparse.Namespace, scratch: Path) -> Plan:
    plan = Plan(options.seconds, options.warm, scratch / "photos", scratch / "many-sizes", scratch)
    say("drawing pictures")
    write_photos(plan.photos, options.photos)
    write_photos(plan.many_sizes, max(14, options.photos // 4), MANY_SIZES, seed=1)
    return plan


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _version(python: Path) -> str:
    code = "from importlib.metadata import version as v; print(v('infinity-emb'), 'on torch', v('torch'))"
    return subprocess.run([str(python), "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _variants(bundle: Path) -> list[Variant]:
    """What is compared where nothing is said: fp32 in ONNX Runtime, bf16 where the processor has it, int8 if made."""
    found = [_FP32]
    openvino = "openvino" in available_providers()
    if openvino and "bf16" in available_precisions("openvino"):
        found.append(Variant("openvino", "bf16"))
    image = read_manifest(bundle).image
    if image is not None and "int8" in image.files.by_precision():
        found.append(Variant("openvino" if openvino else "cpu", "int8"))
    return found


def _known_infinity() -> Path | None:
    """Named by the environment, or where docs/load.md puts it."""
    if named := os.environ.get("TWINLENS_BENCH_INFINITY"):
        return Path(named)
    usual = cache_folder() / "infinity" / "bin" / "python"
    return usual if usual.is_file() else None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    variants = "of the pictures, PROVIDER:PRECISION,…; default: fp32, and bf16 and int8 where they are to be had"
    parser.add_argument(
        "--variants", type=lambda text: [Variant.parse(each) for each in text.split(",")], help=variants
    )
    parser.add_argument("--served", type=Variant.parse, default=TUNED, help="all but the pictures; default: tuned")
    parser.add_argument("--bundle", type=Path, help="another model, with both towers")
    parser.add_argument("--quantize", action="store_true", help="first make int8 files, once: some minutes")
    parser.add_argument("--infinity", type=Path, metavar="PYTHON", help="of an environment with infinity-emb")
    parser.add_argument("--rows", type=int, default=100_000, help="of the collection that is searched")
    parser.add_argument("--seconds", type=float, default=12.0, help="of one measurement")
    parser.add_argument("--warm", type=float, default=5.0, help="seconds before each")
    parser.add_argument("--photos", type=int, default=256, help="how many different ones")
    parser.add_argument("--soak-minutes", type=float, default=2.0, help="30 for a real one")
    parser.add_argument("--folder", type=Path, help="where the files go meanwhile")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--docs", action="store_true", help=f"write the tables into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {min(unknown)!r}; there are: {', '.join(PARTS)}")
    if options.infinity is None:
        options.infinity = _known_infinity()
    if options.infinity is not None and not options.infinity.is_file():
        parser.error(f"there is no {options.infinity}: name the python of an environment with infinity-emb")
    if options.infinity is None and "infinity" in options.parts:
        say("infinity: no environment is named, left out")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
