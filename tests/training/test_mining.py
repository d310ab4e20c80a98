from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from twinlens.client.types import Hit, Item, ItemError, Modality, Part, QueryInput, QueryResult
from twinlens.training.data.caption_key import caption_key, contains
from twinlens.training.mining.candidates import Candidates, Neighbour, near_pictures
from twinlens.training.mining.command import report_table
from twinlens.training.mining.filters import Equals, Guards, apply, positive_score
from twinlens.training.mining.manifest import MinedNegatives, MiningError, read_manifest, write_manifest
from twinlens.training.mining.mine import MineOptions, mine
from twinlens.training.mining.sampling import sample

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = Equals({}, {}, {}, {})


class FakeIndex:
    """Exact search over given vectors; knows its items' captions as queries."""

    def __init__(self, vectors: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]], **items: Item) -> None:
        self._vectors = vectors
        self._items = {
            one: items.get(one, Item(one, "", f"caption {one}", {}, f"hash {one}", NOW, NOW)) for one in vectors
        }

    def list_items(self, collection: str) -> Iterator[Item]:
        del collection
        return iter(self._items.values())

    def search_batch(
        self, collection: str, queries: Sequence[QueryInput], *, modality: Modality = "image", top_k: int = 10
    ) -> list[QueryResult]:
        del collection
        return [self._answer(query, modality, top_k) for query in queries]

    def _answer(self, query: QueryInput, modality: Modality, top_k: int) -> QueryResult:
        side = 0 if modality == "image" else 1
        if isinstance(query, str):
            if query == "broken":
                return QueryResult((), ItemError("INVALID_TEXT", "it is broken"))
            vector = next(self._vectors[i.id][1] for i in self._items.values() if i.caption == query)
        else:
            assert isinstance(query, Part)
            assert query.item is not None
            vector = self._vectors[query.item][0]
        scored = sorted(((float(v[side] @ vector), one) for one, v in self._vectors.items()), reverse=True)
        return QueryResult(tuple(Hit(one, score) for score, one in scored[:top_k]))


def circle(*degrees: float) -> list[NDArray[np.float64]]:
    angles = np.radians(degrees)
    return [np.array([np.cos(a), np.sin(a)]) for a in angles]


def index(**items: Item) -> FakeIndex:
    """Four items on a circle: captions at 0, 10, 21, 60 degrees, pictures 2 degrees further."""
    captions, pictures = circle(0, 10, 21, 60), circle(2, 12, 23, 62)
    return FakeIndex(dict(zip("abcd", zip(pictures, captions, strict=True), strict=True)), **items)


def options(**changes: object) -> MineOptions:
    return MineOptions(**{"near_duplicate": None, "top_k": 4, **changes})  # type: ignore[arg-type]


def pairs_of(mined: MinedNegatives, kind: str) -> set[tuple[str, str]]:
    return {(a, n) for a, n, k in zip(mined.anchor_ids, mined.negative_ids, mined.kinds, strict=True) if k == kind}


def test_the_nearest_wrong_captions_are_mined_nearest_first() -> None:
    mined, _ = mine(index(), "c", "space", options(kinds=("text",), per_anchor=1))
    assert pairs_of(mined, "text") == {("a", "b"), ("b", "a"), ("c", "b"), ("d", "c")}
    assert list(mined.positive_scores) == pytest.approx([1.0] * 4)
    assert mined.space_id == "space"


def test_pictures_that_outscore_the_right_one_are_suspect_unless_the_margin_allows_them() -> None:
    # Caption b (10°): its picture is at 12° (2° off), picture a at 2° (8° off), picture c at 23° (13° off).
    mined, report = mine(index(), "c", "space", options(kinds=("image",), per_anchor=9))
    assert ("b", "a") in pairs_of(mined, "image")
    turned = FakeIndex(dict(zip("ab", zip(circle(10, 1), circle(0, 90), strict=True), strict=True)))
    strict, report = mine(turned, "c", "space", options(kinds=("image",)))
    assert ("a", "b") not in pairs_of(strict, "image")
    assert report.kinds["image"].dropped["within the margin"] >= 1
    lenient, _ = mine(turned, "c", "space", options(kinds=("image",), guards=Guards(margin=-0.1)))
    assert ("a", "b") in pairs_of(lenient, "image")


