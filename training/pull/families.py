"""From what a user names to a published bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from twinlens.encoders.manifest import Lineage, Manifest
from twinlens.training.errors import first_line
from twinlens.training.export.destination import check_destination
from twinlens.training.export.errors import ExportError
from twinlens.training.progress import Say, silent
from twinlens.training.pull.before_loading import check_before_loading
from twinlens.training.pull.faults import is_program_fault
from twinlens.training.pull.pulled import PulledTowers
from twinlens.training.pull.source import Choices, Family, Source, parse_source


def pull(
    source: str | Source,
    out: Path,
    choices: Choices | None = None,
    *,
    bundle_name: str | None = None,
    version: str = "1",
    with_checkpoint: bool = True,
    say: Say = silent,
    progress: Say = silent,
) -> Manifest:
    """Publishes a model of open_clip, timm or transformers as a bundle.

    Preprocessing, tokenizer, activation and scoring rule are the checkpoint's own. What cannot be reproduced exactly
    is refused before anything is built, and what can be told of it without torch before that is loaded.

    Args:
        source: `ViT-B-32:openai`, `ViT-B-32:/path/to/checkpoint.pt`, `timm:resnet18`, `hf:FOLDER`, …
        out: The bundle's folder.
        choices: A model configuration, a tokenizer, a prefix of weights.
        bundle_name: The bundle's name; by default the model's and the tag's.
        version: The bundle's version.
        with_checkpoint: Whether the bundle keeps what training goes on from, where the model has such a form.
        say: Told, in one line each, what a user should know beside the result.
        progress: Told, in one line each, when a long stage begins.

    Raises:
        ExportError: if the model, its weights or its tokenizer cannot be had or do not fit, or the exported graphs do
            not agree with torch.
        BundleError: if `out` holds another bundle.
    """
    check_destination(out)
    source = parse_source(source) if isinstance(source, str) else source
    choices = choices or Choices()
    with _one_line(source):
        check_before_loading(source, choices)
    progress(f"building {source}")
    pulled = towers_of(source, choices, say)
    from twinlens.training.export.bundle import About, publish_towers  # noqa: PLC0415 - with torch: seconds

    about = About(
        name=_bundle_name(bundle_name or pulled.name),
        version=version,
        scoring=pulled.scoring,
        lineage=Lineage(method=pulled.method),
        description=pulled.method,
    )
    keep = pulled.keep if with_checkpoint else None
    if with_checkpoint and keep is None:
        say("the bundle keeps no checkpoint, for training knows no such model: it can be served, not trained on")
    return publish_towers(pulled.image, pulled.text, about, out, progress, keep=keep)


def towers_of(source: Source, choices: Choices, say: Say) -> PulledTowers:
    """The towers of what a user names.

    Raises:
        ExportError: as `pull`.
    """
    with _one_line(source):
        return _family(source.family)(source, choices, say)


@contextmanager
def _one_line(source: Source) -> Iterator[None]:
    """Others' files: any value in a configuration may be of another kind than it should."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
        if is_program_fault(error):
            raise
        raise ExportError(
            f"{source}: a file of it is not as its kind should be ({type(error).__name__}: {first_line(error)})"
        ) from error


def _family(family: Family) -> Callable[[Source, Choices, Say], PulledTowers]:
    """What builds a family's towers; each brings its own heavy library."""
    match family:
        case "open_clip":
            from twinlens.training.pull.open_clip_models import open_clip_model  # noqa: PLC0415

            return open_clip_model
        case "timm":
            from twinlens.training.pull.timm_models import timm_model  # noqa: PLC0415

            return timm_model
        case "hf":
            from twinlens.training.pull.hub_folders import hub_folder  # noqa: PLC0415

            return hub_folder


def _bundle_name(name: str) -> str:
    safe = "".join(c if (c.isalnum() and c.isascii()) or c in "._-" else "-" for c in name).lstrip("._-")
    return safe[:128] or "model"
