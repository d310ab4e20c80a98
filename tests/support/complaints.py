"""What a refusal says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from twinlens.encoders.errors import BundleError


def complaint(action: Callable[..., object], *arguments: Any) -> str:
    """The message of the `BundleError` that calling `action` has to raise, which has to be one line."""
    with pytest.raises(BundleError) as caught:
        action(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message
