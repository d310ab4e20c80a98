from __future__ import annotations

from pathlib import Path

from twinlens.index.memory import available_bytes


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_cgroups_it_is_the_machine_s_memory(tmp_path: Path) -> None:
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert available_bytes(tmp_path) == int(total.split()[1]) * 1024


def test_the_lowest_limit_on_the_way_to_the_root_counts(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    write(tmp_path / "sys/fs/cgroup/a/b/memory.max", "max\n")
    write(tmp_path / "sys/fs/cgroup/a/memory.max", "123456789\n")
    assert available_bytes(tmp_path) == 123456789


def test_the_first_version_of_cgroups_counts_too(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "7:cpu:/x\n4:pids,memory:/y\n0::/\n")
    write(tmp_path / "sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1000000\n")
    assert available_bytes(tmp_path) == 1_000_000


def test_a_limit_beyond_the_machine_s_memory_is_none(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/\n")
    write(tmp_path / "sys/fs/cgroup/memory.max", f"{2**62}\n")
    assert available_bytes(tmp_path) == available_bytes(tmp_path / "without")
