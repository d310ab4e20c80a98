"""`twinlens eval` end to end: a bundle or a server in, a table, JSON and a page out; one line on what is wrong."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.command_runs import Ran
from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import solid
from tests.support.without_torch import assert_refused_without_torch
from tests.training.evaluation.bundles.coloured import (
    write_captions,
    write_choices,
    write_classes,
    write_pairs,
    write_rows,
)
from twinlens.__main__ import main
from twinlens.server.local import local_server

Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("TWINLENS_SERVER", raising=False)

    def run_command(*arguments: object) -> Ran:
        capsys.readouterr()
        code = main(["eval", *map(str, arguments)])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run_command


@pytest.fixture
def sets(tmp_path: Path) -> tuple[object, ...]:
    """The options of one set of each kind."""
    return (
        *("--captions", write_captions(tmp_path / "pictures")),
        *("--labels", write_classes(tmp_path / "classes <b>", ["red", "green", "blue"])),
        *("--compositional", write_choices(tmp_path / "pictures")),
        *("--pairs", write_pairs(tmp_path / "pictures")),
    )


class Loading(HTMLParser):
    """Collects what a page would load from elsewhere, and its pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: list[str] = []
        self.pictures = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"src", "href"} and value is not None:
                self.pictures += value.startswith(("data:image/png;base64,", "data:image/jpeg;base64,"))
                if not value.startswith("data:"):
                    self.elsewhere.append(value)
        if tag in {"script", "b"}:
            self.elsewhere.append(tag)


def test_a_bundle_is_measured_on_every_kind_of_set(
    run: Run, tiny_bundle: Path, sets: tuple[object, ...], tmp_path: Path
) -> None:
    out = tmp_path / "made" / "report"
    ran = run(tiny_bundle, *sets, "--templates", "photo", "--templates", "openai", "--out", out)
    assert ran.code == 0, ran.err
    for wanted in (
        "pictures, retrieval: 8 pictures, 16 captions",
        "text → image R@10",
        "image → text median rank",
        "effective rank of captions",
        "zero-shot top-1, openai (80)",
        "kNN, k = 20",
        "right caption chosen, colour (2)",
        "group score",
    ):
        assert wanted in ran.out
    assert ran.out.splitlines()[-1] == str(out / "report.html")
    found = json.loads((out / "evaluation.json").read_text())
    assert [each["kind"] for each in found["sets"]] == ["retrieval", "zero_shot", "compositional", "pairs"]
    assert set(found["sets"][3]["measures"]) == {"text", "image", "group"}
    assert found["sets"][1]["templates"]["openai"]["per_class"].keys() == {"red", "green", "blue"}
    page = (out / "report.html").read_text()
    loading = Loading()
    loading.feed(page)
    assert loading.elsewhere == []
    assert loading.pictures >= 3 + 4 + 2 + 1
    assert "classes &lt;b&gt;" in page


def test_a_server_gives_the_same_figures_as_its_bundle(
    run: Run, tiny_bundle: Path, sets: tuple[object, ...], tmp_path: Path
) -> None:
    here = run(tiny_bundle, *sets, "--json").json
    with local_server(tmp_path / "data", tiny_bundle) as target:
        there = run("--server", target, *sets, "--json").json
    assert there["model"]["space_id"] == here["model"]["space_id"]
    for ours, theirs in zip(here["sets"], there["sets"], strict=True):
        assert theirs["measures"] == pytest.approx(ours["measures"], abs=1e-4)


