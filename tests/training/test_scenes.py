from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twinlens.training.data.scene_words import CLEAR_DISTANCE, COLOURS, OPPOSITE, Claim, Phrase, Thing, parse, stands
from twinlens.training.data.scenes import (
    KINDS,
    SIBLINGS,
    SceneStyle,
    _corners,
    _positions,
    generate,
    make_scene,
    write_scenes,
)

SCENES = list(generate(600, seed=5, size=32))
QUARTERED = list(generate(1500, seed=5, size=16, style=SceneStyle(three_share=0.5, quarters=True)))


def test_every_caption_is_true_of_its_scene() -> None:
    for scene in SCENES:
        assert scene.claim.holds(scene.things), scene.caption


def test_every_wrong_caption_is_false_of_its_scene() -> None:
    for scene in SCENES:
        assert set(scene.negatives) == set(KINDS)
        for kind, caption in scene.negatives.items():
            assert not parse(caption).holds(scene.things), (scene.id, kind, caption)


def test_wrong_captions_differ_minimally() -> None:
    for scene in SCENES:
        words = Counter(scene.caption.split())
        for kind in ("swap_attribute", "swap_object"):
            assert Counter(scene.negatives[kind].split()) == words
        turned = parse(scene.negatives["swap_relation"])
        assert (turned.phrases, turned.relations[1:]) == (scene.claim.phrases, scene.claim.relations[1:])


def test_captions_read_back_into_what_they_claim() -> None:
    for scene in SCENES:
        assert parse(scene.caption) == scene.claim


@pytest.mark.parametrize("text", ["", "a cat", "a large red circle", "a large red circle left of a cat"])
def test_other_sentences_are_not_captions(text: str) -> None:
    with pytest.raises(ValueError, match="not a caption"):
        parse(text)


def test_a_scene_is_a_pure_function_of_seed_and_index() -> None:
    alone = make_scene(5, 37, 32)
    assert alone.caption == SCENES[37].caption
    assert alone.png() == SCENES[37].png()
    assert alone.png() != make_scene(6, 37, 32).png()


def test_scenes_travel_between_processes() -> None:
    scene = pickle.loads(pickle.dumps(SCENES[0]))  # noqa: S301 - our own bytes
    assert scene.caption == SCENES[0].caption
    assert scene.png() == SCENES[0].png()


def test_siblings_have_the_same_words_in_another_order() -> None:
    scenes = list(generate(200, seed=1, size=16, style=SceneStyle(sibling_share=1.0)))
    for start in range(0, len(scenes), SIBLINGS):
        family = scenes[start : start + SIBLINGS]
        assert len({scene.caption for scene in family}) == SIBLINGS
        assert len({" ".join(sorted(scene.caption.split())) for scene in family}) == 1


def test_a_caption_of_a_sibling_is_false() -> None:
    scenes = list(generate(200, seed=1, size=16, style=SceneStyle(sibling_share=1.0)))
    for start in range(0, len(scenes), SIBLINGS):
        family = scenes[start : start + SIBLINGS]
        for one in family:
            assert [other.claim.holds(one.things) for other in family].count(True) == 1


def test_the_share_of_siblings_is_a_choice() -> None:
    alone = list(generate(200, seed=1, size=16, style=SceneStyle(sibling_share=0.0)))
    bags = {" ".join(sorted(scene.caption.split())) for scene in alone}
    assert len(bags) > 195


def test_attributes_and_relations_all_occur_in_fair_shares() -> None:
    phrases = [phrase for scene in SCENES for phrase in scene.claim.phrases]
    for attribute, kinds in (("colour", 8), ("shape", 6), ("size", 2), ("texture", 3)):
        counts = Counter(getattr(phrase, attribute) for phrase in phrases)
        assert len(counts) == kinds
        assert min(counts.values()) > 0.6 * len(phrases) / kinds
    relations = Counter(scene.claim.relations[0] for scene in SCENES)
    assert min(relations.values()) > 0.6 * len(SCENES) / 4


def test_objects_do_not_overlap_and_stay_in_the_picture() -> None:
    for scene in SCENES:
        for i, a in enumerate(scene.things):
            assert a.radius - 1e-9 <= a.x <= 1 - a.radius + 1e-9
            assert a.radius - 1e-9 <= a.y <= 1 - a.radius + 1e-9
            for b in scene.things[i + 1 :]:
                assert max(abs(a.x - b.x), abs(a.y - b.y)) >= a.radius + b.radius - 1e-9


