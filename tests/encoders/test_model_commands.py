"""`models verify` and `models push`, and how bundles are named; `test_cli.py` has the rest of the commands."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import numpy_helper

from tests.support.forged_bundle import forge
from tests.support.object_store import object_store
from tests.support.small_bundle import build_small
from tests.support.tiny_bundle import TinyTowers, build_tiny_bundle, stage_tiny_bundle, tiny_draft
from twinlens.__main__ import main
from twinlens.encoders.errors import BundleError
from twinlens.encoders.find_bundle import find_bundle
from twinlens.encoders.manifest import Agreement, TowerFiles
from twinlens.encoders.publish import publish
from twinlens.encoders.repository import ModelRepository

_numbers = itertools.count()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    build_small(root / "1")
    return root / "1"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with object_store() as url:
        yield url


@pytest.fixture
def bundle(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "bundle"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return f"memory://commands/{next(_numbers)}"


def run(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def ok(capsys: Any, *arguments: object) -> str:
    code, out, err = run(capsys, *arguments)
    assert code == 0, err
    return out


def complaint(capsys: Any, *arguments: object) -> str:
    code, _, err = run(capsys, *arguments)
    assert code == 1
    (line,) = err.strip().splitlines()
    return str(line)


def with_int8(folder: Path, *, off_by: float = 0.0) -> Path:
    """A bundle whose image tower has an int8 file too: the same graph, with its weights changed a little."""
    stage_tiny_bundle(folder / "staging", TinyTowers())
    model = onnx.load(str(folder / "staging" / "image.onnx"))
    for tensor in model.graph.initializer:
        if tensor.name == "weight":
            values = numpy_helper.to_array(tensor).copy()
            values[0] += off_by
            tensor.CopyFrom(numpy_helper.from_array(values, "weight"))
    onnx.save(model, str(folder / "staging" / "image.int8.onnx"))
    draft = tiny_draft()
    assert draft.image is not None
    agreement = Agreement(mean_cosine=1.0, worst_cosine=1.0, items=8)
    files = TowerFiles(fp32="image.onnx", int8="image.int8.onnx", agreement={"int8": agreement})
    publish(replace(draft, image=draft.image.model_copy(update={"files": files})), folder / "staging", folder / "b")
    return folder / "b"


class TestVerify:
    def test_says_what_was_checked(self, capsys: Any, bundle: Path) -> None:
        said = ok(capsys, "models", "verify", bundle)
        assert "tiny/1 is sound: 5 files match their digests, weights beside the graphs in w.bin" in said
        facts = json.loads(ok(capsys, "models", "verify", bundle, "--json"))
        assert facts["sound"] is True
        assert (facts["schema_version"], facts["side_files"], len(facts["runs"])) == (1, ["w.bin"], 1)
        assert facts["worst_cosine"] == {"image": pytest.approx(1, abs=1e-4), "text": None}

    def test_every_precision_of_the_bundle_is_run(self, capsys: Any, tmp_path: Path) -> None:
        facts = json.loads(ok(capsys, "models", "verify", with_int8(tmp_path), "--json"))
        assert [each["precision"] for each in facts["runs"]] == [
            {"image": "fp32", "text": "fp32"},
            {"image": "int8", "text": "fp32"},
        ]

    def test_a_reduced_file_is_held_to_less_but_held(self, capsys: Any, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        a_little = with_int8(tmp_path / "a", off_by=0.2)
        assert ok(capsys, "models", "verify", a_little).count("worst cosine") == 2
        much = with_int8(tmp_path / "b", off_by=5.0)
        assert "parity: the image tower" in complaint(capsys, "models", "verify", much)
        assert ok(capsys, "models", "verify", much, "--precision", "fp32").count("worst cosine") == 1

    def test_a_precision_that_is_not_there(self, capsys: Any, bundle: Path) -> None:
        assert "no fp16 tower" in complaint(capsys, "models", "verify", bundle, "--precision", "fp16")

    @pytest.mark.parametrize(
        ("harm", "said"),
        [
            (lambda b: (b / "w.bin").unlink(), "w.bin is missing"),
            (lambda b: (b / "w.bin").write_bytes(b"?" * (b / "w.bin").stat().st_size), "w.bin has SHA-256"),
            (lambda b: (b / "bundle.json").write_text('{"name": "ti'), "is not JSON"),
            (lambda b: (b / "bundle.json").write_bytes(b"\xff\xfe{}"), "is not UTF-8"),
            (
                lambda b: forge(b, lambda m: m.update(schema_version=2)),
                "schema_version 2; this program reads 1: update",
            ),
            (lambda b: forge(b, lambda m: m.update(schema_version=0)), "this program reads 1: make the bundle anew"),
            (lambda b: forge(b, lambda m: m.update(flavour="new")), "flavour: Extra inputs are not permitted"),
            (lambda b: forge(b, lambda m: m["image"]["preprocess"].update(decode_contract=7)), "decode contract 7"),
            (lambda b: forge(b, lambda m: m["image"]["preprocess"].update(mean=[0, 0, 0])), "parity: the image tower"),
            (lambda b: shutil.rmtree(b / "parity"), "parity/"),
        ],
    )
    def test_what_is_wrong_is_one_line_a_code_and_json(
        self, capsys: Any, bundle: Path, harm: Callable[[Path], None], said: str
    ) -> None:
        harm(bundle)
        assert said in complaint(capsys, "models", "verify", bundle)
        code, out, _ = run(capsys, "models", "verify", bundle, "--json")
        facts = json.loads(out)
        assert (code, facts["sound"], facts["bundle"]) == (1, False, str(bundle))
        assert said in facts["problem"]

    def test_at_an_address(self, capsys: Any, small: Path, store: str) -> None:
        ModelRepository(store).push(small)
        assert "tiny/1 is sound" in ok(capsys, "models", "verify", f"{store}/tiny/1")
        assert "tiny/1 is sound" in ok(capsys, "models", "verify", "tiny", "--models", store)


class TestPush:
    @pytest.fixture
    def store(self, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return f"{s3}/{next(_numbers)}"

    @pytest.mark.parametrize("kind", ["s3", "folder"])
    def test_what_is_there_already_is_said_to_be(
        self, capsys: Any, small: Path, store: str, tmp_path: Path, kind: str
    ) -> None:
        to = store if kind == "s3" else str(tmp_path / "models")
        push = ("models", "push", small, to)
        assert ok(capsys, *push).endswith(f"is in {to}\n")
        assert ok(capsys, *push).endswith(f"is in {to} already\n")
        assert json.loads(ok(capsys, *push, "--json"))["already_there"] is True

    def test_what_was_missing_there_is_told(self, capsys: Any, small: Path, store: str) -> None:
        ok(capsys, "models", "push", small, store)
        ModelRepository(store)._fs.rm_file(f"{store}/tiny/1/image.onnx")
        size = (small / "image.onnx").stat().st_size
        assert ok(capsys, "models", "push", small, store).endswith(
            f"is in {store} already, {size:,} bytes were missing\n"
        )

    def test_over_a_damaged_copy_the_way_out_is_told(self, capsys: Any, small: Path, tmp_path: Path) -> None:
        ok(capsys, "models", "push", small, tmp_path)
        (tmp_path / "tiny" / "1" / "image.onnx").write_bytes(b"x")
        said = complaint(capsys, "models", "push", small, tmp_path)
        assert "a damaged copy already" in said
        assert said.endswith("; delete it, or choose another version")

    def test_over_something_else_on_a_store_the_way_out_is_told(self, capsys: Any, small: Path, store: str) -> None:
        ModelRepository(store)._fs.pipe_file(f"{store}/tiny/1/bundle.json", b"{")
        said = complaint(capsys, "models", "push", small, store)
        assert "something else already" in said
        assert said.endswith("; delete it, or choose another version")

    def test_not_into_memory_that_is_gone_at_the_end(self, capsys: Any, small: Path) -> None:
        assert "gone when it ends" in complaint(capsys, "models", "push", small, "memory://models")

    def test_from_a_folder(self, capsys: Any, small: Path, store: str) -> None:
        said = json.loads(ok(capsys, "models", "push", small, store, "--json"))
        assert (said["name"], said["version"], said["repository"]) == ("tiny", "1", store)
        assert said["bytes_sent"] > 1000
        assert json.loads(ok(capsys, "models", "push", small, store, "--json"))["bytes_sent"] == 0
        assert ok(capsys, "models", "list", "--models", store).startswith("tiny/1  space ")

    def test_shows_on_a_terminal_how_far_it_is(
        self, capsys: Any, small: Path, store: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        code, out, err = run(capsys, "models", "push", small, store)
        assert (code, out.count("\n")) == (0, 1)
        assert "pushing" in err
        assert "kB" in err

    def test_from_one_repository_to_another(self, capsys: Any, small: Path, store: str, tmp_path: Path) -> None:
        ok(capsys, "models", "push", small, store)
        assert f"is in {tmp_path / 'local'}" in ok(
            capsys, "models", "push", "tiny", tmp_path / "local", "--models", store
        )
        assert "tiny/1 is sound" in ok(capsys, "models", "verify", tmp_path / "local" / "tiny" / "1")

    def test_never_over_another(self, capsys: Any, small: Path, store: str, tmp_path: Path) -> None:
        build_small(tmp_path / "1", change=1.0)
        ok(capsys, "models", "push", small, store)
        assert "choose another version" in complaint(capsys, "models", "push", tmp_path / "1", store)

    def test_to_an_address_of_an_unknown_kind(self, capsys: Any, small: Path) -> None:
        assert "nonsense" in complaint(capsys, "models", "push", small, "nonsense://models")


class TestNaming:
    @pytest.fixture
    def filled(self, store: str, tmp_path: Path) -> str:
        for version in ("1", "2"):
            build_small(tmp_path / version, version=version, change=float(version))
            ModelRepository(store).push(tmp_path / version)
        return store

    @pytest.mark.parametrize(
        ("form", "version"), [("/tiny/1", "1"), ("/tiny/2/", "2"), ("/tiny", "2"), ("/tiny/", "2")]
    )
    def test_an_address_with_or_without_the_version(self, filled: str, form: str, version: str) -> None:
        assert json.loads((find_bundle(filled + form) / "bundle.json").read_text())["version"] == version

    @pytest.mark.parametrize("form", ["/tiny/9", "/nope", "/tiny/1/more", ""])
    def test_an_address_of_nothing_is_one_line(self, filled: str, form: str) -> None:
        with pytest.raises(BundleError, match=r"^no bundle at memory://[^\n]+$"):
            find_bundle(filled + form)

    @pytest.mark.parametrize("address", ["memory://x", "memory://"])
    def test_an_address_without_a_model_is_one_line(self, address: str) -> None:
        with pytest.raises(BundleError, match="names no bundle"):
            find_bundle(address)

    def test_a_folder_comes_before_a_name(self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.copytree(small, tmp_path / "tiny")
        monkeypatch.chdir(tmp_path)
        assert find_bundle("tiny", "/nowhere") == Path("tiny")

    def test_a_folder_without_a_bundle_is_not_taken_for_a_name(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match=r"it has no bundle\.json"):
            find_bundle(str(tmp_path))

    @pytest.mark.parametrize("form", ["{folder}", "file://{folder}", "tiny/1", "tiny", "{store}/tiny/1"])
    def test_embed_takes_every_form(self, capsys: Any, store: str, tmp_path: Path, form: str) -> None:
        folder = tmp_path / "models" / "tiny" / "1"
        build_tiny_bundle(folder)
        ModelRepository(store).push(folder)
        (tmp_path / "rows.jsonl").write_text('{"text": "red"}\n')
        ok(
            capsys,
            *("embed", tmp_path / "rows.jsonl", "--out", tmp_path / "v.npz", "--models", tmp_path / "models"),
            *("--bundle", form.format(folder=folder, store=store)),
        )
        assert (tmp_path / "v.npz").is_file()
