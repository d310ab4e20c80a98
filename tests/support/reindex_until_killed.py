"""A move to another encoder that is meant to be killed: it prints `COLLECTION DONE` after steps, then waits.

python -m tests.support.reindex_until_killed DATA
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.reindex import Progress
from twinlens.server.reindexing import reindex_folder
from twinlens.server.settings import Settings


def show(now: Progress) -> None:
    """Says how far it is, and waits to be killed once it has begun with the second collection."""
    sys.stdout.write(f"{now.collection} {now.done}\n")
    sys.stdout.flush()
    if now.collection == "words" and now.done:
        sys.stdin.read()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    reindex_folder(folder, folder / "new", Settings(), show, encoder=FakeEncoder(seed=1))
