"""Each family once: what a server with the bundle answers is what the model's own library computes."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from tests.server.running import run_server
from tests.support import tiny_hugging_face, tiny_timm
from tests.support.image_files import encode
from tests.support.tiny_open_clip import OPEN_CLIP, build_open_clip, open_clip_model
from tests.support.tiny_weights import TinyModel
from tests.support.tokenizer_families import Families
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.manifest import Manifest
from twinlens.training.export.agreement import row_cosines
from twinlens.training.pull.families import pull
from twinlens.v1 import classification_pb2 as pb

FAMILIES: dict[str, Callable[[Path, Families], TinyModel]] = {
    **{kind: functools.partial(open_clip_model, kind) for kind in OPEN_CLIP},
    "timm": lambda folder, _: tiny_timm.timm_model(folder),
    "hf_clip": lambda folder, _: tiny_hugging_face.hf_clip(folder),
    "hf_siglip": tiny_hugging_face.hf_siglip,
    "hf_vit": lambda folder, _: tiny_hugging_face.hf_vit(folder),
    "hf_dinov2": lambda folder, _: tiny_hugging_face.hf_dinov2(folder),
    "sentence_dense": lambda folder, _: tiny_hugging_face.sentence_model(folder, "bert", "mean", dense=True),
    "sentence_mpnet": lambda folder, _: tiny_hugging_face.sentence_model(folder, "mpnet", "cls"),
}
# Each takes many seconds to export and differs from another one by its image tower or its text configuration, or is
# the same architecture in another library.
SLOW = ("clip", "resnet", "clipa", "mobileclip", "eva", "sentence_mpnet", "hf_clip", "hf_vit")
COUNT = 33
MIN_AGREEMENT = 0.99999
WORDS = tuple(
    word
    for line in (
        "house storm violin ocean apple tower",
        "moth river chair lamp horse cloud",
        "bridge key red small old ice",
    )
    for word in line.split()
)
TEXTS = (
    "a cat",
    "A  Photo of Two DOGS",
    "red " * 100,
    "x",
    "café and naïve",
    *(" ".join((WORDS[n % 18], WORDS[(n // 18 + 7 * n + 1) % 18], *WORDS[: n % 5])) for n in range(28)),
)


@dataclass
class Pulled:
    tiny: TinyModel
    folder: Path
    manifest: Manifest
    said: list[str]
    encoder: Encoder

    @functools.cached_property
    def pixels(self) -> NDArray[np.float32]:
        return np.stack([self.encoder.prepare_image(encode(picture)) for picture in pictures()])

    @functools.cached_property
    def torch_images(self) -> NDArray[np.float32]:
        if self.tiny.image is not None:
            return unit(self.tiny.image([Image.fromarray(picture) for picture in pictures()]))
        assert self.tiny.pixels is not None
        return unit(self.tiny.pixels(self.pixels))

    @functools.cached_property
    def torch_texts(self) -> NDArray[np.float32]:
        assert self.tiny.text is not None
        return unit(self.tiny.text(TEXTS))


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in FAMILIES],
)
def pulled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, families: Families) -> Pulled:
    folder = tmp_path_factory.mktemp(request.param)
    tiny = FAMILIES[request.param](folder, families)
    said: list[str] = []
    manifest = pull(tiny.source, folder / "bundle", tiny.choices, say=said.append)
    return Pulled(tiny, folder / "bundle", manifest, said, Encoder.load(folder / "bundle", provider="cpu", threads=1))


def pictures() -> list[NDArray[np.uint8]]:
    chance = np.random.default_rng(5)
    found = []
    for n in range(COUNT):
        coarse = chance.integers(0, 256, (1 + n % 5, 2 + n % 4, 3), dtype=np.uint8)
        found.append(np.asarray(Image.fromarray(coarse).resize((40 + 3 * n, 120 - 2 * n), Image.Resampling.BICUBIC)))
    return found


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def assert_agree_and_differ(wanted: NDArray[np.float32], found: NDArray[np.float32]) -> None:
    """Each row is its own, and far nearer to its own than to any other."""
    assert row_cosines(wanted, found).min() >= MIN_AGREEMENT
    others = wanted.astype(np.float64) @ wanted.astype(np.float64).T
    np.fill_diagonal(others, -1.0)
    assert np.median(others) < 0.99
    assert others.max() < 1 - 4 * (1 - MIN_AGREEMENT)


async def test_a_server_answers_with_the_librarys_own_vectors(pulled: Pulled, tmp_path: Path) -> None:
    manifest = pulled.manifest
    images: list[bytes | str] = [encode(picture) for picture in pictures()] if manifest.image else []
    texts: list[bytes | str] = list(TEXTS) if manifest.text else []
    encoder = Encoder.load(pulled.folder, provider="cpu", threads=1)
    async with run_server(tmp_path / "data", encoder) as running:
        reply = await running.embed(*images, *texts)
        one = await running.embed(*texts[:1], *images[:1])
    served = np.array([result.embedding.values for result in reply.results], dtype=np.float32)
    assert len(served) == len(images) + len(texts)
    if images:
        assert_agree_and_differ(pulled.torch_images, served[: len(images)])
    if texts:
        assert_agree_and_differ(pulled.torch_texts, served[len(images) :])
        np.testing.assert_allclose(one.results[0].embedding.values, served[len(images)], atol=1e-5)


async def test_a_model_of_pictures_alone_labels_by_examples_as_the_librarys_vectors_say(
    pulled: Pulled, tmp_path: Path
) -> None:
    if pulled.manifest.text is not None or pulled.manifest.image is None:
        pytest.skip("not an image-only bundle")
    labels = [f"label {n % 4}" for n in range(COUNT)]
    shown, vectors = range(24), pulled.torch_images.astype(np.float64)
    encoded = [encode(picture) for picture in pictures()]
    examples = pb.ExampleSet(examples=[pb.Example(label=labels[n], image=encoded[n]) for n in shown])
    async with run_server(tmp_path / "data", Encoder.load(pulled.folder, provider="cpu", threads=1)) as running:
        asked = pb.ClassifyRequest(images=encoded[24:], examples=examples)
        reply = await running.classification.Classify(asked)
        with pytest.raises(grpc.aio.AioRpcError, match="has no text tower") as caught:
            await running.classification.Classify(pb.ClassifyRequest(images=encoded[24:], labels=labels[:4]))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    for result, vector in zip(reply.results, vectors[24:], strict=True):
        for score in result.scores:
            mean = vectors[[n for n in shown if labels[n] == score.label]].mean(axis=0)
            assert score.cosine == pytest.approx(vector @ mean / np.linalg.norm(mean), abs=1e-3)


@pytest.mark.parametrize("batch", [1, 3, 33])
def test_every_batch_size_gives_torchs_vectors(pulled: Pulled, batch: int) -> None:
    starts = range(0, COUNT, batch)
    if pulled.manifest.image is not None:
        pixels = pulled.pixels
        found = np.concatenate([pulled.encoder.encode_images(pixels[n : n + batch]) for n in starts])
        assert row_cosines(pulled.torch_images, found).min() >= MIN_AGREEMENT
    if pulled.manifest.text is not None:
        tokens = [pulled.encoder.prepare_text(text) for text in TEXTS]
        found = np.concatenate([pulled.encoder.encode_texts(tokens[n : n + batch]) for n in starts])
        assert row_cosines(pulled.torch_texts, found).min() >= MIN_AGREEMENT


def test_a_short_text_without_padding_has_the_padded_vector(pulled: Pulled) -> None:
    """To 1e-5 for every length from one to the window; or the tower sees its padding, and then it must show."""
    text = pulled.manifest.text
    if text is None:
        pytest.skip("an image-only bundle")
    assert pulled.tiny.padded is not None
    spec = text.text
    begin, end = (pulled.encoder.prepare_text("x").ids[index] for index in (0, -1))
    rows = [made_up_ids(length, begin, end) for length in range(1, spec.context_length + 1)]
    wanted = unit(pulled.tiny.padded(rows))
    if spec.pad_to_context:
        with pytest.raises(Exception, match=r"(?i)invalid|dimension|shape"):
            run_text(pulled.folder, [rows[3]], mask=spec.attention_mask)
        shorter = [[*row, *[spec.pad_id] * (spec.context_length - 4 - len(row))] for row in rows[:-4]]
        assert shortened_differs(pulled.tiny, shorter, wanted[:-4])
        return
    found = unit(run_text(pulled.folder, rows, mask=spec.attention_mask))
    assert np.abs(found - wanted).max() <= 1e-5


def made_up_ids(length: int, begin: int, end: int) -> list[int]:
    chance = np.random.default_rng(length)
    middle = [int(n) for n in chance.integers(5, 900, max(length - 2, 0))]
    return [end] if length == 1 else [begin, *middle, end]


def run_text(folder: Path, rows: list[list[int]], *, mask: bool) -> NDArray[np.float32]:
    """One row at a time, without padding."""
    session = onnxruntime.InferenceSession(str(folder / "text.onnx"), providers=["CPUExecutionProvider"])
    found = []
    for ids in rows:
        inputs = {"input_ids": np.array([ids], dtype=np.int64)}
        if mask:
            inputs["attention_mask"] = np.ones((1, len(ids)), dtype=np.int64)
        found += session.run(None, inputs)
    return np.concatenate(found)


def shortened_differs(tiny: TinyModel, shorter: list[list[int]], wanted: NDArray[np.float32]) -> bool:
    """Whether the tower itself gives other vectors for a window that is four tokens shorter."""
    model: Any = copy.copy(tiny.model)
    with torch.no_grad():
        if hasattr(model, "text_model"):
            found = model.text_model(input_ids=torch.tensor(shorter)).pooler_output.numpy()
        else:
            tower = getattr(model, "text", model)
            position = tower.positional_embedding
            tower.positional_embedding = torch.nn.Parameter(position[: len(shorter[0])])
            try:
                found = model.encode_text(torch.tensor(shorter)).numpy()
            finally:
                tower.positional_embedding = position
    return bool(np.median(row_cosines(wanted, unit(found))) < MIN_AGREEMENT)


def test_the_manifest_states_the_checkpoints_own_ways(pulled: Pulled, request: pytest.FixtureRequest) -> None:
    manifest, kind = pulled.manifest, request.node.callspec.params["pulled"]
    stored = (pulled.folder / "bundle.json").read_text()
    assert str(pulled.folder.parent) not in stored
    assert (manifest.image is None) == kind.startswith("sentence")
    assert (manifest.text is None) == (kind in {"timm", "hf_vit", "hf_dinov2"})
    if kind == "quick_gelu":
        assert manifest.image is not None
        assert manifest.image.activation == "quick_gelu"
        assert manifest.name == "tiny-quick_gelu-epoch_7"
    if "siglip" in kind:
        bias = pulled.tiny.model.logit_bias.item()
        scale = pulled.tiny.model.logit_scale.exp().item()
        assert manifest.scoring.rule == "sigmoid"
        assert manifest.scoring.bias == pytest.approx(bias)
        assert manifest.scoring.scale == pytest.approx(scale, rel=1e-6)
    elif manifest.text is not None and manifest.image is not None:
        assert manifest.scoring.rule == "softmax"
        assert manifest.scoring.scale == pytest.approx(pulled.tiny.model.logit_scale.exp().item(), rel=1e-6)
    if manifest.text is not None:
        assert manifest.text.text.pad_to_context == (kind in {"siglip", "clipa", "mobileclip", "hf_siglip"})
    assert json.loads(stored)["lineage"]["method"]
    assert not any("RANDOM" in line for line in pulled.said)


def test_no_graph_resamples(pulled: Pulled) -> None:
    """ONNX's bicubic differs from torch's: what depends on the picture's size is computed at export."""
    for file in pulled.folder.glob("*.onnx"):
        kinds = {node.op_type for node in onnx.load(file).graph.node}
        assert not kinds & {"Resize", "Upsample", "RandomUniform", "RandomNormal", "Dropout", "Bernoulli"}


def test_the_other_gelu_would_show(pulled: Pulled, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["pulled"] != "quick_gelu":
        pytest.skip("for the family whose activation a configuration may get wrong")
    other = build_open_clip({**OPEN_CLIP["quick_gelu"], "quick_gelu": False}).eval()
    other.load_state_dict(pulled.tiny.model.state_dict())
    pixels = torch.from_numpy(pulled.pixels)
    with torch.no_grad():
        images = row_cosines(pulled.torch_images, other.encode_image(pixels).numpy())
    assert np.median(images) < MIN_AGREEMENT
    assert images.min() < 0.9999
