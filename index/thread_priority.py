"""Letting long work step back behind searches."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

# On a core that searches keep busy, a thread that is so much nicer gets a quarter of the time, and with 10 a tenth. A
# merge must end before what it leaves behind makes searches slower than it does itself.
_STEPS_BACK = 5


def yield_to_searches() -> None:
    """Lets the kernel prefer other threads to the calling one, and to those that libraries start for it from now on.

    Only Linux has a priority for each thread, and none takes it back: for threads that do nothing else.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _STEPS_BACK)
