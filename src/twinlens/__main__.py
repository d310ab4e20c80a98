"""The `twinlens` command: mounts each room's commands without importing a room before its command is called."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
import typer.core
import typer.main

from twinlens.printable import printable

_HELP = """Search and label a private image collection with an encoder of your own, and keep it getting better.

`twinlens COMMAND --help` tells more about a command."""


class Mounted(NamedTuple):
    """Where a command lives: a function with Typer's annotations, or a `typer.Typer` for a group."""

    module: str
    attribute: str
    summary: str


COMMANDS: Mapping[str, Mounted] = {
    "demo": Mounted("twinlens.training.cli", "demo", "Search and label real photos, from nothing."),
    "demo-loop": Mounted("twinlens.training.cli", "demo_loop", "Walk the whole loop once, in small, on drawn scenes."),
    "starter": Mounted("twinlens.training.cli", "starter", "Build the starter encoder: works on photos, no download."),
    "pull": Mounted("twinlens.training.cli", "pull", "Make a bundle of an open_clip, timm or Hugging Face model."),
    "serve": Mounted("twinlens.server.cli", "serve", "Serve a data folder and an encoder over gRPC."),
    "tokens": Mounted("twinlens.server.cli", "tokens", "Make, list and revoke tokens that callers of a server show."),
    "ingest": Mounted("twinlens.client.cli", "ingest", "Store a folder or a .jsonl file in a collection."),
    "search": Mounted("twinlens.client.cli", "search", "Find the items nearest to a text, a picture or an item."),
    "label": Mounted("twinlens.client.cli", "label", "Label a folder of pictures by text or by examples."),
    "labelsets": Mounted("twinlens.client.cli", "label_sets", "Keep labels under names, list, show and delete them."),
    "collections": Mounted("twinlens.client.cli", "collections", "List, show, create and delete collections."),
    "embed": Mounted("twinlens.encoders.cli", "embed", "Write the vectors of a folder or a .jsonl file."),
    "models": Mounted("twinlens.encoders.cli", "models", "List, show, verify and push encoder bundles."),
    "mine": Mounted("twinlens.training.cli", "mine", "Mine hard negatives from a collection."),
    "train": Mounted("twinlens.training.cli", "train", "Train an encoder, from scratch or on from a checkpoint."),
    "augment": Mounted("twinlens.training.augment.cli", "augment", "Look at what a method does to pictures."),
    "probe": Mounted("twinlens.training.evaluation.cli", "probe", "Measure what an image encoder has learnt."),
    "eval": Mounted("twinlens.training.evaluation.bundles.cli", "evaluate", "Measure a model on captions and labels."),
    "export": Mounted("twinlens.training.cli", "export", "Make a bundle of a checkpoint."),
    "quantize": Mounted("twinlens.training.export.variants.cli", "quantize", "Give a bundle int8 and fp16 files."),
    "reindex": Mounted("twinlens.server.cli", "reindex", "Move a data folder's collections to another encoder."),
    "health": Mounted("twinlens.client.cli", "health", "Ask a server whether it works."),
    "doctor": Mounted("twinlens.encoders.cli", "doctor", "Tell what this machine and installation can do."),
}

# Top-level modules of optional packages -> the extra that brings them.
EXTRAS: Mapping[str, str] = {
    **dict.fromkeys(("onnxruntime", "faiss"), "cpu"),
    **dict.fromkeys(("torch", "torchvision", "open_clip", "timm", "pytorch_lightning", "onnx", "onnxscript"), "train"),
    **dict.fromkeys(("matplotlib", "sklearn"), "train"),
    "safetensors": "train",
    **dict.fromkeys(("pymilvus", "milvus_lite"), "milvus"),
    "skimage": "demo",
    "h11": "fetch",
}

# What the rooms raise for a user to read. Looked up among what is loaded: an error's own module always is.
_USER_ERRORS = (
    ("twinlens.client.errors", "TwinlensError"),
    ("twinlens.encoders.errors", "BundleError"),
    ("twinlens.encoders.errors", "InvalidImage"),
    ("twinlens.encoders.errors", "InvalidText"),
    ("twinlens.encoders.errors", "RuntimeUnavailable"),
    ("twinlens.index.errors", "CollectionError"),
    ("twinlens.server.core.active", "StartError"),
    ("twinlens.server.access.token_file", "TokenFileError"),
    ("twinlens.server.settings", "SettingsError"),
)

# Rooms whose commands take `--local`: the client knows no server, so they are told here how to start one.
_CONNECTING = ("twinlens.client.cli", "twinlens.training.cli")
# Rooms whose commands take `--server`, and so the options by which a server is shown who calls.
_CALLING = (*_CONNECTING, "twinlens.training.evaluation.bundles.cli")

_COMPLETION = "_TWINLENS_COMPLETE"  # set by the shell when it asks for completions

_INTERRUPTED = 130  # 128 + SIGINT, as shells say it
_BROKEN_PIPE = 141  # 128 + SIGPIPE
_TERMINATED = 143  # 128 + SIGTERM


class _Terminated(BaseException):
    """SIGTERM: whatever cleans up when interrupted does so now, too."""


