"""The CPUs this process may use, and what they can do."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

# What makes reduced precision fast, as /proc/cpuinfo spells it.
_FEATURES: Final = (
    *("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve"),
)


def allowed_cpus(root: Path = Path("/")) -> int:
    """CPUs this process may use: its affinity mask, further limited by the quotas of its cgroups (v2 and v1).

    Args:
        root: Where `proc` and `sys` lie; tests pass a folder of their own.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for quota in _quotas(root) if quota > 0]
    return max(1, min([affinity, *(int(quota) for quota in quotas)]))


def cpu_model(root: Path = Path("/")) -> str:
    """The processor's name; of its architecture where the system does not tell."""
    for name in ("model name", "Processor", "CPU part"):
        if found := _cpuinfo(root).get(name):
            return found
    return platform.processor() or platform.machine()


def cpu_features(root: Path = Path("/")) -> tuple[str, ...]:
    """The instruction sets that matter to the towers, of those the processor has."""
    facts = _cpuinfo(root)
    has = set((facts.get("flags") or facts.get("Features") or "").split())
    return tuple(feature for feature in _FEATURES if feature in has)


def _cpuinfo(root: Path) -> dict[str, str]:
    """The facts of the first processor listed."""
    try:
        first = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _quotas(root: Path) -> list[float]:
    """CPUs granted by each cgroup on the way to the root, v2 (`cpu.max`) and v1 (`cpu.cfs_quota_us`)."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in {"", "cpu", "cpu,cpuacct", "cpuacct,cpu"}:
            continue
        base = root / "sys/fs/cgroup" if controllers == "" else root / "sys/fs/cgroup" / controllers
        folder = base / path.strip("/")
        # In a container the path may be the host's; its own group then lies at the base.
        for group in {base, *(p for p in (folder, *folder.parents) if p.is_relative_to(base))}:
            quotas += _quota_of(group)
    return quotas


def _quota_of(group: Path) -> list[float]:
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="utf-8").strip()
            period = (group / "cpu.cfs_period_us").read_text(encoding="utf-8").strip()
        return [float(quota) / float(period)] if quota not in {"max", "-1"} else []
    except (OSError, ValueError, ZeroDivisionError):
        return []
