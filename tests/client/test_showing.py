"""What people see: contact sheets, tables, progress."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from PIL import Image
from rich.console import Console

from tests.support.pictures import COLOURS, solid
from twinlens.client import Classification, Collection, Hit, ItemError, LabelScore, ModelInfo
from twinlens.client.collection_tables import collection_details, collection_table
from twinlens.client.collection_types import CollectionBytes
from twinlens.client.contact_sheet import contact_sheet
from twinlens.client.progress import progress
from twinlens.client.tables import count_table, hit_table, label_table


def shown(*tables: object, width: int = 100) -> str:
    buffer = io.StringIO()
    Console(file=buffer, width=width, force_terminal=False).print(*tables)
    return buffer.getvalue()


def test_a_sheet_has_a_cell_a_picture_under_each_title() -> None:
    rows = [
        ("warm", [(solid("red"), "red.png 0.9"), (solid("yellow"), "yellow.png")]),
        ("cold", [(solid("blue"), "b")]),
    ]
    sheet = contact_sheet(rows, columns=2, cell=100)
    assert (sheet.mode, sheet.width) == ("RGB", 12 + 2 * (100 + 12))
    colours = {colour for _, colour in sheet.getcolors(1 << 20) or []}
    assert {COLOURS["red"], COLOURS["yellow"], COLOURS["blue"]} <= colours
    middle = sheet.getpixel((12 + 50, 12 + 33 + 50))
    assert middle == COLOURS["red"]


def test_a_row_longer_than_the_sheet_is_wide_goes_on_below() -> None:
    cells = [(solid("red"), str(n)) for n in range(5)]
    short, long = contact_sheet([("t", cells[:2])], columns=2), contact_sheet([("t", cells)], columns=2)
    assert long.width == short.width
    assert long.height > 2 * short.height
    assert contact_sheet([("t", cells)]).width > long.width


def test_a_bad_picture_is_a_grey_cell() -> None:
    sheet = contact_sheet([("t", [(b"broken", "broken"), (b"", "none"), (solid("red")[:60], "cut short")])], cell=64)
    assert (212, 212, 216) in {colour for _, colour in sheet.getcolors(1 << 20) or []}


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16"])
def test_pictures_of_every_mode_are_drawn(mode: str) -> None:
    buffer = io.BytesIO()
    picture = (
        Image.new("I;16", (64, 64), 40_000) if mode == "I;16" else Image.new("RGB", (64, 64), "white").convert(mode)
    )
    picture.save(buffer, format="TIFF" if mode == "CMYK" else "PNG")
    sheet = contact_sheet([("t", [(buffer.getvalue(), "c")])], cell=64)
    assert (212, 212, 216) not in {colour for _, colour in sheet.getcolors(1 << 20) or []}


def test_what_is_clear_is_drawn_over_white() -> None:
    buffer = io.BytesIO()
    Image.new("RGBA", (64, 64), (255, 0, 0, 0)).save(buffer, format="PNG")
    sheet = contact_sheet([("", [(buffer.getvalue(), "")])], cell=64)
    assert COLOURS["red"] not in {colour for _, colour in sheet.getcolors(1 << 20) or []}


def test_sheets_of_nothing_and_long_captions_are_drawn() -> None:
    assert contact_sheet([]).height > 0
    assert contact_sheet([("no hits", [])]).height > 100
    contact_sheet([("x" * 5000, [(solid("red"), "very/long/" * 50)])], cell=64)


@pytest.mark.parametrize(("columns", "cell"), [(0, 100), (2, 10)])
def test_a_sheet_too_small_to_draw_is_refused(columns: int, cell: int) -> None:
    with pytest.raises(ValueError, match="columns >= 1"):
        contact_sheet([], columns=columns, cell=cell)


def test_a_table_of_hits_names_each_query_once() -> None:
    hits = [Hit("a.png", 0.5, caption="a cat"), Hit("b.png", -0.25)]
    text = shown(hit_table("Hits", [("cats", hits), ("dogs", [])]))
    assert text.count("cats") == 1
    for part in ("Hits", "0.500", "-0.250", "a.png", "a cat", "dogs", "no hits"):
        assert part in text
    assert "caption" not in shown(hit_table("Hits", [("cats", hits)], captions=False))


def test_names_of_files_are_never_taken_for_markup_or_control_characters() -> None:
    text = shown(hit_table("[red]T[/red]", [("q", [Hit("[bold]x[/bold]\x1b[2J\n.png", 1.0)])]))
    assert r"[bold]x[/bold]\x1b[2J\n.png" in text
    assert "\x1b" not in text


def test_a_table_of_labels_shows_runners_up_and_failures() -> None:
    good = Classification((LabelScore("cat", 0.3, 0.9), LabelScore("dog", 0.1, 0.1)))
    text = shown(
        label_table("Labels", ["a.png", "b.png"], [good, Classification((), ItemError("X", "not a\x1b picture"))])
    )
    for part in ("a.png", "cat", "0.900", "dog 0.100", "b.png", r"not a\x1b picture"):
        assert part in text


def test_counts_come_most_often_first() -> None:
    text = shown(count_table("Counts", {"a": 1, "b": 1200, "c": 1}))
    assert "1,200" in text
    assert text.index("b ") < text.index("a ") < text.index("c ")


def test_progress_without_a_terminal_is_plain_lines_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with progress("labelled") as bar:
        for _ in range(5):
            bar.advance(1000)
            now[0] += 6.0
        bar.say("x" * 300 + " [red]\x1b :car:")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["labelled 3,000", "labelled 5,000", "x" * 300 + r" [red]\x1b :car:"]


def test_progress_on_a_terminal_is_a_bar_that_learns_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, width=100)
    monkeypatch.setattr("twinlens.client.progress.stderr_console", lambda: console)
    counted: list[int] = []

    def count() -> int:
        counted.append(7)
        return 7

    counter: Callable[[], int] = count
    with progress("labelled", counter) as bar:
        bar.advance(7)
        bar.say("a line")
    assert "labelled" in buffer.getvalue()
    assert "a line" in buffer.getvalue()
    assert counted == [7]


def test_the_details_of_a_collection_say_what_computed_its_vectors_and_what_it_takes() -> None:
    variants = ("image int8 on cpu", "image fp32 on cpu")
    sizes = CollectionBytes(database=3 * 2**20, images=2**20, memory=2**10)
    made = Collection("photos", "s" * 64, 8, 3000, 2, 1, datetime(2026, 1, 1, tzinfo=UTC), variants)
    made = replace(made, bytes=sizes)
    model = ModelInfo("tiny", "1", "s" * 64, 8, has_image_tower=True, has_text_tower=True)
    lines = [" ".join(line.split()) for line in shown(collection_details(made, model), width=80).splitlines()]
    assert [line for line in lines if line] == [
        "Collection photos",
        "items 3,000",
        "vectors 2 of pictures, 1 of captions; 8 dimensions",
        "space ssssssssssss (tiny/1)",
        "computed by image int8 on cpu; image fp32 on cpu",
        "on disk 4.0 MiB: database 3.0 MiB, pictures 1.0 MiB",
        "in memory 1.0 KiB",
        "created 2026-01-01 00:00 UTC",
    ]


def test_a_table_of_collections_needs_a_line_for_each_on_an_ordinary_terminal() -> None:
    made = Collection("photos-of-2024", "s" * 64, 8, 123_456, 123_456, 1000, datetime(2026, 1, 1, tzinfo=UTC))
    made = replace(made, bytes=CollectionBytes(database=1000 * 2**20), index_kind="ivf_flat")
    model = ModelInfo("starter", "1", "s" * 64, 8, has_image_tower=True, has_text_tower=True)
    text = shown(collection_table("T", [made], model), width=100)
    assert len([line for line in text.splitlines() if line.strip()]) == 4, "title, names, rule and one row"
    assert f"{'s' * 12} (starter/1)" in text


def test_a_table_of_collections_names_the_model_whose_space_it_is() -> None:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    of = [Collection(name, name * 64, 8, 3, 2, 1, created) for name in ("a", "b")]
    model = ModelInfo("tiny", "1", "a" * 64, 8, has_image_tower=True, has_text_tower=True)
    text = shown(collection_table("Collection a", of, model), width=200)
    assert "Collection a" in text
    assert f"{'a' * 12} (tiny/1)" in text
    assert f"{'b' * 12} (" not in text


def test_a_damaged_collection_is_listed_with_what_is_wrong_and_without_numbers() -> None:
    created = datetime(1970, 1, 1, tzinfo=UTC)
    model = ModelInfo("m", "1", "s" * 64, 8, True, True)
    sound = Collection("a", "s" * 64, 8, 3, 2, 1, created)
    damaged = Collection("b", "", 0, 0, 0, 0, created, damage="collection b: its [red] database is damaged")
    text = shown(collection_table("T", [sound, damaged], model), width=200)
    (row,) = [line.split() for line in text.splitlines() if line.split()[:1] == ["b"]]
    assert row == ["b", "damaged"]
    assert "b: collection b: its [red] database is damaged" in text
