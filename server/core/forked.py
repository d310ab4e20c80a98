"""What must not be used in a forked child: threads, sessions and connections stay behind in the parent."""

from __future__ import annotations

import os

from twinlens.encoders.protocol import EncoderLike, HasProcess
from twinlens.server.core.errors import Code, ServiceError


class ForkedProcess(ServiceError):  # noqa: N818 - reads as what it is
    """Something was used in a fork of the process that made it; without this it would wait for ever."""

    def __init__(self, what: str, made_by: int) -> None:
        super().__init__(
            Code.UNAVAILABLE,
            f"{what} was made by process {made_by}, of which this one ({os.getpid()}) is a fork: its threads and "
            "sessions stayed behind; start the server in the process that is to serve, or start that one by spawn",
        )


class OwnProcess:
    """Remembers which process made something.

    Args:
        what: It, for the message.
        made_by: That process, if not this one.
    """

    def __init__(self, what: str, made_by: int | None = None) -> None:
        self._what = what
        self._id = os.getpid() if made_by is None else made_by

    @property
    def is_this(self) -> bool:
        """Whether that is the process that runs."""
        return os.getpid() == self._id

    def check(self) -> None:
        """Refuses to go on in any other.

        Raises:
            ForkedProcess: in a fork.
        """
        if not self.is_this:
            raise ForkedProcess(self._what, self._id)


def check_encoder(encoder: EncoderLike) -> None:
    """Refuses an encoder whose sessions belong to another process.

    Raises:
        ForkedProcess: this is a fork of the one that loaded it.
    """
    if isinstance(encoder, HasProcess):
        OwnProcess("the encoder", encoder.process).check()
