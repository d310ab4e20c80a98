"""What open_clip and timm list, read without importing them, is what they list themselves."""

from __future__ import annotations

import json
import subprocess
import sys

import open_clip
import pytest
import timm

from twinlens.training.export.errors import ExportError
from twinlens.training.pull import open_clip_listing, timm_listing
from twinlens.training.pull.near_names import perhaps

_READ_WITHOUT = """
import json, sys
from twinlens.training.pull import open_clip_listing as listing, timm_listing
names = json.load(sys.stdin)
for name in names["timm"]:
    timm_listing.check_name(name)
names = listing.model_configs()
found = {name: {tag: listing.tag_config(name, tag) for tag in listing.tags_of(name)} for name in names}
assert not {"torch", "open_clip", "timm", "transformers"} & sys.modules.keys()
print(json.dumps([names, found]))
"""


def test_the_listings_are_the_libraries_own_and_load_none_of_them() -> None:
    asked = json.dumps({"timm": [*timm.list_models(), "vit_tiny_patch16_224_in21k"]})
    ran = subprocess.run([sys.executable, "-c", _READ_WITHOUT], input=asked, capture_output=True, text=True, check=True)
    configs, tags = json.loads(ran.stdout)
    assert configs == {name: open_clip.get_model_config(name) for name in open_clip.list_models()}
    assert list(tags) == sorted(open_clip.list_models())
    for name, found in tags.items():
        assert list(found) == open_clip.list_pretrained_tags_by_model(name)
    assert tags["ViT-B-32"]["openai"]["quick_gelu"] is True


def test_configurations_that_a_program_added_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_clip, "list_models", lambda: ["mine"])
    monkeypatch.setattr(open_clip, "get_model_config", lambda name: {"name": name})
    assert open_clip_listing.model_configs() == {"mine": {"name": "mine"}}


def test_names_spelt_alike_come_before_those_that_contain_it() -> None:
    known = ["ViT-B-32", "ViT-B-16", "RN50", "my-vit-b", "other"]
    assert perhaps("vit-b-31", known).startswith("; perhaps ViT-B-32, ViT-B-16")
    assert perhaps("N5", known) == "; perhaps RN50"
    assert perhaps("nothing-like-it", known) == ""


def test_a_mistyped_timm_name_is_answered_with_its_neighbours() -> None:
    with pytest.raises(ExportError, match=r"timm knows no model 'resnet81'; perhaps .*resnet18"):
        timm_listing.check_name("resnet81")
