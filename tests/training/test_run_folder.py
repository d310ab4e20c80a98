from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from twinlens.training.errors import ConfigError
from twinlens.training.made_folder import made_folder
from twinlens.training.run_folder import check_run_folder, run_folder
from twinlens.training.run_records import write_records

CONFIG = {"method": "simclr"}


def left(out: Path, *names: str) -> Path:
    """A folder as a run that was killed leaves it."""
    out.mkdir()
    write_records(out, config=CONFIG, data={})
    for name in names:
        (out / name).write_text("")
    return out


@pytest.mark.parametrize("resume", [False, True])
def test_two_runs_do_not_share_a_folder(tmp_path: Path, resume: bool) -> None:
    out = left(tmp_path / "run", "state.pt") if resume else tmp_path / "run"
    with run_folder(out, CONFIG, resume=resume):
        write_records(out, config=CONFIG, data={})
        (out / "state.pt").touch()
        for also in (False, True):
            with (
                pytest.raises(ConfigError, match=r"another process trains in .*run; wait for it, or name a new folder"),
                run_folder(out, CONFIG, resume=also),
            ):
                pass
            with pytest.raises(ConfigError, match="another process trains in"):
                check_run_folder(out, resume=also)
        with run_folder(out, CONFIG, resume=resume, first=False):  # of the same run
            pass
    with run_folder(out, CONFIG, resume=True):
        pass


def test_a_run_that_goes_on_removes_checkpoints_that_a_kill_left_half_written(tmp_path: Path) -> None:
    out = left(tmp_path / "run", "state.pt", "best.pt", "best.pt.7.tmp", "mine.tmp")
    with run_folder(out, CONFIG, resume=True):
        pass
    assert {path.name for path in out.iterdir()} >= {"state.pt", "best.pt", "mine.tmp"}
    assert not (out / "best.pt.7.tmp").exists()


@pytest.mark.parametrize(
    ("files", "resume", "message"),
    [
        (("state.pt",), False, "run holds an interrupted run: go on with --resume, or name a new folder"),
        (("checkpoint.pt",), False, "run holds a finished run; name a new folder"),
        (("checkpoint.pt",), True, "run holds a finished run; there is nothing to resume"),
        ((), False, r"ended before its first state was written \(train.state_every\): delete the folder and start"),
        (("metrics.csv",), True, r"ended before its first state was written .*: delete the folder and start again"),
    ],
)
def test_what_lies_in_a_folder_decides_what_is_said(
    files: tuple[str, ...], resume: bool, message: str, tmp_path: Path
) -> None:
    out = left(tmp_path / "run", *files)
    with pytest.raises(ConfigError, match=message):
        check_run_folder(out, resume=resume)
    with pytest.raises(ConfigError, match=message), run_folder(out, CONFIG, resume=resume):
        pass
    assert {each.name for each in out.iterdir()} >= {"config.json", *files}


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match="is not an empty folder"), run_folder(tmp_path, CONFIG, resume=False):
        pass
    with pytest.raises(ConfigError, match="holds no run to go on with"), run_folder(tmp_path, CONFIG, resume=True):
        pass
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_a_file_is_no_folder_for_a_run(resume: bool, tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(ConfigError, match="run is a file; name a folder for the run"):
        check_run_folder(tmp_path / "run", resume=resume)


@pytest.mark.parametrize("there", [False, True])
def test_a_new_run_that_comes_to_nothing_leaves_nothing(there: bool, tmp_path: Path) -> None:
    out = tmp_path / "runs/new"
    if there:
        out.mkdir(parents=True)
    with suppress(KeyError), run_folder(out, CONFIG, resume=False):
        write_records(out, config=CONFIG, data={})
        (out / "evaluations.csv").write_text("step\n0\n")
        raise KeyError
    assert list(tmp_path.rglob("*")) == ([out.parent, out] if there else [])


@pytest.mark.parametrize(("kept", "resume"), [("metrics.csv", False), ("state.pt", False), ("state.pt", True)])
def test_what_a_run_has_learnt_is_kept(kept: str, resume: bool, tmp_path: Path) -> None:
    out = left(tmp_path / "run", "state.pt") if resume else tmp_path / "run"
    with suppress(KeyError), run_folder(out, CONFIG, resume=resume):
        write_records(out, config=CONFIG, data={})
        (out / kept).write_text("")
        raise KeyError
    assert {"config.json", kept} <= {each.name for each in out.iterdir()}


def test_a_folder_that_was_made_for_nothing_goes_with_those_above(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(KeyError), made_folder(tmp_path / "old/a/b"):
        raise KeyError
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]
