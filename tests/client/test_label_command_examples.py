"""`twinlens label` by a folder of examples and by a collection, as a user runs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.test_sinks import read_back
from tests.support.command_runs import Ran
from tests.support.pictures import solid


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """Two labels, one of them with a picture in a folder below and a broken one; and what is no example."""
    folder = tmp_path / "shown"
    for name, colour in (("warm/red.png", "red"), ("warm/more/yellow.png", "yellow"), ("cold/blue.png", "blue")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(solid(colour))
    (folder / "warm" / "broken.png").write_bytes(b"no picture")
    (folder / "loose.png").write_bytes(solid("green"))
    (folder / "empty").mkdir()
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "green.png").write_bytes(solid("green"))
    return folder


def labels_of(done: Ran) -> dict[str, str]:
    assert done.code == 0, done
    return dict(line.split("\t")[:2] for line in done.out.splitlines())


@pytest.mark.parametrize("rule", [(), ("--rule", "knn", "--k", 1)])
def test_a_folder_is_labelled_by_a_folder_of_examples(
    run: Callable[..., Ran], where: tuple[object, ...], pictures: Path, shown: Path, rule: tuple[object, ...]
) -> None:
    done = run("label", pictures, "--examples", shown, *rule, *where)
    found = labels_of(done)
    assert {found[name] for name in ("red.png", "sub/yellow.jpg")} == {"warm"}
    assert found["blue.png"] == "cold"
    assert done.err.splitlines() == [
        "pictures that lie in no sub-folder of the examples, and so have no label: 1",
        "no pictures in sub-folder empty: it is no label",
        "not used as an example: warm/broken.png: this is not a picture in a format we know",
        "not labelled: sub/broken.png: this is not a picture in a format we know",
        "labelled with tiny/1",
        "passed over 1 file that is not a picture",
    ]


def test_a_file_of_labels_by_examples_has_the_usual_columns(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, shown: Path, tmp_path: Path
) -> None:
    out = tmp_path / "labels.csv"
    label = ("label", pictures, "--examples", shown, "--bundle", tiny_bundle, "--out", out, "--temperature", 0.05)
    done = run(*label, "--json")
    assert done.json["examples"] == {"used": 3, "failed": 1}
    assert done.json["model"] == "tiny/1"
    assert done.json["labelled"] == 4
    rows = {row["id"]: row for row in read_back(out)}
    assert [each["label"] for each in rows["red.png"]["labels"]] == ["warm", "cold"]
    assert sum(each["probability"] for each in rows["red.png"]["labels"]) == pytest.approx(1, abs=1e-5)
    mixed = run(*label, "--text-weight", 0.5, "--template", "{}")
    assert mixed.code == 0, mixed.err


def test_a_folder_is_labelled_by_the_items_of_a_collection(
    run: Callable[..., Ran], where: tuple[object, ...], pictures: Path, tmp_path: Path
) -> None:
    rows = [{"image": f"{colour}.png", "breed": f"{colour} one"} for colour in ("red", "blue")]
    (pictures / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"image": "green.png"}]))
    assert run("ingest", pictures / "rows.jsonl", "-c", "pets", *where).code == 0
    label = ("label", pictures, "--examples-collection", "pets", "--label-key")
    for rule in ((), ("--rule", "knn")):
        found = labels_of(run(*label, "breed", *rule, *where))
        assert (found["red.png"], found["blue.png"]) == ("red one", "blue one")
    table = run(*label, "breed", *where, "--out", tmp_path / "labels.csv", "--json")
    assert table.json["examples"] is None  # only the server knows how many there are
    assert "with a label under 'colour' of its metadata" in run(*label, "colour", *where).failed()
    other = ("label", pictures, "--examples-collection", "nowhere", "--label-key", "breed")
    assert "no collection nowhere" in run(*other, *where).failed()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--examples {shown} --labels a", "in one way"),
        ("--examples {shown} --examples-collection c --label-key k", "in one way"),
        ("--examples-collection c", "--label-key"),
        ("--examples {shown} --label-key k", "--label-key"),
        ("--labels a --label-key k", "--label-key is for"),
        ("--labels a --rule knn", "--rule is for"),
        ("--labels a --k 3", "--k is for"),
        ("--labels a --temperature 1", "--temperature is for"),
        ("--labels a --text-weight 0.5", "--text-weight is for"),
        ("--examples {shown} --k 3", "--k is for --rule knn"),
        ("--examples {shown} --rule knn --text-weight 0.5", "--text-weight is for --rule prototype"),
        ("--examples {shown} --multi-label", "--multi-label is for"),
        ("--examples {shown} --template {{}}", "--text-weight"),
        ("--examples {shown} --rule nearest", "--rule"),
        ("--examples {shown} --rule knn --k 0", "--k"),
        ("--examples {shown} --temperature 0", "--temperature"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    run: Callable[..., Ran], local: tuple[object, ...], pictures: Path, shown: Path, options: str, said: str
) -> None:
    assert said in run("label", pictures, *options.format(shown=shown).split(" "), *local).failed(2)


def test_a_folder_that_holds_no_examples_is_named_in_one_line(
    run: Callable[..., Ran], local: tuple[object, ...], pictures: Path, tmp_path: Path
) -> None:
    def label(folder: Path) -> str:
        return run("label", pictures, "--examples", folder, *local).failed()

    assert "no such folder or list" in label(tmp_path / "nowhere")
    assert "a sub-folder for each label, or a .jsonl list" in label(pictures / "red.png")
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "red.png").write_bytes(solid("red"))
    assert "no pictures in sub-folders" in label(tmp_path / "flat")
    (tmp_path / "flat" / "red").mkdir()
    (tmp_path / "flat" / "red" / "broken.png").write_bytes(b"no picture")
    assert "label 'red' has no example that can be used: this is not a picture" in label(tmp_path / "flat")


@pytest.mark.parametrize("form", ["{set}", "{set}/labels.jsonl"])
def test_a_data_set_is_read_by_its_list_of_labels(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path, form: str
) -> None:
    data_set = tmp_path / "set"
    (data_set / "images").mkdir(parents=True)
    rows: list[dict[str, object]] = []
    for colour, label in (("red", "warm"), ("yellow", "warm"), ("blue", 7), ("green", -1)):
        (data_set / "images" / f"{colour}.png").write_bytes(solid(colour))
        rows.append({"image": f"images/{colour}.png", "label": label})
    rows += [rows[0], {"image": "images/gone.png", "label": "warm"}, {"image": "images/green.png"}]
    (data_set / "labels.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "not json\n")
    done = run("label", pictures, "--examples", form.format(set=data_set), "--bundle", tiny_bundle)
    found = labels_of(done)
    assert (found["red.png"], found["blue.png"]) == ("warm", "7")
    broken, unlabelled, missing = done.err.splitlines()[:3]
    assert broken.startswith("not used as an example: line 8: it is not JSON")
    assert unlabelled == "rows of labels.jsonl without an image or a label: 2"
    assert missing.startswith("not used as an example: images/gone.png: ")


def test_a_list_without_labels_is_refused_with_what_would_do(
    run: Callable[..., Ran], local: tuple[object, ...], pictures: Path
) -> None:
    (pictures / "rows.jsonl").write_text('{"image": "red.png", "caption": "red"}\n')
    line = run("label", pictures, "--examples", pictures / "rows.jsonl", *local).failed()
    assert "has both `image` and `label`" in line


def test_where_there_is_but_one_label_a_line_says_so(
    run: Callable[..., Ran], where: tuple[object, ...], pictures: Path, tmp_path: Path
) -> None:
    told = "there is only one label, hat: every picture gets it, whatever it shows"
    (tmp_path / "shown" / "hat").mkdir(parents=True)
    (tmp_path / "shown" / "hat" / "red.png").write_bytes(solid("red"))
    assert told in run("label", pictures, "--examples", tmp_path / "shown", *where).err.splitlines()
    assert told in run("label", pictures, "--labels", "hat", *where).err.splitlines()
    assert "only one label" not in run("label", pictures, "--labels", "hat,shoe", "--top-k", 1, *where).err
    assert "only one label" not in run("label", pictures, "--labels", "hat", "--multi-label", *where).err
    (pictures / "rows.jsonl").write_text('{"image": "red.png", "kind": "hat"}\n')
    assert run("ingest", pictures / "rows.jsonl", "-c", "hats", *where).code == 0
    assert (
        told in run("label", pictures, "--examples-collection", "hats", "--label-key", "kind", *where).err.splitlines()
    )


def test_labels_by_a_collection_need_its_data_folder(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path
) -> None:
    missing = ("--local", tmp_path / "missing", "--bundle", tiny_bundle)
    line = run("label", pictures, "--examples-collection", "c", "--label-key", "k", *missing).failed()
    assert "`twinlens ingest` makes one" in line
    assert not (tmp_path / "missing").exists()
