from __future__ import annotations

from pathlib import Path

import pytest

from twinlens.index.kinds.memory import machine_bytes


def test_without_a_limit_it_is_the_machines(tmp_path: Path) -> None:
    whole = machine_bytes(tmp_path)
    assert whole > 1 << 20
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_bytes(tmp_path) == whole


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"])
def test_a_container_may_allow_less(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("123456\n")
    assert machine_bytes(tmp_path) == 123456
    path.write_text(f"{2**63 - 4096}\n")
    assert machine_bytes(tmp_path) == machine_bytes(tmp_path / "nowhere")
