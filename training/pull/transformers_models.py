"""Loads a model of transformers from a folder: no code of the folder runs, and no weight is left random."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError
from twinlens.training.export.towers import frozen
from twinlens.training.json_object import read_json_object
from twinlens.training.pull.layer_counts import refuse_endless_layers

_INSTALL_HINT = "pip install 'twinlens[huggingface]'"
# Buffers that a model makes itself, and that older checkpoints store.
_MADE_BY_THE_MODEL = ("position_ids", "token_type_ids")


def transformers() -> Any:
    """The library.

    Raises:
        ExportError: if it is not installed.
    """
    try:
        import transformers as library  # noqa: PLC0415 - an extra, and seconds
    except ImportError as error:
        raise ExportError(f"models of Hugging Face need transformers: {_INSTALL_HINT}") from error
    return library


def load_model(folder: Path, class_name: str, name: str, **options: Any) -> Any:
    """Builds `transformers.<class_name>` with the folder's weights, in evaluation mode and float32 on the CPU.

    transformers only warns where a checkpoint lacks weights, and leaves them random; here that is an error.

    Args:
        folder: The repository's folder.
        class_name: The class.
        name: What a user calls the model, for errors.
        options: Passed on (`add_pooling_layer`).

    Raises:
        ExportError: if weights are missing or of another shape, or the folder asks for code of its own.
    """
    library = transformers()
    refuse_own_code(folder, name)
    refuse_endless_layers(read_json_object(folder / "config.json"), name)
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise ExportError(f"{name} holds no weights (model.safetensors or pytorch_model.bin)")
    try:
        with quiet():
            model, info = getattr(library, class_name).from_pretrained(
                folder,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                **options,
            )
    except Exception as error:  # transformers, safetensors, torch and the system each raise their own
        raise ExportError(f"transformers cannot load {name} as {class_name}: {_reason(error)}") from error
    missing = sorted(key for key in info["missing_keys"] if not key.endswith(_MADE_BY_THE_MODEL))
    wrong = sorted(str(key) for key in info.get("mismatched_keys", ()))
    if missing or wrong:
        more = len(missing) + len(wrong) - 1
        what = f"{missing[0]} is missing" if missing else f"{wrong[0]} has another shape"
        raise ExportError(
            f"the weights of {name} do not fit {class_name}: {what}" + (f" (and {more} more)" if more else "")
        )
    return frozen(model)


def _reason(error: Exception) -> str:
    """Without advice to switch off what protects, and without pointers to a report that nobody saw."""
    reason = first_line(error)
    if "weights only" in reason.lower().replace("_", " "):
        return "its weights are not a file of plain tensors"
    if "ignore_mismatched_sizes" in reason:
        return "its weights have other shapes than its configuration says"
    return reason


def preprocessor_config(folder: Path, name: str) -> dict[str, Any]:
    """How pictures are prepared; as transformers itself looks for it.

    Raises:
        ExportError: if the folder does not say.
    """
    for file in ("preprocessor_config.json", "processor_config.json"):
        found = read_json_object(folder / file)
        if found.get("image_processor") or "image_mean" in found:
            return found
    raise ExportError(f"{name} has no preprocessor_config.json, so its pictures cannot be prepared as it was trained")


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps the library's progress bar and its remarks about weights away from the user; errors tell what matters."""
    library = transformers()
    log = logging.getLogger("transformers")
    level = log.level
    bars = library.utils.logging.is_progress_bar_enabled()
    log.setLevel(logging.ERROR)
    library.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        log.setLevel(level)
        if bars:
            library.utils.logging.enable_progress_bar()


def refuse_own_code(folder: Path, name: str) -> None:
    """Refuses a model whose folder says that it needs code of its own; transformers would ask whether to run it.

    Raises:
        ExportError: if it does.
    """
    if "auto_map" in read_json_object(folder / "config.json"):
        raise ExportError(f"{name} brings code of its own (auto_map in config.json), which pull does not run")
