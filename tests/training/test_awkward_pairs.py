"""Pairs with duplicates, siblings and near-duplicates: what mining and training make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.pictures import solid
from twinlens.client import Client, NewItem
from twinlens.server.local import local_server
from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.data.batches import Batch, PairBatches
from twinlens.training.data.captions import read_captions
from twinlens.training.data.pairs import Pairs, from_captions, tokenise
from twinlens.training.mining.filters import Guards
from twinlens.training.mining.manifest import MinedNegatives
from twinlens.training.mining.mine import MineOptions, MiningReport, mine

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "awkward_made"


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()]


def checks(folder: Path, kind: str) -> list[dict[str, Any]]:
    cases = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["pairs"]
    found = [case["check"] for case in cases if case["check"]["kind"] == kind]
    assert found
    return found


def picture(folder: Path, name: str) -> bytes:
    """The file, or where the set lacks it the plain colour it is named for."""
    path = folder / name
    return path.read_bytes() if path.is_file() else solid(path.stem.removeprefix("solid_"))


def test_a_batch_counts_no_false_negative(folder: Path, tiny_spec: DualEncoderSpec) -> None:
    pairs = from_files(folder, tiny_spec)
    row_of = {int(identity): row for row, identity in enumerate(pairs.ids)}
    batch = next(iter(PairBatches(pairs, len(pairs), seed=0)))
    order = [row_of_picture(batch, pairs, k) for k in range(batch.pairs)]
    for check in checks(folder, "batch_duplicates"):
        places = [order.index(row_of[number]) for number in check["pairs"]]
        assert batch.equal_texts[places][:, places].all()
        assert batch.equal_images[places][:, places].all()
        others = [k for k in range(batch.pairs) if k not in places]
        assert not batch.equal_texts[places][:, others].any()


def from_files(folder: Path, spec: DualEncoderSpec) -> Pairs:
    """The pairs whose pictures are there, as training reads them."""
    found = from_captions(read_captions(folder / "pairs.jsonl"), spec.preprocess, max_unreadable_share=0.2)
    return tokenise(found, spec.tokenizer_json, spec.text)


def row_of_picture(batch: Batch, pairs: Pairs, place: int) -> int:
    """Which pair stands at a place of the batch, told by its picture and caption."""
    for row in range(len(pairs)):
        same_picture = np.array_equal(batch.pixels_nhwc[place].numpy(), pairs.pixels_nhwc[pairs.slots[row]])
        if same_picture and np.array_equal(batch.token_ids_nl[place].numpy(), pairs.token_ids_ml[row]):
            return row
    raise AssertionError("the batch holds a pair that the data does not")


# A bundle of tiny towers tells nothing alike: the rules must hold whatever the encoder thinks.
@pytest.fixture(scope="module")
def mined(folder: Path, tiny_bundle: Path) -> tuple[MinedNegatives, MiningReport]:
    ask = checks(folder, "mining_shortfall")[0]["ask"]
    with local_server(bundle=tiny_bundle) as target, Client(target) as client:
        client.create_collection("pairs")
        items = [NewItem(picture(folder, row["image"]), row["caption"], str(row["id"])) for row in rows(folder)]
        assert client.upsert("pairs", items).stored == len(items)
        return mine(client, "pairs", "s", MineOptions(per_anchor=ask, guards=Guards(margin=None), near_duplicate=None))


def negatives(mined: MinedNegatives, anchor: int, kind: str) -> list[int]:
    found = zip(mined.anchor_ids, mined.negative_ids, mined.kinds, strict=True)
    return [int(negative) for one, negative, of in found if (int(one), of) == (anchor, kind)]


@pytest.mark.parametrize("kind", ["text", "image"])
def test_what_is_right_for_a_pair_is_never_its_negative(
    folder: Path, mined: tuple[MinedNegatives, MiningReport], kind: str
) -> None:
    for check in checks(folder, "mining_never"):
        assert set(check["never"]).isdisjoint(negatives(mined[0], check["anchor"], kind))


@pytest.mark.parametrize("kind", ["text", "image"])
def test_a_shortfall_is_reported_and_not_filled_up(
    folder: Path, mined: tuple[MinedNegatives, MiningReport], kind: str
) -> None:
    for check in checks(folder, "mining_shortfall"):
        assert sorted(negatives(mined[0], check["anchor"], kind)) == check["legal"]
        assert mined[1].kinds[kind].short[str(check["anchor"])] == len(check["legal"]) < check["ask"]  # type: ignore[index]
