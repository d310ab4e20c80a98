"""The commands on bad input, wrong usage and things that are not there: one line and the right exit code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_runs import Ran
from twinlens.server.local import local_server


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ingest {tmp}/nowhere -c photos", "no such folder: {tmp}/nowhere"),
        ("ingest {tmp}/nowhere.jsonl -c photos", "no such file: {tmp}/nowhere.jsonl"),
        ("ingest {empty} -c photos", "no pictures in {empty}"),
        ("ingest {blank} -c photos", "no rows in {blank}"),
        ("ingest {pictures} -c Bad!", "collection id 'Bad!'"),
        ("label {tmp}/nowhere --labels a,b", "no such folder"),
        ("label {empty} --labels a,b", "no pictures in {empty}"),
        ("label {pictures} --labels-file {tmp}/nowhere.txt", "no such file"),
        ("label {pictures} --labels-file {pictures}/red.png", "not UTF-8"),
        ("search red -c nowhere", "no collection nowhere"),
        ("search  -c photos", "the text has no characters"),
        ("search --item nobody -c photos", "nobody"),
        ("search --image {tmp}/nowhere.png -c photos", "cannot read"),
        ("search --image {pictures}/sub/broken.png -c photos", "not a picture"),
        ("search red -c photos --save-sheet {tmp}/nowhere/x.png", "no such folder"),
        ("collections show nowhere", "no collection nowhere"),
        ("collections get photos nobody", "nobody"),
    ],
)
def test_bad_input_ends_in_one_line(
    run: Callable[..., Ran], local: tuple[object, ...], pictures: Path, tmp_path: Path, command: str, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no picture")
    (tmp_path / "blank.jsonl").write_text("\n")
    places = {
        "tmp": tmp_path,
        "empty": tmp_path / "empty",
        "blank": tmp_path / "blank.jsonl",
        "pictures": pictures,
    }
    run("collections", "create", "photos", *local)
    line = run(*(part.format(**places) for part in command.split(" ")), *local).failed()
    assert said.format(**places) in line


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("search red -c photos -k 0", "--top-k"),
        ("search red -c photos --top-k -3", "--top-k"),
        ("search -c photos", "nothing to look for"),
        ("search red", "--collection"),
        ("search red -c photos --modality sound", "'--modality': 'sound' is not one of 'image', 'text'"),
        ("search red -c photos --save-sheet sheet.doc", ".png"),
        ("label pictures", "--labels"),
        ("label pictures --labels a --labels-file b", "--labels-file"),
        ("label pictures --labels ,,", "no labels"),
        ("label pictures --labels a --out labels.xlsx", ".parquet"),
        ("label pictures --labels a --top-k -1", "--top-k"),
        ("collections list --server a:1", "exclude each other"),
        ("collections nothing", "No such command"),
        ("ingest", "SOURCE"),
    ],
)
def test_wrong_usage_ends_in_one_line_and_code_2(
    run: Callable[..., Ran], local: tuple[object, ...], command: str, said: str
) -> None:
    options = () if command.startswith("collections nothing") else local
    assert said in run(*command.split(), *options).failed(2)


def test_naming_no_server_is_wrong_usage(run: Callable[..., Ran]) -> None:
    assert "TWINLENS_SERVER" in run("search", "red", "-c", "photos").failed(2)


def test_nothing_that_can_be_stored_is_a_failure_and_each_is_listed(
    run: Callable[..., Ran], local: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.png").write_bytes(b"broken")
    stored = run("ingest", tmp_path / "broken", "-c", "photos", *local)
    assert (stored.code, stored.out) == (1, "")
    assert len(stored.err.splitlines()) == 2
    labelled = run("label", tmp_path / "broken", "--labels", "a", "--out", tmp_path / "l.csv", *local)
    assert (labelled.code, labelled.out) == (1, "")
    assert not (tmp_path / "l.csv").exists()


def test_a_server_that_is_not_there_is_reported_in_one_line(run: Callable[..., Ran], pictures: Path) -> None:
    server = ("--server", "127.0.0.1:1")
    for command in (
        ("search", "red", "-c", "photos"),
        ("label", pictures, "--labels", "a"),
        ("ingest", pictures, "-c", "photos"),
        ("collections", "list"),
    ):
        assert "no server answers at 127.0.0.1:1" in run(*command, *server).failed()
    assert "HOST:PORT" in run("collections", "list", "--server", "nonsense").failed()


def test_a_data_folder_that_is_missing_is_made_by_ingest_only(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path
) -> None:
    missing = ("--local", tmp_path / "missing", "--bundle", tiny_bundle)
    assert "; `twinlens ingest` makes one" in run("search", "red", "-c", "photos", *missing).failed()
    assert not (tmp_path / "missing").exists()
    assert run("ingest", pictures, "-c", "photos", *missing).code == 0


def test_a_bundle_that_is_missing_or_corrupt_is_named_in_one_line(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path
) -> None:
    def ingest(bundle: Path) -> str:
        return run("ingest", pictures, "-c", "photos", "--local", tmp_path / "data", "--bundle", bundle).failed()

    assert f"no bundle at {tmp_path / 'nowhere'}: it does not exist" in ingest(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "bundle.json" in ingest(tmp_path / "empty")
    assert not (tmp_path / "data").exists()
    corrupt = tmp_path / "corrupt"
    corrupt.mkdir()
    for path in tiny_bundle.rglob("*"):
        if path.is_file():
            copy = corrupt / path.relative_to(tiny_bundle)
            copy.parent.mkdir(exist_ok=True, parents=True)
            copy.write_bytes(path.read_bytes())
    (corrupt / "image.onnx").write_bytes(b"corrupt")
    assert "image.onnx" in ingest(corrupt)


def test_a_bundle_is_named_by_its_name_too_and_a_model_says_which_versions_it_has(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("2", "10", ".11.half"):
        shutil.copytree(tiny_bundle, tmp_path / "models" / "tiny" / version)
    monkeypatch.chdir(tmp_path)
    label = ("label", pictures, "--labels", "red,blue", "--bundle")
    assert "red.png\tred\t" in run(*label, "tiny/2").out
    assert run("ingest", pictures, "-c", "photos", "--local", "data", "--bundle", "tiny").code == 0
    assert (tmp_path / "data" / "active.json").read_text().count("models/tiny/10") == 1
    held = run(*label, "models/tiny").failed()
    assert held.endswith("it has no bundle.json; it holds versions 2, 10: name one, as models/tiny/10")
    unknown = run(*label, "tiny/3").failed()
    assert "no bundle at tiny/3: there is no such folder, and as a name: no model tiny/3 in ./models" in unknown


@pytest.mark.parametrize(
    "command",
    [
        "ingest pictures -c photos",
        "search red -c photos",
        "collections create photos",
        "collections list",
        "label pictures --examples-collection photos --label-key kind",
        "mine photos --out mined.parquet",
    ],
)
def test_a_bundle_alone_keeps_nothing_and_finds_nothing(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, command: str
) -> None:
    parts = [str(pictures) if part == "pictures" else part for part in command.split()]
    line = run(*parts, "--bundle", tiny_bundle).failed(2)
    assert "--bundle goes with --local DIR, the folder that keeps the collections" in line


def test_a_data_folder_that_is_in_use_is_reported_in_one_line(
    run: Callable[..., Ran], tiny_bundle: Path, tmp_path: Path
) -> None:
    with local_server(tmp_path / "data", tiny_bundle):
        assert run("collections", "list", "--local", tmp_path / "data").failed()


def test_an_ingest_that_stores_nothing_leaves_no_collection(
    run: Callable[..., Ran], where: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    assert run("ingest", tmp_path / "broken.png", "--collection", "walls", *where).code == 1
    assert run("collections", "list", *where, "--json").json == {"collections": []}
