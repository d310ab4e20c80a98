"""The arrows between the rooms point downward, and serving never loads a training framework."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TRAINING_FRAMEWORKS = {
    *("torch", "torchvision", "open_clip", "timm", "pytorch_lightning", "lightning"),
    *("transformers", "sentencepiece", "safetensors", "matplotlib", "sklearn"),
}

# What all rooms may import: it imports none of them.
SHARED = {"printable"}

# Room -> rooms it may import. `v1` is the generated wire contract.
ALLOWED = {
    "protos": set(),
    "encoders": set(),
    "index": set(),
    "server": {"v1", "encoders", "index"},
    "training": {"encoders", "index", "client"},
    "client": {"v1"},
}


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            if module == "twinlens":
                yield from ((node.lineno, f"twinlens.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def _sources(room: str) -> list[Path]:
    return [p for p in sorted((ROOT / room).rglob("*.py")) if not p.name.endswith(("_pb2.py", "_pb2_grpc.py"))]


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    wrong = []
    for path in _sources(room):
        for line, module in _imports(path):
            parts = module.split(".")
            if parts[0] in ALLOWED:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {module} (say twinlens.{module})")
            if parts[0] == "twinlens" and parts[1] not in {*ALLOWED[room], room, *SHARED}:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("room", ["encoders", "index", "server", "client"])
def test_a_serving_room_never_names_a_training_framework(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in _sources(room)
        for line, module in _imports(path)
        if module.split(".")[0] in TRAINING_FRAMEWORKS
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("room", ["encoders", "index", "server", "client"])
def test_loading_every_module_of_a_serving_room_loads_no_training_framework(room: str) -> None:
    modules = [
        "twinlens." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in _sources(room)
    ]
    code = "\n".join(
        [
            "import importlib, sys",
            f"for name in {modules!r}: importlib.import_module(name)",
            f"loaded = sorted({TRAINING_FRAMEWORKS!r} & set(sys.modules))",
            "sys.exit('loaded ' + ', '.join(loaded) if loaded else 0)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_rooms_are_linked_relatively() -> None:
    for link in (ROOT / "src" / "twinlens").iterdir():
        if link.is_symlink():
            assert not link.readlink().is_absolute()
            assert link.resolve().is_dir()
