"""Tokenizers for the tiny models, a stand-in for the export, and a machine without a network."""

from __future__ import annotations

import pytest

from tests.support.tokenizer_families import Families
from twinlens.encoders.manifest import Manifest
from twinlens.training.export import bundle as bundle_module
from twinlens.training.export.bundle import About
from twinlens.training.export.towers import ImageExport, TextExport


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> Families:
    return Families(tmp_path_factory.mktemp("tokenizers"))


class Published:
    """Stands in for the export, which other tests cover, and keeps what it was given."""

    def __init__(self) -> None:
        self.image: ImageExport | None = None
        self.text: TextExport | None = None
        self.about: About | None = None

    def __call__(
        self, image: ImageExport | None, text: TextExport | None, about: About, *_: object, **__: object
    ) -> Manifest:
        self.image, self.text, self.about = image, text, about
        return None  # type: ignore[return-value]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    stand_in = Published()
    monkeypatch.setattr(bundle_module, "publish_towers", stand_in)
    return stand_in


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    # Where an earlier look finds nothing, the client looks no further.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
