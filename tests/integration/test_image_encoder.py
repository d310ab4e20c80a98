"""An image encoder from pictures alone, by commands only: trained, exported, searched with and labelled with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.drawn_pictures import write_classes
from twinlens.__main__ import main

pytestmark = pytest.mark.slow


def test_from_a_folder_of_pictures_to_search_labels_and_a_dual_encoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_classes(tmp_path / "photos", 16)
    write_classes(tmp_path / "shown", 3, seed=5)

    def twinlens(*arguments: str) -> str:
        assert main(list(arguments)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    small = {
        "augment.size": "32",
        "model.stem": "cifar_stride2",
        "model.arguments": "{layers = [1, 1, 1, 1], channels = [8, 16, 32, 64]}",
        "train.batch_size": "16",
        "train.steps": "30",
        "method.hidden": "64",
        "method.dim": "32",
    }
    settings = [part for key, value in small.items() for part in ("--set", f"{key}={value}")]
    result = json.loads(twinlens("train", "simclr", "--images", "photos", "--out", "run", *settings, "--json"))
    assert result["knn"] > 0.8  # the classes differ in tint and stripes
    twinlens("export", "run/checkpoint.pt", "--out", "models/simclr/1")

    store = ("--local", "data", "--bundle", "models/simclr/1")
    twinlens("ingest", "photos", "--collection", "photos", *store)
    found = json.loads(twinlens("search", "--image", "shown/jade/000.png", "-c", "photos", "-k", "5", *store, "--json"))
    assert [hit["id"].split("/")[0] for hit in found["hits"]].count("jade") >= 4
    assert main(["search", "something green", "-c", "photos", *store]) != 0
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    twinlens("label", "photos", "--examples", "shown", *store, "--out", "labels.jsonl")
    labels = [json.loads(line) for line in Path("labels.jsonl").read_text(encoding="utf-8").splitlines()]
    right = [row["id"].split("/")[0] == row["label"] for row in labels]
    assert (len(right), sum(right) / len(right) > 0.8) == (64, True)

    rows = [{"image": str(path), "caption": f"a {path.parent.name} picture"} for path in Path("photos").rglob("*.png")]
    Path("captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Path("clip.toml").write_text(
        '[data]\nsource = "captions"\npath = "captions.jsonl"\n[model]\nimage_checkpoint = "run/checkpoint.pt"\n'
        "[model.config]\nembed_dim = 32\ntext_cfg = { context_length = 16, width = 32, heads = 2, layers = 1 }\n"
        "[train]\nsteps = 5\nbatch_size = 16\n",
        encoding="utf-8",
    )
    twinlens("train", "clip", "clip.toml", "--out", "clip")
    twinlens("export", "clip/checkpoint.pt", "--out", "models/clip/1")
