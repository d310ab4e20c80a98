"""Which layers of a tower int8 hurts most: each alone in int8, by how far the vectors move."""

from __future__ import annotations

import numpy as np

from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.variants.observe import Feed
from twinlens.training.export.variants.prepare import Prepared
from twinlens.training.export.variants.sessions import open_model
from twinlens.training.export.variants.static_qdq import write_int8
from twinlens.training.export.variants.watch import Watch, unwatched


def most_sensitive_first(prepared: Prepared, feed: Feed, watch: Watch = unwatched) -> list[str]:
    """Layer names by the cosine lost on one batch of calibration data, the largest loss first.

    Ranges and rounded weights are known, so a layer costs one session and one run of a small batch.
    """
    names = [layer.name for layer in prepared.layers]
    inputs = dict(feed)
    (exact,) = open_model(prepared.graph.model).run(None, inputs)
    losses: dict[str, float] = {}
    with watch("ranking", len(names)) as progress:
        for name in names:
            (found,) = open_model(write_int8(prepared, set(names) - {name})).run(None, inputs)
            losses[name] = float(np.mean(1.0 - row_cosines(exact, found)))
            progress.advance()
    return sorted(names, key=lambda name: (-losses[name], name))
