from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from twinlens.training.sections.hard_negatives import HardNegativesConfig


def test_a_manifest_alone_takes_two_captions_a_pair() -> None:
    section = HardNegativesConfig.model_validate({"manifest": "mined.parquet"})
    assert (section.texts_per_anchor, section.wrong_captions_per_anchor) == (2, 0)
    assert section.share_start == section.window == section.hardness_end == 1.0


def test_wrong_captions_need_no_manifest() -> None:
    section = HardNegativesConfig.model_validate({"wrong_captions_per_anchor": 3})
    assert section.manifest is None
    assert section.texts_per_anchor == 0


def test_a_recorded_section_reads_as_it_was() -> None:
    for given in ({"manifest": "m", "texts_per_anchor": 1}, {"wrong_captions_per_anchor": 1, "share_start": 0.5}):
        section = HardNegativesConfig.model_validate(given)
        assert HardNegativesConfig.model_validate(section.model_dump(mode="json")) == section


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "are all 0"),
        ({"manifest": "m", "texts_per_anchor": 0}, "are all 0"),
        ({"texts_per_anchor": 2, "wrong_captions_per_anchor": 1}, "texts_per_anchor needs a manifest"),
        ({"pairs_per_anchor": 2}, "pairs_per_anchor needs a manifest"),
        ({"manifest": "m", "hardness_start": 0.2}, "set window"),
        ({"manifest": "m", "window": 0.0}, "greater than 0"),
        ({"manifest": "m", "share_start": 1.5}, "less than or equal to 1"),
        ({"manifest": "m", "grown_at": -0.1}, "greater than or equal to 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        HardNegativesConfig.model_validate(given)
