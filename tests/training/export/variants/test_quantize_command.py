from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.variant_bundle import image_graph, publish_with, write_pictures
from twinlens.__main__ import main
from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.manifest import Manifest
from twinlens.training.export import checkpoint_bundle
from twinlens.training.export.errors import ExportError
from twinlens.training.export.variants import add
from twinlens.training.export.variants.options import VariantsAsked, with_variants


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small" / "1"
    publish_with(folder, image_graph(), None)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("photos"), 120)


def test_it_writes_a_new_version_and_says_what_passed(
    bundle: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "2"
    arguments = ["quantize", str(bundle), "--out", str(out), "--photos", str(photos), "--min-speedup", "0"]
    assert main([*arguments, "--precision", "int8,fp16"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("image int8 written: cosine mean 0.99")
    assert lines[1].startswith("image fp16 written: cosine mean 1.0000")
    space_id = read_manifest(bundle).space_id
    assert lines[2] == f"{out}: small/2, space {space_id[:12]} as before"
    assert "image int8, 0 nodes in fp32: passes" in captured.err
    assert "written:" not in captured.err, "said once"
    assert main(["models", "verify", str(out)]) == 0


def test_it_ends_with_1_and_writes_nothing_if_nothing_passes(
    bundle: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["quantize", str(bundle), "--out", str(out), "--photos", str(photos), "--min-speedup", "1000"]
    assert main([*arguments, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["path"] is None
    (file,) = report["files"]
    assert (file["tower"], file["precision"], file["written"]) == ("image", "int8", False)
    assert "as fast as fp32" in file["refused"]
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            [],
            "0 pictures are too few to calibrate on and to judge by: give at least 96 different ones (--photos)",
        ),
        (["--photos", "gone"], "gone is not there"),
        (["--precision", "int4"], "there is no variant 'int4': int8 and fp16 can be made"),
        (["--labels", "gone"], "gone is not there"),
        (["--texts", "gone.txt"], "cannot read gone.txt: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    arguments: list[str], line: str, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", str(bundle), "--out", str(tmp_path / "out"), *arguments]) != 0
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"twinlens: {line}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("named", ["small/1", "small", "ADDRESS/small/1", "ADDRESS/small"])
def test_a_bundle_is_named_as_everywhere(named: str, bundle: Path, photos: Path, tmp_path: Path) -> None:
    models = bundle.parent.parent
    which = named.replace("ADDRESS", models.as_uri())
    arguments = ["quantize", which, "--models", str(models), "--out", str(tmp_path / "2"), "--photos", str(photos)]
    assert main([*arguments, "--precision", "fp16"]) == 0
    assert read_manifest(tmp_path / "2").space_id == read_manifest(bundle).space_id


def test_a_name_that_is_not_in_the_repository_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", "gone/1", "--models", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("twinlens: ")
    assert "gone" in line


def test_a_folder_without_a_bundle_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "no bundle at" in capsys.readouterr().err


def test_an_export_with_variants_publishes_what_passes_and_says_so(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def export(checkpoint: Path, to: Path, *name_and_version: str | None, **_: object) -> Manifest:
        """Stands in for an export through torch, which takes long."""
        asked.extend((checkpoint.name, *name_and_version))
        return publish_with(to, image_graph(), None)

    monkeypatch.setattr(checkpoint_bundle, "export_checkpoint", export)
    out = tmp_path / "models" / "mine" / "2"
    arguments = ["export", str(tmp_path / "checkpoint.pt"), "--out", str(out), "--photos", str(photos)]
    assert main([*arguments, "--variants", "fp16"]) == 0
    assert asked == ["checkpoint.pt", "mine", "2"]
    assert capsys.readouterr().err.count("image fp16 written: cosine mean 1.0000") == 1
    manifest = read_manifest(out)
    assert manifest.image is not None
    assert set(manifest.image.files.by_precision()) == {"fp32", "fp16"}
    assert [path.name for path in out.parent.iterdir()] == ["2"]
    assert main([*arguments, "--variants", "fp16"]) == 1
    assert "is in use; bundles are immutable" in capsys.readouterr().err


def test_an_export_whose_variants_all_fail_still_gives_the_bundle(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = VariantsAsked("int8", [photos], None, None)
    manifest = with_variants(lambda to: publish_with(to, image_graph(hopeless=True), None), tmp_path / "1", asked)
    assert manifest.image is not None
    assert set(manifest.image.files.by_precision()) == {"fp32"}
    error = capsys.readouterr().err
    assert "image int8 NOT WRITTEN: with 1 nodes in fp32, worst cosine" in error
    assert "warning: no variant passed, the bundle has its fp32 files only" in error
    assert main(["models", "verify", str(tmp_path / "1")]) == 0


@pytest.mark.parametrize("command", ["starter", "pull", "export"])
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "0 pictures are too few to calibrate on and to judge by: give at least 96 different ones (--photos)"),
        (["--photos", "gone"], "gone is not there"),
        (["--photos", "PHOTOS", "--texts", "few.txt"], "2 texts are too few"),
        (["--photos", "PHOTOS", "--labels", "few"], "few has 4 labelled pictures of use, at least 64 are needed"),
    ],
)
def test_data_that_cannot_be_enough_is_refused_before_a_model_is_built(
    command: str,
    arguments: list[str],
    line: str,
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(*_: object, **__: object) -> Manifest:
        raise AssertionError

    for place in (
        "starter.build.build_starter",
        "pull.families.pull",
        "export.checkpoint_bundle.export_checkpoint",
    ):
        monkeypatch.setattr(f"twinlens.training.{place}", build)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.txt").write_text("one\ntwo")
    for name in ("cat", "dog"):
        write_pictures(tmp_path / "few" / name, 2)
    source = {"starter": [], "pull": ["ViT-B-32"], "export": ["checkpoint.pt"]}[command]
    given = [argument.replace("PHOTOS", str(photos)) for argument in arguments]
    assert main([command, *source, "--out", "models/x/1", "--variants", "int8", *given]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"twinlens: {line}")
    assert len(captured.err.splitlines()) == 1
    assert not (tmp_path / "models").exists()


def test_a_starter_that_is_there_already_gets_no_variants_and_says_so(
    photos: Path,
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twinlens.training.starter.build.existing_starter", read_manifest)
    out = tmp_path / "half \udcff" / "1"
    shutil.copytree(bundle, out)
    assert main(["starter", "--out", str(out), "--variants", "int8", "--photos", str(photos)]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("warning: no variants are made, ")
    assert "`twinlens quantize` makes some" in captured.err
    assert "has no checkpoint to train from; name a new folder for one" in captured.err
    assert r"half \udcff/1: already there, nothing to do" in captured.out


def test_a_model_that_may_have_no_image_tower_is_built_without_pictures(tmp_path: Path) -> None:
    publish = publish_with(tmp_path / "made", image_graph(), None)
    built: list[Path] = []

    def make(to: Path) -> Manifest:
        built.append(to)
        publish_with(to, image_graph(), None)
        return publish

    asked = VariantsAsked("int8", None, None, None)
    with_variants(make, tmp_path / "1", asked, perhaps_without_images=True)
    assert built, "nobody knows before whether pictures are needed"
    assert read_manifest(tmp_path / "1").space_id == publish.space_id


@pytest.mark.parametrize("error", [ExportError("a\x1b[2J.png is strange"), RuntimeError("deep down\nmore")])
def test_the_fp32_bundle_is_published_whatever_fails_in_making_variants(
    error: Exception, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(add, "add_variants", fail)
    asked = VariantsAsked("int8", [photos], None, None)
    manifest = with_variants(lambda to: publish_with(to, image_graph(), None), tmp_path / "1", asked)
    assert read_manifest(tmp_path / "1") == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    told = {"ExportError": r"a\x1b[2J.png is strange", "RuntimeError": "RuntimeError: deep down"}[type(error).__name__]
    line = f"warning: no variants, the bundle has its fp32 files only: {told}"
    assert capsys.readouterr().err.splitlines()[-1] == line


def test_pictures_that_nobody_can_read_leave_the_fp32_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "torn"
    folder.mkdir()
    for i in range(100):
        (folder / f"{i}.jpg").write_bytes(b"\xff\xd8\xff\xe0 torn")
    asked = VariantsAsked("int8", [folder], None, None)
    with_variants(lambda to: publish_with(to, image_graph(), None), tmp_path / "1", asked)
    assert "fp32 files only: 0 pictures that can be read are too few" in capsys.readouterr().err
    assert main(["models", "verify", str(tmp_path / "1")]) == 0
