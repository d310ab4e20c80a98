"""`twinlens labelsets`, and `twinlens label` by a label set and by when no label fits, as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.test_sinks import read_back
from tests.support.command_runs import Ran

FOUND = ("blue.png", "green.png", "red.png", "sub/yellow.jpg")


@pytest.mark.parametrize("where", ["local"], indirect=True)
def test_label_sets_are_put_listed_shown_and_deleted(
    run: Callable[..., Ran], where: tuple[object, ...], tmp_path: Path
) -> None:
    assert run("labelsets", "list", *where).out == "no label sets\n"
    (tmp_path / "labels.txt").write_text("red\ngreen, or so\n\nred\n", encoding="utf-8")
    put = ("labelsets", "put", "colours", "--labels-file", tmp_path / "labels.txt", "--template", "a {} {wall}")
    assert run(*put, "--min-cosine", 0.5, "--background", "a yellow wall", *where).out == "kept colours: 2 labels\n"
    other = run("labelsets", "put", "one", "--labels", "x", "--multi-label", "--json", *where)
    assert (other.json["id"], other.json["labels"], other.json["multi_label"]) == ("one", ["x"], True)
    listed = run("labelsets", "list", *where).out
    assert "cosine below 0.5; or nearer to 'a yellow wall'" in listed
    assert [each["id"] for each in run("labelsets", "list", "--json", *where).json["label_sets"]] == ["colours", "one"]
    assert run("labelsets", "show", "colours", *where).out.splitlines() == [
        "template: a {} {wall}",
        "none of these: cosine below 0.5; or nearer to 'a yellow wall'",
        "red",
        "green, or so",
    ]
    assert run("labelsets", "show", "one", *where).out.splitlines() == ["each label is judged on its own", "x"]
    shown = run("labelsets", "show", "colours", "--json", *where).json
    assert shown["none_of_these"] == {"min_cosine": 0.5, "min_probability": None, "background": ["a yellow wall"]}
    assert shown["labels"] == ["red", "green, or so"]
    assert run("labelsets", "delete", "colours", *where).out == "deleted colours\n"
    assert "there is no label set colours" in run("labelsets", "show", "colours", *where).failed()
    assert "use 1 to 64" in run("labelsets", "put", "No Good", "--labels", "x", *where).failed()
    assert "in one way" in run("labelsets", "put", "both", *where).failed(2)


def test_a_folder_is_labelled_by_a_label_set(
    run: Callable[..., Ran], where: tuple[object, ...], pictures: Path, tmp_path: Path
) -> None:
    run("labelsets", "put", "warm", "--labels", "red,blue", "--min-probability", 0.999, *where)
    label = ("label", pictures, "--label-set", "warm", *where)
    rows = [json.loads(line) for line in run(*label, "--json").out.splitlines()]
    said = ("label", pictures, "--labels", "red,blue", "--min-probability", 0.999, *where, "--json")
    assert rows == [json.loads(line) for line in run(*said).out.splitlines()]
    assert "there is no label set cold" in run("label", pictures, "--label-set", "cold", *where).failed()
    missing = ("label", pictures, "--label-set", "warm", "--local", tmp_path / "missing")
    assert "`twinlens labelsets put` makes one" in run(*missing).failed()


@pytest.mark.parametrize("form", [".jsonl", ".csv", ".parquet"])
def test_pictures_of_none_of_the_labels_are_rows_without_a_label(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path, form: str
) -> None:
    out = tmp_path / f"labels{form}"
    label = ("label", pictures, "--labels", "red,blue", "--bundle", tiny_bundle)
    plain = [json.loads(line) for line in run(*label, "--json").out.splitlines()]
    at = sorted(row["cosine"] for row in plain if row["label"])[1]  # two of the four are below
    fits = {row["id"] for row in plain if row["label"] and row["cosine"] >= at}
    done = run(*label, "--min-cosine", at, "--out", out, "--json")
    assert (done.json["labelled"], done.json["none_of_these"], done.json["failed"]) == (4, 4 - len(fits), 1)
    assert sum(done.json["labels"].values()) == len(fits)
    rows = {row["id"]: row for row in read_back(out)}
    for row in plain:
        other = rows[row["id"]]
        if row["error"]:
            assert other["error"] == row["error"]
        elif row["id"] in fits:
            assert (other["label"], len(other["labels"])) == (row["label"], 2)
        else:
            assert (other["label"], other["cosine"], other["error"]) == (None, None, "")
            assert other["labels"][0]["label"] == row["label"]
        assert str(other["none_of_these"]).lower() == str(not row["error"] and row["id"] not in fits).lower()
    lines = dict(line.split("\t")[:2] for line in run(*label, "--min-cosine", at).out.splitlines())
    assert {name for name, found in lines.items() if found != "none of these"} == fits
    assert set(lines) == set(FOUND)
    if form == ".csv":
        table = run(*label, "--min-cosine", at, "--out", out).out
        assert "none of these" in table


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--label-set a --labels b", "in one way"),
        ("--label-set a --template {{}}", "--template is what a label set brings"),
        ("--label-set a --multi-label", "--multi-label is what a label set brings"),
        ("--label-set a --min-cosine 0.5", "is what a label set brings"),
        ("--label-set a --k 3", "--k is for"),
        ("--labels a --min-cosine 2", "--min-cosine"),
        ("--labels a --min-probability -1", "--min-probability"),
        ("--examples {shown} --background x", "--background is for labels in words"),
        ("--examples {shown} --rule knn --min-cosine 0.5", "is for --rule prototype"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    run: Callable[..., Ran], local: tuple[object, ...], pictures: Path, options: str, said: str
) -> None:
    assert said in run("label", pictures, *options.format(shown=pictures).split(" "), *local).failed(2)
