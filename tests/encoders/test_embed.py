from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tests.support.fake_encoder import FakeEncoder
from tests.support.image_files import encode, scene
from twinlens.__main__ import main
from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.decode import DecodeLimits
from twinlens.encoders.embed_sources import SourceItem
from twinlens.encoders.embed_stream import Embedded, embed_stream
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.vector_files import write_vectors


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.png").write_bytes(encode(scene(seed=1)))
    (folder / "sub" / "b.jpg").write_bytes(encode(scene(seed=2)[::-1].copy(), "JPEG"))
    (folder / "broken.png").write_bytes(b"not a picture")
    (folder / "notes.txt").write_text("words")
    return folder


class TestStream:
    def texts(self, count: int) -> Iterator[SourceItem]:
        return (SourceItem(str(i), text=f"word{i} red") for i in range(count))

    @pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 40])
    @pytest.mark.parametrize("decoders", [1, 3])
    def test_order_and_vectors_are_those_of_one_at_a_time(
        self, fake_encoder: FakeEncoder, count: int, decoders: int
    ) -> None:
        results = list(embed_stream(fake_encoder, self.texts(count), batch=8, decoders=decoders))
        assert [result.id for result in results] == [str(i) for i in range(count)]
        for i, result in enumerate(results):
            wanted = fake_encoder.encode_texts([fake_encoder.prepare_text(f"word{i} red")])[0]
            assert result.vector is not None
            np.testing.assert_allclose(result.vector, wanted, atol=1e-6)

    def test_one_bad_item_fails_itself_only(self, fake_encoder: FakeEncoder, photos: Path) -> None:
        items = [
            SourceItem("good", image=photos / "a.png"),
            SourceItem("broken", image=photos / "broken.png"),
            SourceItem("missing", image=photos / "nowhere.png"),
            SourceItem("folder", image=photos / "sub"),
            SourceItem("nul", image=Path("a\0b.png")),
            SourceItem("empty", text="  "),
            SourceItem("row", problem="line 7 is not JSON"),
            SourceItem("text", text="red"),
        ]
        results = {result.id: result for result in embed_stream(fake_encoder, items)}
        assert {name for name, result in results.items() if result.vector is not None} == {"good", "text"}
        reasons = {name: result.reason for name, result in results.items() if result.vector is None}
        assert reasons["row"] == "line 7 is not JSON"
        assert reasons["missing"] == "the file does not exist"
        assert reasons["empty"] == "the text is empty"
        assert all(reasons.values())

    def test_a_pipe_is_not_waited_for_and_a_device_not_read(self, fake_encoder: FakeEncoder, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.png")
        items = [SourceItem("pipe", image=tmp_path / "pipe.png"), SourceItem("device", image=Path("/dev/zero"))]
        reasons = {result.reason for result in embed_stream(fake_encoder, items)}
        assert reasons == {"this is neither a file nor a link to one"}

    def test_a_file_above_the_limit_is_refused_unread(self, fake_encoder: FakeEncoder, tmp_path: Path) -> None:
        with (tmp_path / "huge.png").open("wb") as stream:
            stream.truncate(1 << 40)  # a hole: reading it would end the test
        (result,) = embed_stream(
            fake_encoder, [SourceItem("huge", image=tmp_path / "huge.png")], limits=DecodeLimits(max_bytes=1000)
        )
        assert "too large" in result.reason

    def test_no_more_than_two_batches_are_read_ahead(self, fake_encoder: FakeEncoder) -> None:
        read = 0

        def items() -> Iterator[SourceItem]:
            nonlocal read
            for item in self.texts(100):
                read += 1
                yield item

        for done, _ in enumerate(embed_stream(fake_encoder, items(), batch=5, decoders=2), start=1):
            assert read <= done + 3 * 5

    def test_the_next_batch_is_prepared_while_the_tower_runs(self) -> None:
        prepared_next = threading.Event()

        class Waiting(FakeEncoder):
            def prepare_text(self, text: str) -> Any:
                if text.startswith("word4 "):  # the first of the second batch
                    prepared_next.set()
                return super().prepare_text(text)

            def encode_texts(self, tokens: Any) -> NDArray[np.float32]:
                assert prepared_next.wait(timeout=30)
                return super().encode_texts(tokens)

        assert len(list(embed_stream(Waiting(), self.texts(12), batch=4))) == 12


@pytest.fixture(scope="module")
def encoder() -> FakeEncoder:
    return FakeEncoder(dimension=4)


class TestFiles:
    results = (
        Embedded("a", np.array([1, 0, 0, 0], np.float32)),
        Embedded("bad", None, "why: ü"),
        Embedded("b 狗", np.array([0, 1, 0, 0], np.float32), truncated=True),
    )

    def test_npz(self, tmp_path: Path, encoder: FakeEncoder) -> None:
        write_vectors(tmp_path / "v.npz", self.results, encoder.manifest)
        with np.load(tmp_path / "v.npz", allow_pickle=False) as found:
            assert found["ids"].tolist() == ["a", "b 狗"]
            assert found["vectors"].dtype == np.float32
            np.testing.assert_array_equal(found["vectors"], np.eye(4, dtype=np.float32)[:2])
            assert found["truncated"].tolist() == [False, True]
            assert found["error_ids"].tolist() == ["bad"]
            assert found["error_reasons"].tolist() == ["why: ü"]
            assert str(found["space_id"]) == encoder.manifest.space_id

    def test_parquet(self, tmp_path: Path, encoder: FakeEncoder) -> None:
        write_vectors(tmp_path / "v.parquet", self.results, encoder.manifest)
        table = pq.read_table(tmp_path / "v.parquet")
        assert str(table.schema.field("vector").type) == "list<element: float>"
        assert table["id"].to_pylist() == ["a", "bad", "b 狗"]
        assert table["vector"].to_pylist() == [[1, 0, 0, 0], None, [0, 1, 0, 0]]
        assert table["error"].to_pylist() == [None, "why: ü", None]
        assert table["truncated"].to_pylist() == [False, None, True]
        assert table.schema.metadata[b"twinlens.space_id"].decode() == encoder.manifest.space_id

    @pytest.mark.parametrize("suffix", [".npz", ".parquet"])
    @pytest.mark.parametrize("kept", [(), (1,)], ids=["nothing", "failures only"])
    def test_without_a_single_vector(
        self, tmp_path: Path, encoder: FakeEncoder, suffix: str, kept: tuple[int, ...]
    ) -> None:
        file = tmp_path / f"v{suffix}"
        write_vectors(file, [self.results[i] for i in kept], encoder.manifest)
        if suffix == ".npz":
            with np.load(file, allow_pickle=False) as found:
                assert found["vectors"].shape == (0, 4)
                assert found["ids"].dtype.kind == "U"
                assert found["truncated"].dtype == np.bool_
        else:
            assert pq.read_table(file)["vector"].null_count == len(kept)

    def test_a_failure_while_writing_keeps_the_old_file(
        self, tmp_path: Path, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "v.npz"
        file.write_bytes(b"old")

        def fail(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np, "savez", fail)
        with pytest.raises(OSError, match="No space"):
            write_vectors(file, self.results, encoder.manifest)
        assert [p.name for p in tmp_path.iterdir()] == ["v.npz"]
        assert file.read_bytes() == b"old"

    def test_another_suffix_is_refused(self, tmp_path: Path, encoder: FakeEncoder) -> None:
        with pytest.raises(ValueError, match=r"\.csv is not one of"):
            write_vectors(tmp_path / "v.csv", self.results, encoder.manifest)


class TestCommand:
    def run(self, source: Path, bundle: Path, out: Path, *options: str) -> int:
        return main(["embed", str(source), "--bundle", str(bundle), "--out", str(out), *options])

    def test_a_folder(self, photos: Path, tiny_bundle: Path, tmp_path: Path, capsys: Any) -> None:
        assert self.run(photos, tiny_bundle, tmp_path / "new" / "v.npz", "--json") == 0
        captured = capsys.readouterr()
        facts = json.loads(captured.out)
        assert (facts["embedded"], facts["failed"], facts["skipped"]) == (2, 1, 1)
        assert facts["space_id"] == read_manifest(tiny_bundle).space_id
        assert "failed: broken.png: this is not a picture" in captured.err
        with np.load(tmp_path / "new" / "v.npz", allow_pickle=False) as found:
            assert found["ids"].tolist() == ["a.png", "sub/b.jpg"]
            assert found["error_ids"].tolist() == ["broken.png"]
            np.testing.assert_allclose(np.linalg.norm(found["vectors"], axis=1), 1, atol=1e-6)
            encoder = Encoder.load(tiny_bundle, verify=False)
            wanted = encoder.encode_images(encoder.prepare_image((photos / "a.png").read_bytes())[None])
            np.testing.assert_allclose(found["vectors"][:1], wanted, atol=1e-6)

    def test_a_jsonl_of_pictures_and_texts(self, photos: Path, tiny_bundle: Path, tmp_path: Path) -> None:
        rows = [
            {"image": "a.png"},
            {"image": "nowhere.png", "id": "gone"},
            {"text": "a red circle"},
            {"text": "", "id": "empty"},
        ]
        (photos / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        assert self.run(photos / "rows.jsonl", tiny_bundle, tmp_path / "v.parquet") == 0
        table = pq.read_table(tmp_path / "v.parquet").to_pydict()
        assert table["id"] == ["a.png", "gone", "line-3", "empty"]
        assert [vector is not None for vector in table["vector"]] == [True, False, True, False]
        assert table["error"] == [None, "the file does not exist", None, "line 4: the text is empty"]

    def test_captions_left_out_are_told(self, photos: Path, tiny_bundle: Path, tmp_path: Path, capsys: Any) -> None:
        rows = [{"image": "a.png", "caption": "red"}, {"caption": "a red circle"}]
        (photos / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        out = tmp_path / "v.npz"
        command = ["embed", str(photos / "rows.jsonl"), "--bundle", str(tiny_bundle), "--out", str(out)]
        assert main(command) == 0
        assert "embedded 2 items, 1 caption beside pictures left out, 0 failed" in capsys.readouterr().err
        assert list(np.load(out)["ids"]) == ["a.png", "line-2"]
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["captions_left_out"] == 1

    @pytest.mark.parametrize("suffix", [".npz", ".parquet"])
    def test_texts_that_were_cut_are_marked_and_counted(
        self, tmp_path: Path, tiny_bundle: Path, suffix: str, capsys: Any
    ) -> None:
        rows = [{"text": "a red circle"}, {"text": "red " * 100}, {"text": "", "id": "empty"}, {"text": "dog " * 9000}]
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        out = tmp_path / f"v{suffix}"
        assert self.run(tmp_path / "rows.jsonl", tiny_bundle, out, "--json") == 0
        assert json.loads(capsys.readouterr().out)["truncated"] == 2
        if suffix == ".npz":
            with np.load(out, allow_pickle=False) as found:
                assert found["truncated"].tolist() == [False, True, True]
        else:
            assert pq.read_table(out)["truncated"].to_pylist() == [False, True, None, True]
        assert self.run(tmp_path / "rows.jsonl", tiny_bundle, out) == 0
        assert "embedded 3 items, 2 texts longer than the model reads" in capsys.readouterr().err

    def test_when_everything_fails_the_file_says_why_and_the_exit_code_is_1(
        self, tmp_path: Path, tiny_bundle: Path, capsys: Any
    ) -> None:
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "broken.png").write_bytes(b"words")
        assert self.run(tmp_path / "photos", tiny_bundle, tmp_path / "v.npz") == 1
        assert "none of the 1 items" in capsys.readouterr().err
        with np.load(tmp_path / "v.npz", allow_pickle=False) as found:
            assert found["error_ids"].tolist() == ["broken.png"]

    def complaint(self, capsys: Any, code: int) -> str:
        captured = capsys.readouterr()
        assert code != 0
        assert captured.out == ""
        lines = captured.err.strip().splitlines()
        assert len(lines) == 1, captured.err
        return str(lines[0])

    def test_a_missing_source(self, tmp_path: Path, tiny_bundle: Path, capsys: Any) -> None:
        code = self.run(tmp_path / "nowhere", tiny_bundle, tmp_path / "v.npz")
        assert "does not exist" in self.complaint(capsys, code)

    def test_a_folder_that_cannot_be_opened(
        self, photos: Path, tmp_path: Path, tiny_bundle: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def locked(path: Path) -> None:
            raise PermissionError(13, "Permission denied", path)

        monkeypatch.setattr("twinlens.encoders.cli.os.scandir", locked)
        code = self.run(photos, tiny_bundle, tmp_path / "v.npz")
        assert "cannot open the folder" in self.complaint(capsys, code)

    def test_a_folder_without_images(self, tmp_path: Path, tiny_bundle: Path, capsys: Any) -> None:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "notes.txt").write_text("words")
        code = self.run(tmp_path / "docs", tiny_bundle, tmp_path / "v.npz")
        assert "no images in" in self.complaint(capsys, code)
        assert not (tmp_path / "v.npz").exists()

    def test_an_empty_jsonl(self, tmp_path: Path, tiny_bundle: Path, capsys: Any) -> None:
        (tmp_path / "rows.jsonl").write_text("\n\n")
        code = self.run(tmp_path / "rows.jsonl", tiny_bundle, tmp_path / "v.npz")
        assert "no rows in" in self.complaint(capsys, code)

    def test_a_source_of_another_kind(self, photos: Path, tiny_bundle: Path, capsys: Any, tmp_path: Path) -> None:
        code = self.run(photos / "notes.txt", tiny_bundle, tmp_path / "v.npz")
        assert "neither a folder nor a .jsonl" in self.complaint(capsys, code)

    def test_a_missing_bundle(self, photos: Path, tmp_path: Path, capsys: Any) -> None:
        code = self.run(photos, tmp_path / "nowhere", tmp_path / "v.npz")
        assert "no bundle at" in self.complaint(capsys, code)

    def test_another_suffix(self, photos: Path, tiny_bundle: Path, tmp_path: Path, capsys: Any) -> None:
        code = self.run(photos, tiny_bundle, tmp_path / "v.csv")
        assert ".npz or .parquet" in self.complaint(capsys, code)
        assert code == 2

    def test_an_output_that_is_a_folder(self, photos: Path, tiny_bundle: Path, tmp_path: Path, capsys: Any) -> None:
        (tmp_path / "v.npz").mkdir()
        code = self.run(photos, tiny_bundle, tmp_path / "v.npz")
        assert "is a folder" in self.complaint(capsys, code)

    def test_an_output_that_cannot_be_made_is_told_before_any_work(
        self, photos: Path, tmp_path: Path, capsys: Any
    ) -> None:
        (tmp_path / "file").write_bytes(b"")
        code = self.run(photos, tmp_path / "no bundle is asked for", tmp_path / "file" / "v.npz")
        assert "cannot write" in self.complaint(capsys, code)


@pytest.mark.shared
def test_the_awkward_texts_are_embedded_or_refused_as_listed(shared_data: Path, tiny_bundle: Path) -> None:
    folder = shared_data / "awkward_made"
    lines = (folder / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {row["id"]: row["text"] for row in map(json.loads, lines)}
    encoder = Encoder.load(tiny_bundle, verify=False)
    items = [SourceItem(name, text=text) for name, text in texts.items()]
    results = {result.id: result.vector for result in embed_stream(encoder, items)}
    wrong = []
    for row in json.loads((folder / "expected.json").read_text(encoding="utf-8"))["texts"]:
        name, check = row["text_id"], row["check"]
        found, other = results[name], results.get(check.get("ref", name))
        if found is None or other is None:
            if check["kind"] not in {"ok_or_error", "client_or_server_error"}:
                wrong.append(f"{name}: refused")
            continue
        off = 1 - float(found @ other)
        # The tiny tower cuts at 24 tokens and pools all of them: rows about CLIP's own length are for CLIP.
        if check["kind"] == "same_as" and check.get("policy") != "truncate" and off > check["max_cosine_distance"]:
            wrong.append(f"{name}: {off:.5f} from {check['ref']}")
        if check["kind"] == "not_same_as" and off < check["min_cosine_distance"] and name.isascii():
            wrong.append(f"{name}: only {off:.6f} from {check['ref']}")
    assert results["empty"] is None
    assert results["nul"] is None
    assert results["lone_surrogate"] is None
    # Letters of other alphabets are one unknown token to the tiny tokenizer.
    assert [line for line in wrong if not line.startswith("chinese")] == []
