from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinlens.__main__ import main
from twinlens.client import Client, NewItem
from twinlens.server.local import local_server
from twinlens.training.data.scenes import generate
from twinlens.training.mining.manifest import read_manifest


@pytest.fixture
def folder(tmp_path: Path, tiny_bundle: Path) -> Path:
    data = tmp_path / "data"
    with local_server(data, tiny_bundle) as target, Client(target) as client:
        client.create_collection("scenes")
        items = [NewItem(scene.png(), scene.caption, scene.id) for scene in generate(12, seed=1, size=32)]
        assert client.upsert("scenes", items).stored == 12
        client.create_collection("bare")
        client.upsert("bare", [NewItem(item.image, id=item.id) for item in items])
    return data


def test_the_command_mines_a_live_collection(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mined.parquet"
    options = ["--top-k", "12", "--per-anchor", "2", "--margin", "-2", "--near-duplicate", "2", "--json"]
    assert main(["mine", "scenes", "--local", str(folder), "--out", str(out), *options]) == 0
    told = capsys.readouterr()
    assert told.err.strip().splitlines()[-1] == "mining: 24/24"
    report = json.loads(told.out)
    mined = read_manifest(out)
    assert report["rows"] == len(mined) == 2 * 12 * 2
    assert report["space_id"] == mined.space_id
    for kind in ("text", "image"):
        counts = report["kinds"][kind]
        assert counts["candidates"] == 144 == sum(counts["dropped"].values()) + counts["left"] + counts["taken"]
    assert all(anchor != negative for anchor, negative in zip(mined.anchor_ids, mined.negative_ids, strict=True))
    captions = {scene.id: scene.caption for scene in generate(12, seed=1, size=32)}
    assert set(mined.anchor_ids) == set(captions)


def test_the_report_is_a_table_unless_json_is_asked_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mine", "scenes", "--local", str(folder), "--out", str(tmp_path / "m.parquet"), "--kind", "text"]) == 0
    shown = capsys.readouterr().out
    assert "wrong captions" in shown
    assert "taken" in shown
    assert "wrong pictures" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bare"], "bare has 0 item(s) with a caption"),
        (["nowhere"], "nowhere"),
        (["scenes", "--kind", "sound"], "--kind must be text, image or both, not 'sound'"),
        (["scenes", "--rank-min", "5", "--rank-max", "3"], "rank window"),
        (["scenes", "--group-key", "photo"], "no item of scenes has 'photo' in its metadata"),
    ],
)
def test_mistakes_end_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    out = tmp_path / "m.parquet"
    assert main(["mine", *arguments, "--local", str(folder), "--out", str(out)]) == 1
    told = capsys.readouterr().err.strip().splitlines()
    assert message in told[-1]
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "message"), [("no/m.parquet", "no such folder"), ("m.csv", "FILE.parquet, not m.csv")]
)
def test_an_output_that_cannot_be_is_told_before_mining(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    assert main(["mine", "scenes", "--local", str(folder), "--out", str(tmp_path / name)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
