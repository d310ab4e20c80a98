"""What `pull` keeps for training gives the vectors that it serves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from tests.support import tiny_hugging_face, tiny_timm
from tests.support.tiny_open_clip import OPEN_CLIP, open_clip_model
from tests.support.tiny_weights import TinyModel
from tests.support.tokenizer_families import Families
from tests.training.pull.conftest import Published
from twinlens.encoders.tokenise import collate
from twinlens.training.export.dual_encoder_towers import dual_encoder_towers
from twinlens.training.export.open_clip_towers import scoring_rule
from twinlens.training.image_checkpoint import load_image_checkpoint
from twinlens.training.pull.families import pull, towers_of
from twinlens.training.pull.pulled import PulledTowers
from twinlens.training.pull.source import parse_source
from twinlens.training.sections.model import ModelConfig
from twinlens.training.start import Parent, start_of
from twinlens.training.text_checkpoint import load_text_checkpoint

DUAL: dict[str, Callable[[Path, Families], TinyModel]] = {
    **{kind: functools.partial(open_clip_model, kind) for kind in OPEN_CLIP},
    "hf_clip": lambda folder, _: tiny_hugging_face.hf_clip(folder),
    "hf_siglip": tiny_hugging_face.hf_siglip,
}
TEXTS = ("a cat", "two dogs in the snow")


def pulled(tiny: TinyModel) -> PulledTowers:
    found = towers_of(parse_source(tiny.source), tiny.choices, lambda _: None)
    assert found.keep is not None
    return found


@pytest.mark.parametrize("kind", DUAL)
def test_a_dual_encoder_goes_on_from_what_it_serves(kind: str, tmp_path: Path, families: Families) -> None:
    towers = pulled(DUAL[kind](tmp_path, families))
    path = tmp_path / "kept.pt"
    assert towers.keep is not None
    assert towers.image is not None
    assert towers.text is not None
    towers.keep(path)
    start = start_of(ModelConfig(from_checkpoint=path))
    assert isinstance(start, Parent)
    spec, model = start.spec, start.model
    size = spec.preprocess.size
    pixels = torch.randn(2, 3, size, size)
    tokens = towers.text.tokenise(TEXTS)
    ids, _ = collate(tokens, spec.text.model_copy(update={"pad_to_context": True}))
    with torch.no_grad():
        image = model.encode_image(pixels)  # type: ignore[operator]
        torch.testing.assert_close(normalize(image), normalize(towers.image.module(pixels)), atol=1e-5, rtol=1e-4)
        text = model.encode_text(torch.from_numpy(ids))  # type: ignore[operator]
    expected = torch.from_numpy(towers.text.expected(tokens))
    torch.testing.assert_close(normalize(text), normalize(expected), atol=1e-5, rtol=1e-4)
    assert scoring_rule(model).rule == towers.scoring.rule
    image_again, text_again = dual_encoder_towers(spec, model)
    assert image_again.preprocess == towers.image.preprocess
    assert text_again.spec == towers.text.spec
    again = torch.from_numpy(text_again.expected(tokens))
    torch.testing.assert_close(normalize(again), normalize(expected), atol=1e-5, rtol=1e-4)
    assert scoring_rule(model).scale == pytest.approx(towers.scoring.scale, rel=1e-5)


def test_an_image_encoder_of_timm_is_kept_as_one(tmp_path: Path) -> None:
    towers = pulled(tiny_timm.timm_model(tmp_path))
    assert towers.keep is not None
    assert towers.image is not None
    towers.keep(tmp_path / "kept.pt")
    spec, backbone, _ = load_image_checkpoint(tmp_path / "kept.pt")
    pixels = torch.randn(2, 3, spec.preprocess.size, spec.preprocess.size)
    with torch.no_grad():
        torch.testing.assert_close(backbone(pixels), towers.image.module(pixels), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("kind", "dense"), [("bert", True), ("roberta", False), ("distilbert", False)])
def test_a_text_encoder_is_kept_as_one(kind: str, dense: bool, tmp_path: Path) -> None:
    towers = pulled(tiny_hugging_face.sentence_model(tmp_path, kind, "mean", dense=dense))
    assert towers.keep is not None
    assert towers.text is not None
    towers.keep(tmp_path / "kept.pt")
    spec, tower, _ = load_text_checkpoint(tmp_path / "kept.pt")
    assert spec.text == towers.text.spec
    tokens = towers.text.tokenise(TEXTS)
    ids, mask = (torch.from_numpy(each) for each in collate(tokens, spec.text))
    with torch.no_grad():
        torch.testing.assert_close(
            tower(ids, mask), torch.from_numpy(towers.text.expected(tokens)), atol=1e-5, rtol=1e-4
        )


def test_a_model_that_training_does_not_know_is_pulled_with_a_word_about_it(
    tmp_path: Path, published: Published
) -> None:
    said: list[str] = []
    tiny = tiny_hugging_face.hf_vit(tmp_path)
    pull(tiny.source, tmp_path / "bundle", tiny.choices, say=said.append)
    assert published.image is not None
    assert [line for line in said if "keeps no checkpoint" in line]
    said.clear()
    pull(tiny.source, tmp_path / "bundle", tiny.choices, with_checkpoint=False, say=said.append)
    assert not said
