"""The `twinlens` command: mounts rooms only when they are called, and ends as a shell expects."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.pictures import write_folder
from twinlens import __main__ as program
from twinlens.__main__ import COMMANDS, EXTRAS, Mounted, app, main

_HEAVY = ("torch", "open_clip", "onnxruntime", "grpc", "faiss", "PIL", "pyarrow", "numpy", "rich.console")


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["serach"]])
def test_the_list_of_commands_is_shown_without_importing_a_room(arguments: list[str]) -> None:
    code = (
        "import sys; from twinlens.__main__ import main; main(sys.argv[1:]); "
        "rooms = {m for m in sys.modules if m.startswith('twinlens.')} - {'twinlens.__main__', 'twinlens.printable'}; "
        f"print(sorted(rooms | set({_HEAVY!r}) & set(sys.modules)))"
    )
    done = _python(code, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_names_every_command_with_a_line_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, mounted in COMMANDS.items():
        assert any(line.split() == [name, *mounted.summary.split()] for line in shown.splitlines()), name


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"twinlens {version('twinlens')}\n"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_can_be_imported_and_explains_each_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = app().get_command(None, name)
    assert command.name == name
    leaves = list(getattr(command, "commands", {}).values()) or [command]
    for leaf in leaves:
        assert leaf.help, f"{name} {leaf.name} says nothing of itself"
        for parameter in leaf.params:
            assert getattr(parameter, "help", None), f"{name} {leaf.name}: {parameter.name} is not explained"
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: twinlens {name}")


def test_the_algebra_keeps_to_the_quota_unless_the_server_shares_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlens.encoders.cpus.allowed_cpus", lambda: 3)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")  # so that whatever happens below is undone
    program.load("search")
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
    del os.environ["OPENBLAS_NUM_THREADS"]
    program.load("serve")
    assert "OPENBLAS_NUM_THREADS" not in os.environ
    for name in ("search", "reindex"):
        program.load(name)
        assert os.environ.pop("OPENBLAS_NUM_THREADS") == "3"


def test_an_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lable"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'lable'" in line
    assert "Did you mean 'label'" in line


def test_a_group_without_a_command_shows_its_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collections"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Usage: twinlens collections")


def _mount(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    module = types.ModuleType("mounted_for_a_test")
    module.command = function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(program, "COMMANDS", {"try": Mounted(module.__name__, "command", "Tries.")})


def _raising(error: BaseException) -> Any:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(("package", "extra"), list(EXTRAS.items()))
def test_a_missing_package_ends_in_one_line_that_names_the_extra(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _mount(monkeypatch, _raising(ModuleNotFoundError(f"No module named '{package}.x'", name=f"{package}.x")))
    assert main(["try"]) == 1
    assert capsys.readouterr().err == f"twinlens: {package} is not installed: pip install 'twinlens[{extra}]'\n"


def test_each_extra_that_is_named_exists() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def _user_errors() -> list[BaseException]:
    from twinlens.client import TwinlensError
    from twinlens.encoders.errors import BundleError, InvalidImage, InvalidText, RuntimeUnavailable
    from twinlens.index.errors import CollectionBusy, CollectionError
    from twinlens.server.core.active import StartError
    from twinlens.server.settings import SettingsError

    kinds = (BundleError, InvalidImage, InvalidText, RuntimeUnavailable, CollectionBusy, CollectionError)
    return [
        TwinlensError("NOT_FOUND", "what is\nwrong"),
        *(kind("what is\nwrong") for kind in (*kinds, StartError, SettingsError)),
    ]


@pytest.mark.parametrize("error", _user_errors(), ids=lambda error: type(error).__name__)
def test_what_a_room_raises_for_a_user_is_one_line(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _mount(monkeypatch, _raising(error))
    assert main(["try"]) == 1
    assert capsys.readouterr().err == "twinlens: what is wrong\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (typer.BadParameter("no good"), 2, "twinlens: no good (see `twinlens try --help`)\n"),
        (typer.Exit(3), 3, ""),
        (KeyboardInterrupt(), 130, "twinlens: interrupted\n"),
        (typer.Abort(), 130, "twinlens: interrupted\n"),
        (OSError(28, "No space left on device"), 1, "twinlens: No space left on device\n"),
        (FileNotFoundError(2, "No such file", "a.toml"), 1, "twinlens: a.toml: No such file\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_way_to_end_has_its_exit_code(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _mount(monkeypatch, _raising(error))
    assert main(["try"]) == code
    assert capsys.readouterr().err == said


def test_an_error_of_the_command_line_library_itself_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    click = pytest.importorskip("click")
    _mount(monkeypatch, _raising(click.ClickException("went\nwrong")))
    assert main(["try"]) == 1
    assert capsys.readouterr().err == "twinlens: went wrong\n"


def test_an_interrupt_that_became_an_exit_on_the_way_is_one_still(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt = _raising(KeyboardInterrupt())

    def command() -> None:
        try:
            interrupt()
        except KeyboardInterrupt:
            sys.exit(1)

    _mount(monkeypatch, command)
    assert main(["try"]) == 130
    assert capsys.readouterr().err == "twinlens: interrupted\n"


def test_what_nobody_expected_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    _mount(monkeypatch, _raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["try"])
    _mount(monkeypatch, _raising(ModuleNotFoundError("No module named 'ours'", name="ours")))
    with pytest.raises(ModuleNotFoundError):
        main(["try"])


def test_completion_lists_names_without_importing_them() -> None:
    environment = {**os.environ, "_TWINLENS_COMPLETE": "complete_bash", "COMP_WORDS": "twinlens co", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "twinlens"], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert "collections" in done.stdout.split()


def test_a_reader_that_goes_away_ends_it_quietly(tiny_bundle: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "pictures")
    command = [sys.executable, "-m", "twinlens", "label", str(tmp_path / "pictures")]
    read, write = os.pipe()
    os.close(read)  # nobody will read
    try:
        done = subprocess.run(
            [*command, "--labels", "red,blue", "--bundle", str(tiny_bundle)],
            stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
        )  # fmt: skip
    finally:
        os.close(write)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_it_in_one_line_and_leaves_nothing_half_done(
    tiny_bundle: Path, tmp_path: Path, number: signal.Signals, code: int, said: str
) -> None:
    pictures = write_folder(tmp_path / "pictures")
    (pictures / "sub" / "broken.png").unlink()
    os.mkfifo(tmp_path / "labels.txt")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "twinlens", "label", str(pictures), "--bundle", str(tiny_bundle)),
            *("--labels-file", str(tmp_path / "labels.txt"), "--out", str(tmp_path / "labels.csv")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with (tmp_path / "labels.txt").open("w"):  # opens once the command reads, which then waits for labels
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert (out, err) == ("", f"twinlens: {said}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.txt", "pictures"]


# It ends neither when it is interrupted nor when it is terminated, as what waits for a lock of gRPC's may not.
_HANGING = """
import sys, threading, types
from twinlens import __main__ as program

def hang():
    while True:
        try:
            print("hangs", flush=True)
            threading.Event().wait()
        except BaseException:
            pass

sys.modules["hanging"] = types.SimpleNamespace(hang=hang)
program.COMMANDS = {"hang": program.Mounted("hanging", "hang", "Hangs.")}
sys.argv = ["twinlens", "hang"]
sys.exit(program.main())
"""


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_at_once_whatever_it_hangs_in(first: signal.Signals, second: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", _HANGING], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(first)
        assert process.stdout.readline() == "hangs\n"  # the first was noted
        process.send_signal(second)
        assert process.wait(timeout=20) == -second
    finally:
        process.kill()
        process.communicate()


def test_interrupts_that_are_ignored_for_it_stay_so() -> None:
    command = f'trap "" INT; exec {shlex.quote(sys.executable)} -c "$0"'
    process = subprocess.Popen(["sh", "-c", command, _HANGING], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(signal.SIGINT)  # of several signals the lowest comes first
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


def test_closed_outputs_are_no_reason_to_fail() -> None:
    command = f"exec {shlex.quote(sys.executable)} -m twinlens --version >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0