def test_equals_are_never_negatives() -> None:
    twin = Item("b", "", "Caption  A.", {}, "hash b", NOW, NOW)
    copy = Item("c", "", "caption c", {}, "hash a", NOW, NOW)
    mined, report = mine(index(b=twin, c=copy), "c", "s", options(per_anchor=9))
    for kind in ("text", "image"):
        assert pairs_of(mined, kind).isdisjoint({("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")})
        assert report.kinds[kind].dropped["same caption"] == 2
        assert report.kinds[kind].dropped["same picture"] == 2
        assert report.kinds[kind].dropped["itself"] == 4


def test_members_of_a_group_are_right_for_each_other() -> None:
    first = Item("a", "", "caption a", {"photo": 7}, "hash a", NOW, NOW)
    second = Item("b", "", "caption b", {"photo": 7}, "hash b", NOW, NOW)
    mined, report = mine(index(a=first, b=second), "c", "s", options(group_key="photo", kinds=("text",), per_anchor=9))
    assert {("a", "b"), ("b", "a")}.isdisjoint(pairs_of(mined, "text"))
    assert report.kinds["text"].dropped["same group"] == 2
    with pytest.raises(MiningError, match="no item of c has 'shot'"):
        mine(index(), "c", "s", options(group_key="shot"))


def test_near_duplicate_pictures_are_left_out_for_both_kinds() -> None:
    mined, report = mine(index(), "c", "s", options(near_duplicate=float(np.cos(np.radians(11.5))), per_anchor=9))
    for kind in ("text", "image"):
        assert {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}.isdisjoint(pairs_of(mined, kind))
        assert report.kinds[kind].dropped["near-duplicate picture"] == 4
    assert ("a", "c") in pairs_of(mined, "text")


def test_a_caption_of_the_same_picture_is_right_wherever_it_stands() -> None:
    # a and b are captions of one picture; c, another picture, has the caption of b.
    sibling = Item("b", "", "caption b", {}, "hash a", NOW, NOW)
    echo = Item("c", "", "caption b", {}, "hash c", NOW, NOW)
    mined, report = mine(index(b=sibling, c=echo), "c", "s", options(per_anchor=9))
    for kind in ("text", "image"):
        assert {("a", "c"), ("c", "a")}.isdisjoint(pairs_of(mined, kind))
        assert report.kinds[kind].dropped["caption of the same picture"] == 2
    assert ("a", "d") in pairs_of(mined, "text")


def test_a_caption_that_says_more_is_no_negative() -> None:
    longer = Item("b", "", "Today: caption A, low quality", {}, "hash b", NOW, NOW)
    mined, report = mine(index(b=longer), "c", "s", options(per_anchor=9))
    for kind in ("text", "image"):
        assert {("a", "b"), ("b", "a")}.isdisjoint(pairs_of(mined, kind))
        assert report.kinds[kind].dropped["caption within the other"] == 2


def test_containing_is_by_whole_words_in_a_row() -> None:
    assert contains("a dog on a beach", "A dog.")
    assert not contains("a dogma", "a dog")
    assert not contains("a big dog", "a dog")
    assert not contains("a dog", "...")


def test_more_near_duplicates_than_candidates_are_all_found() -> None:
    many = {f"{number:03d}": (circle(0.01 * number)[0], circle(90)[0]) for number in range(40)}
    crowd = FakeIndex({**many, "far": (circle(60)[0], circle(0)[0])})
    alike = near_pictures(crowd, "c", ["000", "far"], min_score=0.99, top_k=3)
    assert alike == {"000": frozenset(many) - {"000"}, "far": frozenset()}