def _end_on_signals() -> None:
    """The first signal ends it with everything cleared away, a second one at once, whatever it hangs in.

    An interrupt that comes while gRPC clears away can leave it waiting for ever: only the system can end it then.
    """
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise it is ignored, and stays so
        numbers.append(signal.SIGINT)

    def end(number: int, _: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt if number == signal.SIGINT else _Terminated

    for each in numbers:
        signal.signal(each, end)


class LazyGroup(typer.core.TyperGroup):
    """Knows its commands by name and summary, and imports one when it is called."""

    # Contexts are Any: Typer has them from click in older versions and from a copy of its own in newer ones.

    _completing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command itself, imported now; None for a name that is not in the table."""
        del ctx
        if self._completing:
            return self.commands.get(cmd_name)
        return load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of `--help` from the table."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, mounted.summary) for name, mounted in COMMANDS.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Completes names without importing what they name."""
        self._completing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._completing = False


def load(name: str) -> Any:
    """Imports a command and gives it the form of the command-line library.

    Raises:
        ModuleNotFoundError: if a package that the command needs is not installed.
    """
    mounted = COMMANDS[name]
    if mounted.module in _CONNECTING:
        from twinlens.client.connect import register_local  # noqa: PLC0415

        register_local(_local)
    if name != "serve":  # which shares the CPUs out itself
        from twinlens.encoders.cpus import allowed_cpus  # noqa: PLC0415

        # The algebra under NumPy would start a thread for every CPU it sees, whatever the quota of the process.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(allowed_cpus()))
    found = getattr(importlib.import_module(mounted.module), mounted.attribute)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None  # plain text: nothing in a help text is taken for markup
        command: Any = typer.main.get_group(found)
    else:
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name)(found)
        command = typer.main.get_command(single)
    if mounted.module in _CALLING:
        from twinlens.client.commands.access_options import add_access_options  # noqa: PLC0415

        add_access_options(command)
    command.name = name
    return command


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - takes longer than the rest of --help

        typer.echo(f"twinlens {version('twinlens')}")
        raise typer.Exit


def app() -> Any:
    """The whole command line, for `main` and for the generator of the reference."""
    shell = typer.Typer(cls=LazyGroup, rich_markup_mode=None, help=_HELP, no_args_is_help=False)

    @shell.callback(invoke_without_command=True)
    def root(
        ctx: typer.Context,
        version: bool = typer.Option(
            False, "--version", help="Print the version.", callback=_show_version, is_eager=True
        ),
    ) -> None:
        del version
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    group = typer.main.get_command(shell)
    for name, mounted in COMMANDS.items():  # what suggestions and completion look at; never called
        group.commands[name] = typer.core.TyperCommand(name, help=mounted.summary)  # type: ignore[attr-defined]
    return group


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code: 0 only on success, 2 for wrong usage, 130 when interrupted.

    On SIGTERM half-written files, private folders and started servers are cleared away as on Ctrl-C; the code is 143.
    A second signal ends it at once.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its notices would stand between our lines on stderr
    _open_outputs()
    if arguments is None:  # the process is ours
        _end_on_signals()
    try:
        command = app()
        if _COMPLETION in os.environ:
            command.main(prog_name="twinlens")  # prints and exits
        # Not `command.main()`: it has ends of its own for interrupts and broken pipes, which differ between versions.
        given = list(sys.argv[1:] if arguments is None else arguments)
        with command.make_context("twinlens", given) as context:
            command.invoke(context)
        sys.stdout.flush()
        return 0
    except typer.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        # Whoever read our output has gone. Point it elsewhere, or the interpreter complains while it ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except _Terminated:
        return _fail("terminated", _TERMINATED)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", _INTERRUPTED)
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):  # what Lightning makes of Ctrl-C
            return _fail("interrupted", _INTERRUPTED)
        raise
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: its message is the help
            typer.echo(str(error), err=True)
            return 2
        told = _tell(error)
        if told is None:
            raise
        return _fail(*told)


def _open_outputs() -> None:
    """Whoever started us may have closed stdout or stderr: then nobody wants to read them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - as long as we run


def _fail(message: str, exit_code: int) -> int:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.write(f"twinlens: {printable(' '.join(message.split()))}\n")
        sys.stderr.flush()
    return exit_code


def _tell(error: Exception) -> tuple[str, int] | None:
    """The line to print and the exit code; None for what nobody expected, whose traceback is wanted."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        extra = EXTRAS.get(package)
        return None if extra is None else (f"{package} is not installed: pip install 'twinlens[{extra}]'", 1)
    exit_code = getattr(error, "exit_code", None)
    if isinstance(exit_code, int) and callable(getattr(error, "format_message", None)):
        return _usage(error), exit_code
    for module, name in _USER_ERRORS:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(error, kind):
            return str(error), 1
    if isinstance(error, OSError) and error.strerror:
        return (f"{error.filename}: {error.strerror}" if error.filename else error.strerror), 1
    return None


def _usage(error: Any) -> str:
    """The message of an error of the command-line library, with where to look for help."""
    # Newer versions of Typer check choices with pydantic, and let its prefix through.
    message: str = error.format_message().replace("Value error, ", "", 1).removeprefix("Invalid value: ").rstrip(".")
    context = getattr(error, "ctx", None)
    return message if context is None else f"{message} (see `{context.command_path} --help`)"


@contextlib.contextmanager
def _local(data: Path | None, bundle: str | None, /, *, backups: str | None = None) -> Iterator[str]:
    from twinlens.server.local import local_server  # noqa: PLC0415 - only `--local` needs the server
    from twinlens.server.settings import load_settings  # noqa: PLC0415

    with local_server(data, bundle, settings=load_settings(backups=backups)) as target:
        yield target


if __name__ == "__main__":
    sys.exit(main())
