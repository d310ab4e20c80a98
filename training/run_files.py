"""What the files of a run folder are called."""

from __future__ import annotations

from typing import Final

CONFIG_FILE: Final = "config.json"
ENVIRONMENT_FILE: Final = "environment.json"
DATA_FILE: Final = "data.json"
METRICS_FILE: Final = "metrics.csv"
EVALUATIONS_FILE: Final = "evaluations.csv"
CURVES_FILE: Final = "curves.png"
# While the run is under way, or interrupted.
STATE_FILE: Final = "state.pt"
# Once it has ended.
CHECKPOINT_FILE: Final = "checkpoint.pt"
