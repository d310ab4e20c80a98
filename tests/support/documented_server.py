"""The server that the examples of the documentation talk to: a few pictures of cats and dogs, in colours.

The encoder knows colours by name. Here a cat is red, a dog blue, a sofa green, and so are their pictures.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS
from twinlens.client import Client, NewItem
from twinlens.encoders.tokenise import TokenisedText
from twinlens.server.local import local_server
from twinlens.server.services.interceptor import CallInterceptor
from twinlens.server.settings import Settings

_COLOUR_OF = {"cat": "red", "dog": "blue", "sofa": "green", "snow": "white"}
_CHANGING = ("Create", "Delete", "Drop", "Merge", "Put", "Restore", "Upsert", "Backup")
_PICTURES = {
    "cat.jpg": "cat",
    "dog.png": "dog",
    "sofa.webp": "sofa",
    "tom.jpg": "cat",
    "kit.jpg": "cat",
    "rex.jpg": "dog",
}


class SpeakingEncoder(FakeEncoder):
    """Takes a thing's name for its colour's."""

    def __init__(self) -> None:
        super().__init__(384, name="starter")

    def prepare_text(self, text: str) -> TokenisedText:
        words = text.lower().replace(".", " ").replace(",", " ").split()
        return super().prepare_text(" ".join(_COLOUR_OF.get(word, word) for word in words))


@dataclass(frozen=True, slots=True)
class DocumentedServer:
    """A server, a folder of files beside it, and which methods were called."""

    target: str
    folder: Path
    called: set[str]

    def begin_anew(self) -> None:
        """Puts everything back to what the examples begin with, where something was changed since."""
        if any(method.rpartition("/")[2].startswith(_CHANGING) for method in self.called):
            self.fill()
        self.called.clear()

    def fill(self) -> None:
        """Stores what the examples begin with, and nothing else."""
        with Client(self.target) as client:
            for collection in client.list_collections():
                client.delete_collection(collection.id)
            for each in client.list_label_sets():
                client.delete_label_set(each.id)
            shutil.rmtree(self.folder / "backups", ignore_errors=True)
            client.create_collection("photos")
            client.create_collection("pets")
            client.upsert("photos", self._photos())
            client.upsert("pets", self._pets())
            client.put_label_set("pets", ["cat", "dog"])

    def _photos(self) -> list[NewItem]:
        lighter = Image.new("RGB", (48, 40), (255, 60, 60))
        rows: list[tuple[str, Any, str, dict[str, Any]]] = [
            ("cat.jpg", "cat.jpg", "a cat", {"tag": "cat", "year": 2020, "camera": {"model": "X100"}}),
            ("dog.jpg", "dog.png", "a dog", {"tag": "dog", "year": 2021}),
            ("sofa.jpg", "sofa.webp", "a sofa", {"tag": "sofa", "year": 2019}),
            ("2024/cat.jpg", lighter, "another cat", {"tag": "cat", "year": 2024}),
        ]
        return [
            NewItem(
                id=name, image=self.folder / found if isinstance(found, str) else found, caption=said, metadata=more
            )
            for name, found, said, more in rows
        ]

    def _pets(self) -> list[NewItem]:
        breeds = {"tom.jpg": "tabby", "kit.jpg": "tabby", "rex.jpg": "beagle"}
        return [NewItem(id=name, image=self.folder / name, metadata={"breed": breeds[name]}) for name in breeds]


@contextmanager
def documented_server(folder: Path) -> Iterator[DocumentedServer]:
    """Writes the files and serves; the server's data and backups are in the folder, too."""
    for name, thing in _PICTURES.items():
        Image.new("RGB", (48, 40), COLOURS[_COLOUR_OF[thing]]).save(folder / name)
    (folder / "broken.jpg").write_bytes(b"this is no picture")
    settings = Settings(canary_interval_s=3600.0, backups=str(folder / "backups"))
    called: set[str] = set()
    intercept = CallInterceptor.intercept_service

    async def noting(self: CallInterceptor, continuation: Any, details: Any) -> Any:
        called.add(details.method)
        return await intercept(self, continuation, details)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(CallInterceptor, "intercept_service", noting)
        with local_server(folder / "data", encoder=SpeakingEncoder(), settings=settings) as target:
            server = DocumentedServer(target, folder, called)
            server.fill()
            called.clear()
            yield server
