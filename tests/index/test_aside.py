from __future__ import annotations

from pathlib import Path

import pytest

from twinlens.index import aside as module
from twinlens.index.aside import aside, clear_aside, take_place
from twinlens.index.durable import sync


def holding(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "file").write_text(text)
    return folder


def test_a_folder_takes_its_place_in_durable_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = holding(tmp_path / "photos", "old")
    made = holding(aside(folder), "new")
    steps: list[str] = []
    rename = Path.rename

    def short(path: Path) -> str:
        return "root" if path == tmp_path else "aside" if "-" in path.name else path.name

    def renamed(path: Path, target: Path) -> Path:
        steps.append(f"{short(path)} to {short(target)}")
        return rename(path, target)

    def synced(path: Path) -> None:
        steps.append(f"sync {short(path)}")
        sync(path)

    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(module, "sync", synced)
    take_place(made, folder, leave=lambda: steps.append("leave"))
    assert steps == [
        "sync aside",
        "aside to .restored.photos",
        "sync root",
        "leave",
        "photos to aside",
        ".restored.photos to photos",
        "sync root",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    assert (folder / "file").read_text() == "new"


def test_what_stands_aside_at_the_start_is_cleared_but_a_replacement_whose_place_is_free(tmp_path: Path) -> None:
    holding(tmp_path / "a", "old")
    holding(tmp_path / ".restored.a", "new")
    holding(tmp_path / ".restored.b", "new")
    holding(aside(tmp_path / "b"), "old")
    clear_aside(tmp_path)
    assert {path.name: (path / "file").read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "new"}