def test_an_object_shows_its_colour_where_it_stands() -> None:
    for scene in generate(40, seed=9, size=64):
        pixels = np.asarray(scene.image).astype(int)
        for thing in scene.things:
            if thing.texture == "plain" and thing.shape == "square":
                seen = pixels[round(thing.y * 64), round(thing.x * 64)]
                assert np.abs(seen - np.array(COLOURS[thing.colour])).max() < 12


def test_a_side_needs_a_clear_distance() -> None:
    a = Thing("red", "circle", "small", "plain", 0.5, 0.5, 0.1)
    near = Thing("blue", "square", "small", "plain", 0.5 + CLEAR_DISTANCE / 2, 0.5, 0.1)
    far = Thing("blue", "square", "small", "plain", 0.9, 0.5, 0.1)
    assert not stands(a, "left of", near)
    assert stands(a, "left of", far)
    assert not stands(a, "right of", far)


def test_an_unsaid_texture_may_be_any() -> None:
    striped = Thing("red", "circle", "small", "striped", 0.2, 0.5, 0.1)
    square = Thing("blue", "square", "small", "plain", 0.8, 0.5, 0.1)
    unsaid = Claim((Phrase("small", "plain", "red", "circle"), Phrase.of(square)), ("left of",))
    dotted = Claim((Phrase("small", "dotted", "red", "circle"), Phrase.of(square)), ("left of",))
    assert unsaid.holds([striped, square])
    assert not dotted.holds([striped, square])


@pytest.mark.parametrize("relations", [("left of",), ("below",), ("right of", "above"), ("above", "left of")])
def test_the_last_resort_layout_satisfies_every_relation(relations: tuple[str, ...]) -> None:
    centres = _corners(relations)
    things = [Thing("red", "circle", "large", "plain", x, y, 0.2) for x, y in centres]
    assert all(stands(things[0], relation, other) for relation, other in zip(relations, things[1:], strict=True))
    gaps = [max(abs(a.x - b.x), abs(a.y - b.y)) for i, a in enumerate(things) for b in things[i + 1 :]]
    assert min(gaps) >= 0.4


def test_impossible_layouts_fall_back_instead_of_failing() -> None:
    assert _positions(("left of",), [0.45, 0.45], np.random.default_rng(0)) == _corners(("left of",))


def test_captions_are_true_and_wrong_ones_false_in_quarters_too() -> None:
    for scene in QUARTERED:
        assert scene.claim.holds(scene.things), scene.caption
        for caption in scene.negatives.values():
            assert not parse(caption).holds(scene.things), (scene.id, caption)


def test_objects_in_quarters_have_one_each_and_the_first_two_stand_side_by_side() -> None:
    for scene in QUARTERED:
        places = [(thing.x, thing.y) for thing in scene.things]
        assert len(set(places)) == len(places)
        assert {value for place in places for value in place} == {0.25, 0.75}
        (x, y), (u, v) = places[:2]
        assert (x == u) != (y == v)


def test_the_quarters_that_are_taken_do_not_tell_a_relation_from_its_opposite() -> None:
    seen: dict[tuple[object, ...], Counter[str]] = {}
    for scene in QUARTERED:
        taken = frozenset((thing.x, thing.y) for thing in scene.things)
        first, *others = scene.claim.relations
        seen.setdefault((taken, frozenset({first, OPPOSITE[first]}), *others), Counter())[first] += 1
    for relations in seen.values():
        assert len(relations) == 2
        assert min(relations.values()) > 0.25 * relations.total()


def test_written_scenes_are_pictures_with_captions(tmp_path: Path) -> None:
    path = write_scenes(tmp_path, 6, seed=2, size=32)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"scene-2-{i}" for i in range(6)]
    for index, row in enumerate(rows):
        scene = make_scene(2, index, 32)
        assert (row["caption"], row["negatives"]) == (scene.caption, scene.negatives)
        with Image.open(tmp_path / row["image"]) as image:
            assert np.array_equal(np.asarray(image), np.asarray(scene.image))


@pytest.mark.parametrize(("seed", "index", "size"), [(-1, 0, 64), (0, -1, 64), (0, 0, 8)])
def test_arguments_out_of_range_are_refused(seed: int, index: int, size: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        make_scene(seed, index, size)
