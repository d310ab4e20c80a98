"""What can be told of a source at once is told at once, and what is a program's own fault is not told of a file."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_hugging_face
from tests.training.pull.conftest import Published
from twinlens.training.export.errors import ExportError
from twinlens.training.pull import families
from twinlens.training.pull.families import pull
from twinlens.training.pull.faults import is_program_fault
from twinlens.training.pull.source import parse_source

_PULL = """
import sys, urllib.request
from pathlib import Path
from twinlens.training.export.errors import ExportError
from twinlens.training.pull.families import pull

def refuse(*_, **__):
    raise OSError("unplugged")

urllib.request.urlopen = refuse
for source in sys.argv[2:]:
    try:
        pull(source, Path(sys.argv[1]))
    except ExportError as error:
        print(error)
assert not {"torch", "open_clip", "timm", "transformers", "onnx", "onnxruntime"} & sys.modules.keys()
"""


def test_paths_names_and_a_missing_network_are_told_without_loading_a_library_of_models(tmp_path: Path) -> None:
    wanted = {
        "ViT-B-32:/nowhere/epoch_7.pt": "no checkpoint at /nowhere/epoch_7.pt",
        "ViT-B-31": "open_clip knows no model 'ViT-B-31'; perhaps ViT-B-32, ViT-B-16",
        "RN50:no-such-tag": "RN50 has no published weights 'no-such-tag'",
        "ViT-B-32:openai": "cannot download ViT-B-32:openai: no network (unplugged)",
        "ViT-B-16-SigLIP": "ViT-B-16-SigLIP: cannot download the tokenizer timm/ViT-B-16-SigLIP",
        "timm:resnet81": "timm knows no model 'resnet81'; perhaps resnet18",
        "timm:resnet18:/nowhere/w.safetensors": "no checkpoint at /nowhere/w.safetensors",
        "hf:/nowhere": "no folder /nowhere",
        "hf:owner/name": "cannot download owner/name: no network (unplugged)",
    }
    command = [sys.executable, "-c", _PULL, str(tmp_path / "bundle"), *wanted]
    hub = {"HF_HOME": str(tmp_path / "hub"), "PATH": "", "HOME": str(tmp_path)}
    ran = subprocess.run(command, env=hub, capture_output=True, text=True, check=True)
    for line, start in zip(ran.stdout.splitlines(), wanted.values(), strict=True):
        assert line.startswith(start)


def test_a_padding_token_that_is_not_there_is_found_before_the_model_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_hugging_face.hf_clip(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "pad_token": "<|endoftext|>"}))
    monkeypatch.setattr(families, "_family", lambda _: pytest.fail("it was built"))
    with pytest.raises(ExportError, match=r"names '<\|endoftext\|>' as its pad_token, but tokenizer\.json has no such"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


def test_a_stage_that_takes_long_is_announced_once_nothing_speaks_against_it(
    tmp_path: Path, published: Published
) -> None:
    tiny_hugging_face.hf_vit(tmp_path)
    stages: list[str] = []
    with pytest.raises(ExportError, match="no folder"):
        pull("hf:/nowhere", tmp_path / "bundle", progress=stages.append)
    assert stages == []
    pull(f"hf:{tmp_path}", tmp_path / "bundle", progress=stages.append)
    assert stages == [f"building hf:{tmp_path}"]
    assert published.image is not None


@pytest.mark.parametrize("fault", [ImportError("no part of it"), NameError("no such name")])
def test_a_fault_of_the_program_stays_one(fault: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr(families, "_family", broken)
    with pytest.raises(ExportError, match="no folder"):
        pull("hf:/nowhere", tmp_path / "bundle")
    tiny_hugging_face.hf_vit(tmp_path)
    with pytest.raises(type(fault), match="no"):
        pull(f"hf:{tmp_path}", tmp_path / "bundle")


@pytest.mark.parametrize(
    ("owner", "fault"), [(json, True), (types.SimpleNamespace, True), (Published(), False), ([], False), (None, False)]
)
def test_an_attribute_is_missed_by_the_program_or_by_a_value(owner: Any, fault: bool) -> None:
    with pytest.raises(AttributeError) as caught:
        owner.no_such_attribute  # noqa: B018
    assert is_program_fault(caught.value) is fault


def test_an_object_of_ours_that_lacks_an_attribute_is_the_programs_fault() -> None:
    source: Any = parse_source("hf:/nowhere")
    with pytest.raises(AttributeError) as caught:
        source.no_such_attribute  # noqa: B018
    assert is_program_fault(caught.value)