def test_the_variable_names_the_server_where_nothing_else_does(
    run: Run, sets: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_server(encoder=FakeEncoder()) as target:
        monkeypatch.setenv("TWINLENS_SERVER", target)
        found = run(*sets, "--json").json
    assert found["model"]["name"] == "fake"
    assert found["sets"][0]["measures"]["text_to_image_r1"] == 1.0


def test_a_configuration_and_options_go_together(run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    write_captions(tmp_path / "pictures")
    folder = write_classes(tmp_path / "classes", ["red", "blue"])
    (tmp_path / "eval.toml").write_text(
        f'[model]\nbundle = "{tiny_bundle}"\n[[retrieval]]\npath = "pictures/captions.jsonl"\nname = "mine"\n'
    )
    found = run(
        "--config", tmp_path / "eval.toml", "--labels", folder, "--prompt", "so {}", "--limit", 4, "--json"
    ).json
    assert [(each["kind"], each["name"]) for each in found["sets"]] == [("retrieval", "mine"), ("zero_shot", "classes")]
    assert found["sets"][1]["templates"]["prompts"]["prompts"] == ["so {}"]
    assert found["sets"][1]["pictures"] == 4
    assert found["sets"][0]["pictures"] == 8


def test_what_was_left_out_is_told_beside_the_table(run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    captions = write_captions(tmp_path / "pictures")
    (tmp_path / "pictures" / "red.png").write_bytes(b"no picture")
    ran = run(tiny_bundle, "--captions", captions)
    assert ran.code == 0
    assert re.search(r"pictures: left out 1 unusable item\(s\); the first is red\.png: ", ran.err)


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        ((), "nothing to measure on", 1),
        (("--captions", "gone.jsonl"), "there is no gone.jsonl", 1),
        (("--captions", ""), "names nothing", 2),
        (("--labels", "gone"), "no pictures at gone", 1),
        (("--labels", ".", "--templates", "opnai"), "perhaps openai", 1),
        (("--templates", "openai", "--pairs", "x"), "go with --labels", 1),
        (("--config", "gone.toml"), "no configuration at gone.toml", 1),
        (("--captions", __file__, "--out", __file__), "is a file", 1),
        (("--captions", __file__, "--server", "localhost:1"), "exclude each other", 2),
        (("--captions", __file__), "is not a captions file", 1),
    ],
)
def test_wrong_usage_is_one_line(
    run: Run, tiny_bundle: Path, options: tuple[str, ...], message: str, code: int
) -> None:
    assert message in run(tiny_bundle, *options).failed(code)


def test_one_set_is_still_a_list_of_tables(run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "eval.toml").write_text('[zero_shot]\npath = "."\n')
    told = run(tiny_bundle, "--config", tmp_path / "eval.toml").failed()
    assert told.rstrip().endswith("zero_shot is a list of tables: write [[zero_shot]]")


def test_too_many_texts_that_cannot_be_used_stop_the_run(run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    captions = write_captions(tmp_path)
    rows = captions.read_text(encoding="utf-8").splitlines()
    nothing = [f'{{"image": "red.png", "caption": "{" " * n}", "id": "n{n}"}}' for n in range(1, 6)]
    captions.write_text("\n".join([*rows, *nothing]), encoding="utf-8")
    told = run(tiny_bundle, "--captions", captions).failed()
    assert re.search(r"5 of \d+ texts cannot be used, 3 at most may be so", told), told


def test_what_is_not_there_is_refused_before_torch_is_loaded(tiny_bundle: Path, tmp_path: Path) -> None:
    commands = [
        ["eval", str(tiny_bundle), "--captions", "gone.jsonl"],
        ["eval", str(tiny_bundle), "--labels", "gone"],
        ["eval", str(tiny_bundle), "--labels", ".", "--templates", "gone"],
        ["eval", str(tiny_bundle)],
    ]
    assert_refused_without_torch(commands, tmp_path)


def test_a_model_must_be_named(run: Run, tmp_path: Path) -> None:
    captions = write_captions(tmp_path)
    assert "name a bundle, or a server" in run("--captions", captions).failed(2)
    assert "no bundle at" in run(tmp_path / "none", "--captions", captions).failed()
    assert "go with a bundle" in run("--server", "localhost:1", "--captions", captions, "--precision", "int8").failed(2)


def test_names_of_any_bytes_and_letters_come_into_the_report(run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"set \xff")
    # Named for another colour, so that pictures and names stand on the sheet of what was confused.
    for colour, name in {"red": "blue", "blue": "red", "green": "\u6f22\x1b[31m\u202e\n $a_b$ <b>"}.items():
        (folder / name).mkdir(parents=True)
        for i in range(2):
            (folder / name / os.fsdecode(b"%d \xfe.png" % i)).write_bytes(solid(colour))
    captions = write_rows(
        folder / "captions.jsonl",
        [
            {"image": "\udcff.png", "caption": "cyan"},
            *({"image": f"{colour}/0 \udcfe.png", "caption": colour} for colour in ("red", "blue")),
        ],
    )
    ran = run(tiny_bundle, "--labels", folder, "--captions", captions, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "set \\udcff: zero-shot" in page
    assert "the first is \\udcff.png" in page
    assert not {"\x1b", "\u202e"} & set(page)


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(
    run: Run, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    captions = write_captions(tmp_path / "pictures")
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    monkeypatch.setattr("twinlens.encoders.encoder.Encoder.load", lambda *_, **__: pytest.fail("the work began"))
    assert "report.html is a folder" in run(tiny_bundle, "--captions", captions, "--out", tmp_path / "out").failed()
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert "cannot write to" in run(tiny_bundle, "--captions", captions, "--out", tmp_path / "new").failed()
    assert not (tmp_path / "new").exists()


def test_a_report_that_is_not_written_whole_leaves_the_old_one(
    run: Run, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions = write_captions(tmp_path / "pictures")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("evaluation.json", "report.html"):
        (out / name).write_text("old")
    whole = Path.write_text

    def ends(path: Path, text: str, *, encoding: str) -> int:
        if "report.html" not in path.name:
            return whole(path, text, encoding=encoding)
        whole(path, text[:100], encoding=encoding)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", ends)
    ran = run(tiny_bundle, "--captions", captions, "--out", out)
    assert (ran.code, "No space left" in ran.err) == (1, True)
    assert "text → image R@1" in ran.out
    assert {path.name: path.read_text() for path in out.iterdir()} == {"evaluation.json": "old", "report.html": "old"}


def test_a_folder_that_goes_meanwhile_is_made_again(
    run: Run, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def gone(_: object) -> str:
        out.rmdir()
        return "page"

    monkeypatch.setattr("twinlens.training.evaluation.bundles.report.report_page", gone)
    assert run(tiny_bundle, "--captions", write_captions(tmp_path / "pictures"), "--out", out).code == 0
    assert (out / "report.html").read_text() == "page"


def test_a_report_that_comes_to_nothing_leaves_no_folder(run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    captions = write_rows(tmp_path / "captions.jsonl", [{"image": "gone.png", "caption": "x"}])
    assert "1 of 1 pictures" in run(tiny_bundle, "--captions", captions, "--out", tmp_path / "a" / "b").failed()
    assert not (tmp_path / "a").exists()