def test_a_search_for_near_duplicates_that_fails_is_no_answer() -> None:
    class Failing(FakeIndex):
        reason = "NOT_FOUND"

        def _answer(self, query: QueryInput, modality: Modality, top_k: int) -> QueryResult:
            del query, modality, top_k
            return QueryResult((), ItemError(self.reason, "it has none"))

    failing = Failing({"a": (circle(0)[0], circle(0)[0])})
    assert near_pictures(failing, "c", ["a"], min_score=0.99, top_k=3) == {"a": frozenset()}
    failing.reason = "INTERNAL"
    with pytest.raises(MiningError, match="could not search for 'a'"):
        near_pictures(failing, "c", ["a"], min_score=0.99, top_k=3)


def test_anchors_that_get_fewer_than_asked_for_are_named() -> None:
    mined, report = mine(index(), "c", "s", options(per_anchor=3, kinds=("text",)))
    assert report.kinds["text"].short == {}
    mined, report = mine(index(), "c", "s", options(per_anchor=3, kinds=("text",), guards=Guards(min_score=0.9)))
    assert report.kinds["text"].short == {"a": 2, "b": 2, "c": 2, "d": 0}
    assert Counter(mined.anchor_ids) == {"a": 2, "b": 2, "c": 2}


def test_items_without_captions_are_candidates_but_no_anchors() -> None:
    bare = Item("b", "", " ", {}, "hash b", NOW, NOW)
    mined, report = mine(index(b=bare), "c", "s", options(kinds=("image",), per_anchor=9))
    assert report.without_caption == 1
    assert "b" not in mined.anchor_ids
    assert "b" in mined.negative_ids


def test_the_counts_add_up() -> None:
    _, report = mine(index(), "c", "s", options(guards=Guards(rank_max=2, min_score=0.8), per_anchor=1))
    for counts in report.kinds.values():
        assert counts.anchors == 4
        assert counts.candidates == 16
        assert counts.adds_up()
        assert counts.dropped["itself"] == 4
    assert report_table(report, "title").row_count >= 5


def test_mining_needs_two_captions_and_answers() -> None:
    alone = FakeIndex(dict(zip("a", zip(circle(2), circle(0), strict=True), strict=True)))
    with pytest.raises(MiningError, match=r"has 1 item\(s\) with a caption"):
        mine(alone, "c", "s", options())
    broken = Item("b", "", "broken", {}, "hash b", NOW, NOW)
    with pytest.raises(MiningError, match="could not search for 'b': it is broken"):
        mine(index(b=broken), "c", "s", options())


def test_progress_reaches_its_end() -> None:
    seen: list[tuple[int, int]] = []
    mine(index(), "c", "s", options(), lambda done, of: seen.append((done, of)))
    assert seen[-1] == (8, 8)


def five() -> Candidates:
    return Candidates(
        "p", "image", tuple(Neighbour(n, s) for n, s in zip("xpyzw", (0.9, 0.8, 0.7, 0.5, 0.1), strict=True))
    )


@pytest.mark.parametrize(
    ("guards", "left"),
    [
        (Guards(margin=None), "xyzw"),
        (Guards(), "yzw"),
        (Guards(margin=0.2), "zw"),
        (Guards(margin=-0.2), "xyzw"),
        (Guards(margin=None, relative_margin=0.25), "zw"),
        (Guards(margin=None, relative_margin=0.0), "yzw"),
        (Guards(margin=None, max_score=0.6), "zw"),
        (Guards(margin=None, min_score=0.6), "xy"),
        (Guards(margin=None, rank_min=1), "yzw"),
        (Guards(margin=None, rank_max=2), "xy"),
        (Guards(margin=None, rank_min=1, rank_max=3), "yz"),
    ],
)
def test_each_guard_does_what_its_name_says(guards: Guards, left: str) -> None:
    result = apply(five(), NOTHING, guards)
    assert "".join(s.neighbour.id for s in result.survivors) == left
    assert result.dropped.total() + len(result.survivors) == 5


