"""The starter's figures on real photos, measured through a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.quality.starter import GOALS, measure


@pytest.mark.slow
@pytest.mark.shared
def test_the_starter_reaches_its_three_goals_through_the_server(starter_bundle: Path, shared_data: Path) -> None:
    figures = {figure.name: figure.at[1] for figure in measure(starter_bundle, shared_data)}
    assert figures.keys() == GOALS.keys()
    missed = {name: figures[name] for name in GOALS if figures[name] < GOALS[name]}
    assert not missed
