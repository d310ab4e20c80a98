from __future__ import annotations

import os
from pathlib import Path

import pytest

from twinlens.encoders.cpus import allowed_cpus, cpu_features, cpu_model


class TestAllowedCpus:
    @pytest.fixture(autouse=True)
    def eight_by_affinity(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))

    def machine(self, root: Path, cgroup: str, files: dict[str, str]) -> Path:
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(cgroup)
        for name, text in files.items():
            file = root / "sys/fs/cgroup" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return root

    def test_without_cgroups_it_is_the_affinity(self, tmp_path: Path) -> None:
        assert allowed_cpus(tmp_path) == 8

    def test_an_unlimited_group_changes_nothing(self, tmp_path: Path) -> None:
        assert allowed_cpus(self.machine(tmp_path, "0::/\n", {"cpu.max": "max 100000\n"})) == 8

    @pytest.mark.parametrize(
        ("quota", "cpus"), [("200000 100000", 2), ("350000 100000", 3), ("50000 100000", 1), ("9900000 100000", 8)]
    )
    def test_a_quota_limits(self, tmp_path: Path, quota: str, cpus: int) -> None:
        assert allowed_cpus(self.machine(tmp_path, "0::/\n", {"cpu.max": quota + "\n"})) == cpus

    def test_the_tightest_of_nested_groups_limits(self, tmp_path: Path) -> None:
        files = {"a/cpu.max": "300000 100000", "a/b/cpu.max": "500000 100000", "a/b/c/cpu.max": "max 100000"}
        assert allowed_cpus(self.machine(tmp_path, "0::/a/b/c\n", files)) == 3

    def test_in_a_container_whose_path_is_the_hosts(self, tmp_path: Path) -> None:
        root = self.machine(tmp_path, "0::/docker/abc\n", {"cpu.max": "100000 100000"})
        assert allowed_cpus(root) == 1

    def test_the_first_version_of_cgroups(self, tmp_path: Path) -> None:
        files = {"cpu,cpuacct/x/cpu.cfs_quota_us": "250000", "cpu,cpuacct/x/cpu.cfs_period_us": "100000"}
        assert allowed_cpus(self.machine(tmp_path, "4:cpu,cpuacct:/x\n1:name=systemd:/x\n", files)) == 2

    def test_the_first_version_without_limit(self, tmp_path: Path) -> None:
        files = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
        assert allowed_cpus(self.machine(tmp_path, "4:cpu:/\n", files)) == 8

    @pytest.mark.parametrize("text", ["", "nonsense", "1 0", "a b"])
    def test_an_unreadable_quota_counts_as_none(self, tmp_path: Path, text: str) -> None:
        assert allowed_cpus(self.machine(tmp_path, "0::/\n", {"cpu.max": text})) == 8


class TestProcessor:
    def machine(self, root: Path, text: str) -> Path:
        (root / "proc").mkdir()
        (root / "proc/cpuinfo").write_text(text)
        return root

    def test_name_and_the_features_that_matter(self, tmp_path: Path) -> None:
        text = "model name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2 avx512f amx_bf16 avx512_vnni\n\nmodel name\t: B\n"
        root = self.machine(tmp_path, text)
        assert cpu_model(root) == "Some CPU @ 2 GHz"
        assert cpu_features(root) == ("avx2", "avx512f", "avx512_vnni", "amx_bf16")

    def test_an_arm_processor(self, tmp_path: Path) -> None:
        root = self.machine(tmp_path, "processor: 0\nFeatures: fp asimd asimddp i8mm bf16\nCPU part: 0xd4f\n")
        assert cpu_model(root) == "0xd4f"
        assert cpu_features(root) == ("asimd", "asimddp", "i8mm", "bf16")

    def test_a_system_that_does_not_tell(self, tmp_path: Path) -> None:
        assert cpu_features(tmp_path) == ()
        assert cpu_model(tmp_path)