def test_a_picture_out_of_sight_scores_less_than_all_in_sight() -> None:
    unseen = Candidates("q", "image", five().neighbours)
    assert positive_score(unseen) == 0.1
    assert positive_score(five()) == 0.8
    assert positive_score(Candidates("q", "text", five().neighbours)) == 1.0
    assert apply(unseen, NOTHING, Guards()).survivors[0].neighbour.id == "w"


def test_the_relative_margin_lies_below_the_positive_also_where_that_is_negative() -> None:
    below = Candidates("p", "image", (Neighbour("p", -0.2), Neighbour("x", -0.25), Neighbour("y", -0.35)))
    result = apply(below, NOTHING, Guards(margin=None, relative_margin=0.5))
    assert [s.neighbour.id for s in result.survivors] == ["y"]


@pytest.mark.parametrize(
    "changes",
    [{"rank_min": -1}, {"rank_min": 3, "rank_max": 3}, {"relative_margin": 1.0}, {"min_score": 1.0, "max_score": 0.0}],
)
def test_guards_out_of_bounds_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Guards(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"top_k": 0}, {"per_anchor": 0}, {"kinds": ()}])
def test_options_out_of_bounds_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="at least"):
        MineOptions(**changes)  # type: ignore[arg-type]


def test_sampling_takes_the_nearest_or_any_without_repetition() -> None:
    survivors = apply(five(), NOTHING, Guards(margin=None)).survivors
    rng = np.random.default_rng(0)
    assert sample(survivors, 2, "nearest", rng) == survivors[:2]
    assert sample(survivors, 9, "random", rng) == survivors
    drawn: Counter[str] = Counter()
    for _ in range(200):
        chosen = sample(survivors, 2, "random", rng)
        assert len({s.neighbour.id for s in chosen}) == 2
        assert [s.rank for s in chosen] == sorted(s.rank for s in chosen)
        drawn.update(s.neighbour.id for s in chosen)
    assert min(drawn.values()) > 70


@pytest.mark.parametrize("caption", ["A  cat.", " a cat", "a CAT!"])
def test_captions_that_say_the_same_have_one_key(caption: str) -> None:
    assert caption_key(caption) == caption_key("a cat") != caption_key("a cat on a mat")


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    mined, _ = mine(index(), "c", "space", options())
    path = tmp_path / "mined.parquet"
    write_manifest(path, mined)
    back = read_manifest(path)
    assert list(back.anchor_ids) == list(mined.anchor_ids)
    assert list(back.negative_ids) == list(mined.negative_ids)
    assert list(back.kinds) == list(mined.kinds)
    assert back.scores == pytest.approx(mined.scores, abs=1e-6)
    assert (back.space_id, back.collection, len(back)) == ("space", "c", len(mined))
    assert [file.name for file in tmp_path.iterdir()] == ["mined.parquet"]


def test_an_empty_manifest_is_a_manifest(tmp_path: Path) -> None:
    mined, _ = mine(index(), "c", "space", options(guards=Guards(max_score=-1.0)))
    write_manifest(tmp_path / "mined.parquet", mined)
    assert len(read_manifest(tmp_path / "mined.parquet")) == 0


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mined.parquet"
    with pytest.raises(MiningError, match="no hard-negative manifest"):
        read_manifest(path)
    path.write_bytes(b"not parquet")
    with pytest.raises(MiningError, match="not a Parquet file"):
        read_manifest(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(MiningError, match="not a hard-negative manifest"):
        read_manifest(path)
    pq.write_table(pa.table({"a": [1]}, metadata={"twinlens.kind": "hard-negatives", "twinlens.version": "99"}), path)
    with pytest.raises(MiningError, match="version 99"):
        read_manifest(path)
    pq.write_table(pa.table({"a": [1]}, metadata={"twinlens.kind": "hard-negatives", "twinlens.version": "1"}), path)
    with pytest.raises(MiningError, match="damaged manifest: it lacks anchor_id"):
        read_manifest(path)
