"""Pictures, metadata and errors on their way to the wire and back."""

from __future__ import annotations

import io
import math
import os
import pickle
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.pictures import solid
from twinlens.client import ImageUrl, ItemError, TwinlensError, calls, convert
from twinlens.client.errors import from_call
from twinlens.client.images import MAX_IMAGE_BYTES, picture, read_image
from twinlens.client.metadata import from_struct, to_struct
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage
from twinlens.v1 import content_pb2

_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), _JSON, max_size=4))
def test_metadata_comes_back_as_it_went(metadata: dict[str, Any]) -> None:
    assert from_struct(to_struct(metadata)) == metadata


@pytest.mark.parametrize("value", [object(), b"bytes", {1: "number as key"}, "\ud800", 10**400, {"a": [{"b": {1, 2}}]}])
def test_metadata_that_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(TwinlensError):
        to_struct({"key": value})


def test_metadata_nested_deeper_than_a_message_can_be_is_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(2000):
        nested = {"in": nested}
    with pytest.raises(TwinlensError, match="deep"):
        to_struct(nested)


def test_metadata_as_deep_as_allowed_can_be_read_again() -> None:
    nested: dict[str, Any] = {}
    for _ in range(24):
        nested = {"in": nested}
    with pytest.raises(TwinlensError, match="deep"):
        to_struct({"in": nested})
    struct = to_struct(nested)
    assert type(struct).FromString(struct.SerializeToString()) == struct


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "LAB", "I", "F", "I;16"])
def test_a_pillow_picture_of_any_mode_travels_without_loss(mode: str) -> None:
    values = np.random.default_rng(0).integers(0, 256, (7, 5, 4), dtype=np.uint8)
    direct = {"I": np.int32, "F": np.float32, "I;16": np.uint16}
    if mode in direct:
        picture = Image.fromarray(values[..., 0].astype(direct[mode]))
    elif mode == "LAB":
        picture = Image.frombytes("LAB", (5, 7), values[..., :3].tobytes())
    else:
        picture = Image.fromarray(values).convert("RGB").convert(mode) if mode != "RGBA" else Image.fromarray(values)
    assert picture.mode == mode
    data = read_image(picture)
    assert isinstance(data, bytes)
    with Image.open(io.BytesIO(data)) as back:
        assert back.size == picture.size
        assert back.mode == mode
        assert np.array_equal(np.asarray(back), np.asarray(picture))


@pytest.mark.parametrize(("mode", "sent"), [("YCbCr", "RGB"), ("HSV", "RGB"), ("RGBa", "RGBA"), ("La", "LA")])
def test_a_pillow_picture_that_no_file_keeps_travels_as_the_colours_it_shows(mode: str, sent: str) -> None:
    values = np.random.default_rng(0).integers(0, 256, (7, 5, 4), dtype=np.uint8)
    source = Image.fromarray(values)
    picture = {"RGBa": source, "La": source.convert("LA")}.get(mode, source.convert("RGB")).convert(mode)
    data = read_image(picture)
    assert isinstance(data, bytes)
    with Image.open(io.BytesIO(data)) as back:
        assert back.mode == sent
        assert np.array_equal(np.asarray(back), np.asarray(picture.convert(sent)))


def test_a_picture_is_read_from_a_path_and_bytes_pass_unchanged(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(solid("red"))
    assert read_image(tmp_path / "a.png") == read_image(str(tmp_path / "a.png")) == read_image(solid("red"))


@pytest.mark.parametrize("name", ["missing.png", ".", "nul\0.png", "x" * 5000])
def test_a_file_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path, name: str) -> None:
    error = read_image(f"{tmp_path}/{name}")
    assert isinstance(error, ItemError)
    assert error.reason == "INVALID_IMAGE"
    assert str(error) == error.message


def test_an_empty_file_is_refused_in_the_words_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    with pytest.raises(InvalidImage) as said:
        decode_image(b"")
    for source in (b"", tmp_path / "empty.png"):
        assert read_image(source) == ItemError("INVALID_IMAGE", str(said.value))


def test_a_pipe_is_not_waited_for_and_a_device_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", Path("/dev/zero")):
        error = read_image(path)
        assert isinstance(error, ItemError)
        assert error.message.endswith("it is not a file")


def test_a_picture_too_big_to_send_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "big.png").open("wb") as file:
        file.truncate(MAX_IMAGE_BYTES + 1)
    error = read_image(tmp_path / "big.png")
    assert isinstance(error, ItemError)
    assert "63 MiB" in error.message


