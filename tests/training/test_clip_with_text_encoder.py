"""Dual encoders whose text tower is an encoder of transformers: fresh, or trained before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support import tiny_hugging_face
from tests.support.image_files import encode, scene
from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.tokenise import collate
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.errors import CheckpointError, ConfigError
from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.checkpoint_bundle import export_checkpoint
from twinlens.training.pull.families import towers_of
from twinlens.training.pull.source import Choices, parse_source
from twinlens.training.start import start_of
from twinlens.training.text_checkpoint import load_text_checkpoint
from twinlens.training.towers.masked_text import MaskedTextTower
from twinlens.training.train import train

pytest.importorskip("transformers")

IMAGE = {"embed_dim": 16, "vision_cfg": TINY_TOWERS["vision_cfg"]}
BERT = {
    "model_type": "bert",
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
}


def config(model: dict[str, Any], tuning: dict[str, Any] | None = None, **run: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "data": {"source": "scenes", "count": 32, "seed": 3},
            "model": model,
            "train": {"steps": 2, "batch_size": 8, "warmup_steps": 0, "log_every": 1, **run},
            "tuning": tuning or {},
        }
    )


def fresh(pooling: str = "mean", **encoder: Any) -> dict[str, Any]:
    described = {"config": {**BERT, **encoder}, "pooling": pooling}
    return {"config": {**IMAGE, "text_cfg": {"context_length": 20, "transformers": described}}}


@pytest.fixture(scope="module")
def text_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    tiny = tiny_hugging_face.sentence_model(folder, "bert", "mean", dense=True)
    keep = towers_of(parse_source(tiny.source), Choices(), lambda _: None).keep
    assert keep is not None
    keep(folder / "checkpoint.pt")
    return folder / "checkpoint.pt"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config(fresh("cls")), tmp_path_factory.mktemp("fresh") / "run", lambda *_: None).checkpoint


def test_an_encoder_from_a_configuration_learns_its_vocabulary_and_trains(trained: Path) -> None:
    spec, model, meta = load_checkpoint(trained)
    tower: Any = model.text
    assert isinstance(tower, MaskedTextTower)
    assert tower.pooling == "cls"
    assert (spec.text.attention_mask, spec.text.context_length, meta.step) == (True, 20, 2)
    encoder: Any = tower.encoder
    assert encoder.config.vocab_size == spec.model_cfg["text_cfg"]["transformers"]["config"]["vocab_size"] < 1000


def test_training_goes_on_from_it_with_a_locked_text_tower(trained: Path, tmp_path: Path) -> None:
    again = train(
        config({"from_checkpoint": trained}, {"lock_text": 1, "layer_decay": 0.5}), tmp_path / "run", lambda *_: None
    )
    before, after = (load_checkpoint(path)[1].state_dict() for path in (trained, again.checkpoint))
    moved = {name for name in before if name.startswith("text.") and not torch.equal(before[name], after[name])}
    assert moved
    assert all(name.startswith(("text.encoder.encoder.layer.1.", "text.head.")) for name in moved), moved


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_pooling_ignores_padding(pooling: str) -> None:
    _, model = start_of(config(fresh(pooling)).model).build(["a red circle left of a blue square", "a star"])
    model.eval()
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    with torch.no_grad():
        together = model.encode_text(ids)  # type: ignore[operator]
        alone = model.encode_text(ids[1:, :2])  # type: ignore[operator]
    torch.testing.assert_close(together[1:], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_its_bundle_serves_both_towers(trained: Path, tmp_path: Path) -> None:
    export_checkpoint(trained, tmp_path / "bundle")
    spec, model, _ = load_checkpoint(trained)
    encoder = Encoder.load(tmp_path / "bundle", provider="cpu", threads=1)
    assert encoder.encode_images(np.stack([encoder.prepare_image(encode(scene()))])).shape == (1, 16)
    tokens = [encoder.prepare_text(text) for text in ("a red circle", "a small blue square left of a star")]
    ids, _ = collate(tokens, spec.text.model_copy(update={"pad_to_context": True}))
    with torch.no_grad():
        expected = model.encode_text(torch.from_numpy(ids)).numpy()  # type: ignore[operator]
    assert row_cosines(expected, encoder.encode_texts(tokens)).min() >= 0.9999


def test_a_trained_encoder_becomes_the_text_tower_with_its_own_words(text_checkpoint: Path) -> None:
    model = {"text_checkpoint": text_checkpoint, "config": IMAGE}
    spec, built = start_of(config(model).model).build(["a red circle"])
    encoder_spec, tower, _ = load_text_checkpoint(text_checkpoint)
    assert spec.tokenizer_json == encoder_spec.tokenizer_json
    own: Any = built.text
    assert own.head[-1].weight.shape[0] == 16
    for name, value in tower.state_dict().items():
        assert torch.equal(own.state_dict()[name], value), name


def test_a_locked_trained_encoder_learns_its_projection_alone(text_checkpoint: Path, tmp_path: Path) -> None:
    model = {"text_checkpoint": text_checkpoint, "config": IMAGE}
    result = train(config(model, {"lock_text": 0}), tmp_path / "run", lambda *_: None)
    after = load_checkpoint(result.checkpoint)[1].state_dict()
    for name, value in load_text_checkpoint(text_checkpoint)[1].state_dict().items():
        if not name.startswith("head."):
            assert torch.equal(after[f"text.{name}"], value), name


def test_settings_that_contradict_the_text_checkpoint_are_refused() -> None:
    for more, message in (
        ({"config": TINY_TOWERS}, "config.text_cfg is for a text tower from scratch"),
        ({"config": IMAGE, "vocabulary_size": 300}, "vocabulary_size is for a text tower from scratch"),
        ({"from_checkpoint": "other.pt"}, "from_checkpoint has a text tower already"),
    ):
        with pytest.raises(ValueError, match=message):
            config({"text_checkpoint": "checkpoint.pt", **more})


def test_what_is_no_text_encoder_is_named(trained: Path, text_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no text encoder alone"):
        start_of(config({"text_checkpoint": trained, "config": IMAGE}).model)
    with pytest.raises(CheckpointError, match="holds a text encoder alone"):
        start_of(config({"from_checkpoint": text_checkpoint}).model)
    with pytest.raises(CheckpointError, match="a text encoder, not an image encoder"):
        start_of(config({"image_checkpoint": text_checkpoint, "config": TINY_TOWERS | {"vision_cfg": {}}}).model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "nonsense"}, "text tower of 'clip' cannot be built"),
        ({"max_position_embeddings": 8}, "the text tower does not take 20 tokens"),
        ({"num_attention_heads": 5}, "text tower of 'clip' cannot be built"),
    ],
)
def test_an_encoder_that_cannot_be_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, CheckpointError), match=message) as raised:
        start_of(config(fresh(**changes)).model).build(["a red circle"])
    assert "\n" not in str(raised.value)


def test_a_description_without_a_configuration_is_refused() -> None:
    text_cfg = {"transformers": {"pooling": "mean"}}
    with pytest.raises(ConfigError, match="transformers must be a table with a table config"):
        start_of(config({"config": {**IMAGE, "text_cfg": text_cfg}}).model).build(["a red circle"])


def test_the_pictures_keep_their_size(trained: Path) -> None:
    assert load_checkpoint(trained)[0].preprocess.size == SIZE
