from __future__ import annotations

from twinlens.server.core.lanes import Lanes, Priority


def take_all(lanes: Lanes[str], priority: Priority, bucket: object = None) -> list[str]:
    taken = []
    while (entry := lanes.pop(priority, bucket)) is not None:
        taken.append(entry)
    return taken


def test_lanes_keep_the_order_within_a_lane() -> None:
    lanes: Lanes[str] = Lanes()
    for entry in "abc":
        lanes.push(Priority.BULK, entry)
    assert lanes.choose() is Priority.BULK
    assert take_all(lanes, Priority.BULK) == ["a", "b", "c"]
    assert len(lanes) == 0


def test_the_bucket_of_the_oldest_entry_goes_first() -> None:
    lanes: Lanes[str] = Lanes()
    for entry, bucket in (("a", "long"), ("b", "short"), ("c", "long"), ("d", "short")):
        lanes.push(Priority.INTERACTIVE, entry, bucket)
    assert lanes.oldest_bucket(Priority.INTERACTIVE) == "long"
    assert take_all(lanes, Priority.INTERACTIVE, "long") == ["a", "c"]
    assert lanes.oldest_bucket(Priority.INTERACTIVE) == "short"
    lanes.push(Priority.INTERACTIVE, "e", "long")
    assert take_all(lanes, Priority.INTERACTIVE) == ["b", "d", "e"]


def test_what_is_pushed_first_goes_before_what_came_earlier() -> None:
    lanes: Lanes[str] = Lanes()
    lanes.push(Priority.INTERACTIVE, "earlier")
    for entry in ("second", "first"):
        lanes.push(Priority.INTERACTIVE, entry, entry, first=True)
    assert take_all(lanes, Priority.INTERACTIVE) == ["first", "second", "earlier"]


def test_the_most_urgent_lane_is_told_whoever_has_the_turn() -> None:
    lanes: Lanes[str] = Lanes(bulk_every=1)
    assert lanes.most_urgent() is None
    lanes.push(Priority.BULK, "bulk")
    lanes.push(Priority.INTERACTIVE, "interactive")
    assert lanes.choose() is Priority.BULK
    assert lanes.most_urgent() is Priority.INTERACTIVE


def test_turns_in_which_no_bulk_work_waited_do_not_hasten_it() -> None:
    lanes: Lanes[str] = Lanes()
    for _ in range(10):
        lanes.turn_taken(Priority.INTERACTIVE)
    lanes.push(Priority.BULK, "bulk")
    lanes.push(Priority.INTERACTIVE, "interactive")
    chosen = []
    for _ in range(5):
        chosen.append(lanes.choose())
        lanes.turn_taken(chosen[-1])
    assert chosen == [*[Priority.INTERACTIVE] * 3, Priority.BULK, Priority.INTERACTIVE]


def test_draining_takes_everything_in_order() -> None:
    lanes: Lanes[str] = Lanes()
    for entry, priority, bucket in (
        ("c", Priority.BULK, 1),
        ("a", Priority.INTERACTIVE, 1),
        ("b", Priority.INTERACTIVE, 2),
        ("d", Priority.BULK, 2),
    ):
        lanes.push(priority, entry, bucket)
    assert lanes.drain() == ["a", "b", "c", "d"]
    assert len(lanes) == 0
    assert lanes.pop(Priority.BULK) is None