@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 3), (7, 5, 4)])
def test_pixels_travel_without_loss(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    for source in (pixels, np.asfortranarray(pixels), np.repeat(pixels, 2, axis=0)[::2]):
        data = read_image(source)
        assert isinstance(data, bytes)
        with Image.open(io.BytesIO(data)) as back:
            assert np.array_equal(np.asarray(back), pixels)


@pytest.mark.parametrize(
    "array", [np.zeros((7, 5, 3)), np.zeros((7, 5, 2), np.uint8), np.zeros(5, np.uint8), np.zeros((0, 5, 3), np.uint8)]
)
def test_arrays_that_are_no_pixels_are_refused_with_what_they_are(array: Any) -> None:
    error = read_image(array)
    assert isinstance(error, ItemError)
    assert str(array.shape) in error.message


def test_a_single_picture_of_pixels_is_not_taken_for_a_list_of_its_rows() -> None:
    with pytest.raises(TypeError, match="brackets"):
        calls.pictures(np.zeros((7, 5, 3), np.uint8))
    assert len(list(calls.pictures(np.zeros((2, 7, 5, 3), np.uint8)))) == 2


def test_an_address_travels_as_one_and_a_path_that_looks_like_one_is_explained() -> None:
    assert picture(ImageUrl("https://a.example/b.jpg")) == ImageUrl("https://a.example/b.jpg")
    for address in ("", "https://a.example/\ud800"):
        assert isinstance(picture(ImageUrl(address)), ItemError)
    error = read_image("https://a.example/b.jpg")
    assert isinstance(error, ItemError)
    assert "ImageUrl(" in error.message


def test_what_is_no_picture_at_all_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="not int"):
        read_image(3)  # type: ignore[arg-type]


def test_an_error_is_one_line_and_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(TwinlensError("NOT_FOUND", "no such\n thing")))  # noqa: S301
    assert (error.code, error.message, str(error)) == ("NOT_FOUND", "no such thing", "no such thing")


def failed(code: grpc.StatusCode, details: str | None = None, **trailing: str) -> grpc.RpcError:
    """What gRPC raises for a call that ended so."""
    metadata = grpc.aio.Metadata(*((key.replace("_", "-"), value) for key, value in trailing.items()))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details)


def test_a_status_without_a_text_still_says_something() -> None:
    for code in grpc.StatusCode:
        assert from_call(failed(code), "host:1", 1.0).message
        assert from_call(failed(code, x_request_id="a"), "host:1", 1.0).message


def test_an_error_has_the_id_under_which_the_server_logged_it_and_its_hint() -> None:
    full = failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", x_request_id="abc", grpc_retry_pushback_ms="250")
    error = pickle.loads(pickle.dumps(from_call(full, "host:1", 1.0)))  # noqa: S301
    assert (error.request_id, error.retry_after_s, error.message) == ("abc", 0.25, "full")
    forbidden = failed(grpc.StatusCode.UNAVAILABLE, "no more", grpc_retry_pushback_ms="-1")
    assert from_call(forbidden, "host:1", 1.0).retry_after_s is None


def test_a_server_that_answers_that_it_is_not_available_is_not_said_to_be_away() -> None:
    away = from_call(failed(grpc.StatusCode.UNAVAILABLE, "Socket closed"), "host:1", 1.0)
    assert away.message == "no server answers at host:1 (Socket closed)"
    stopping = failed(grpc.StatusCode.UNAVAILABLE, "the server is about to stop", x_request_id="abc")
    assert from_call(stopping, "host:1", 1.0).message == "the server is about to stop"


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("UNKNOWN: ipv6:%5B::1%5D:50051: Failed to connect to remote host: Connection refused", "at [::1]:50051"),
        ("UNKNOWN: ipv4:127.0.0.1:50051: Failed to connect to remote host: Connection refused", "at 127.0.0.1:50051"),
        ("UNAVAILABLE: ipv4:127.0.0.1:50051: Socket closed", "does it ask for TLS"),
    ],
)
def test_which_address_of_a_name_did_not_answer_and_that_one_hung_up_is_told(last: str, told: str) -> None:
    details = f"failed to connect to all addresses; last error: {last}"
    error = from_call(failed(grpc.StatusCode.UNAVAILABLE, details), "localhost:50051", 1.0)
    assert told in error.message


def test_a_reason_of_a_newer_server_is_passed_on() -> None:
    known = content_pb2.ItemError(reason=content_pb2.ERROR_REASON_INVALID_IMAGE, message="m")
    assert convert.error(known) == ItemError("INVALID_IMAGE", "m")
    newer = content_pb2.ItemError.FromString(b"\x08\x63\x12\x01m")  # reason 99
    assert convert.error(newer) == ItemError("UNKNOWN", "m")


def test_a_vector_keeps_its_numbers() -> None:
    wire = convert.vector([0.1, -2.0, math.pi])
    np.testing.assert_array_equal(np.asarray(wire.values, np.float32), np.array([0.1, -2.0, math.pi], np.float32))
