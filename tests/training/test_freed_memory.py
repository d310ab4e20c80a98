"""Within, memory that is freed is at hand again without the system's help."""

from __future__ import annotations

import platform
import resource

import pytest
import torch

from twinlens.training.freed_memory import freed_memory_kept

BYTES = 256 << 20
PAGES = BYTES // resource.getpagesize()


def faults_of_filling(size: int = BYTES) -> int:
    """How often the system had to hand out a page."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(size, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_pages_are_handed_out_once_within_and_again_afterwards() -> None:
    with freed_memory_kept():
        faults_of_filling()
        # A little less: what torch asks for besides, for alignment, would not fit into the very same gap.
        assert faults_of_filling(BYTES - 8192) < PAGES // 4
    assert faults_of_filling() > PAGES // 4
