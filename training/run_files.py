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
# The best step by what is validated, as soon as there is one.
BEST_FILE: Final = "best.pt"
# Once it has ended; the second where the first holds a moving average of the weights.
CHECKPOINT_FILE: Final = "checkpoint.pt"
UNAVERAGED_FILE: Final = "unaveraged.pt"
# Where the first is a mean of these weights and those of its parent: these, and what each share of them was worth.
TUNED_FILE: Final = "tuned.pt"
INTERPOLATION_FILE: Final = "interpolation.csv"
