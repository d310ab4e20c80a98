"""A real bundle of pictures alone, from publishing to labels: what works, and what says why it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import SETTINGS
from tests.support.command_runs import Ran
from tests.support.pictures import solid
from tests.support.tiny_bundle import build_tiny_bundle
from twinlens.client import NewItem, Part, TwinlensError
from twinlens.server.local import local_server

WHY = "the model tiny/1 embeds pictures only and has no text tower"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny" / "1"
    build_tiny_bundle(folder, text=False)
    return folder


@pytest.fixture
def pictures_only(open_client: Callable[..., Any], bundle: Path, tmp_path: Path) -> Iterator[Any]:
    with local_server(tmp_path / "data", bundle, settings=SETTINGS) as target, open_client(target) as client:
        client.create_collection("photos")
        items = [NewItem(id=colour, image=solid(colour), caption=f"a {colour} wall") for colour in ("red", "blue")]
        assert client.upsert("photos", items).stored == 2
        yield client


def test_both_clients_search_and_label_by_pictures(pictures_only: Any) -> None:
    assert not pictures_only.model().info.has_text_tower
    assert pictures_only.search("photos", image=solid("red", "JPEG"))[0].id == "red"
    assert pictures_only.search("photos", item="blue", top_k=1)[0].caption == "a blue wall"
    (result,) = pictures_only.classify(
        [solid("red", "JPEG")], examples={"warm": [solid("red"), solid("yellow")], "cold": [solid("blue")]}
    )
    assert result.scores[0].label == "warm"


@pytest.mark.parametrize(
    ("call", "so"),
    [
        (lambda c: c.search("photos", text="red"), "a text cannot be embedded; give a picture instead"),
        (lambda c: c.search_batch("photos", ["red", "blue"]), "a text cannot be embedded"),
        (lambda c: c.search("photos", item="red", modality="text"), "search the pictures"),
        (lambda c: c.embed_texts(["red"]), "a text cannot be embedded"),
        (lambda c: c.classify([solid("red")], ["red", "blue"]), "give pictures that show each label (examples)"),
    ],
)
def test_both_clients_are_told_why_there_are_no_texts(pictures_only: Any, call: Callable[[Any], Any], so: str) -> None:
    with pytest.raises(TwinlensError) as caught:
        call(pictures_only)
    assert caught.value.code == "FAILED_PRECONDITION"
    assert caught.value.message.startswith(WHY)
    assert so in caught.value.message
    assert "or use a bundle that has one (`twinlens train clip` trains one" in caught.value.message


def test_of_a_mixed_query_the_part_that_cannot_be_is_named(pictures_only: Any) -> None:
    parts = [Part(image=solid("red")), Part(text="blue", weight=-0.5)]
    with pytest.raises(TwinlensError) as caught:
        pictures_only.search("photos", parts=parts)
    assert caught.value.code == "FAILED_PRECONDITION"
    assert caught.value.message.startswith(f"part 2 of the query (weight -0.5): {WHY}")


def test_a_caption_alone_is_not_stored_and_both_clients_are_told_why(pictures_only: Any) -> None:
    report = pictures_only.upsert("photos", [NewItem(id="words", caption="red"), NewItem(image=solid("green"))])
    assert report.stored == 1
    (failure,) = report.failures
    assert (failure.id, failure.reason) == ("words", "UNSUPPORTED")
    assert failure.message.startswith(WHY)


def test_the_commands_serve_pictures_and_say_why_not_texts(
    run: Callable[..., Ran], bundle: Path, pictures: Path, tmp_path: Path
) -> None:
    assert run("models", "verify", bundle).code == 0
    local = ("--local", tmp_path / "data", "--bundle", bundle)
    assert run("ingest", pictures, "-c", "photos", *local).code == 0
    search = ("search", "-c", "photos", *local)
    found = run(*search, "--image", pictures / "red.png", "--json")
    assert found.json["hits"][0]["id"] == "red.png"
    for words in (("red",), ("--item", "red.png", "--modality", "text")):
        assert run(*search, *words).failed().startswith(f"twinlens: {WHY}")
    away = run(*search, "--item", "red.png", "--negative", "blue").failed()
    assert away.startswith(f"twinlens: part 2 of the query (weight -0.5): {WHY}")
    mined = run("mine", "photos", *local, "--out", tmp_path / "mined.parquet").failed()
    assert "mining starts from captions, and the model tiny/1 embeds pictures only" in mined
    assert "examples" in run("label", pictures, "--labels", "red,blue", *local).failed()
    for colour in ("red", "blue"):
        (tmp_path / "shown" / colour).mkdir(parents=True)
        (tmp_path / "shown" / colour / "a.png").write_bytes(solid(colour))
    labelled = run("label", pictures, "--examples", tmp_path / "shown", *local)
    assert "red.png\tred\t" in labelled.out
    mixed = run("label", pictures, "--examples", tmp_path / "shown", "--text-weight", 0.5, *local).failed()
    assert "there are no words for a text_weight to mix in; leave it at 0" in mixed
    (tmp_path / "words.jsonl").write_text('{"caption": "red"}')
    stored = run("ingest", tmp_path / "words.jsonl", "-c", "photos", *local)
    assert stored.code == 1
    assert WHY in stored.err
    assert WHY in run("ingest", tmp_path / "words.jsonl", "-c", "photos", "--json", *local).out


def test_a_folder_moves_to_a_bundle_of_pictures_alone(
    run: Callable[..., Ran], bundle: Path, tiny_bundle: Path, pictures: Path, tmp_path: Path
) -> None:
    local = ("--local", tmp_path / "data")
    assert run("ingest", pictures, "-c", "photos", *local, "--bundle", tiny_bundle).code == 0
    moved = run("reindex", *local, "--bundle", bundle, "--json")
    assert (moved.code, moved.json["items"]) == (0, 4)
    found = run("search", "--image", pictures / "red.png", "-c", "photos", "--json", *local)
    assert found.json["hits"][0]["id"] == "red.png"
    assert WHY in run("search", "red", "-c", "photos", *local).failed()
