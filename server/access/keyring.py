"""The tokens that are good now: those of a file, read again when it changes."""

from __future__ import annotations

import hmac
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from twinlens.server.access.token import digest, name_in
from twinlens.server.access.token_bucket import TokenBucket
from twinlens.server.access.token_file import StoredToken, TokenFileError, read_tokens
from twinlens.server.core.caller import Caller

log = logging.getLogger(__name__)

# How long a token that was taken out of the file may still be good.
LOOK_EVERY_S = 1.0
# Compared with where no token has the name, so that this takes as long.
_NOBODY = bytes(32)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a token, which one (its digest), and how often he may call; None: as often as he likes."""

    caller: Caller
    digest: bytes
    bucket: TokenBucket | None


class Keyring:
    """Tokens by name. For the event loop's thread only.

    A file that was changed into something that cannot be read changes nothing: the tokens before it stay good, and the
    log says what is wrong.

    Args:
        path: The file.
        clock: Seconds that only go on.

    Raises:
        TokenFileError: if the file cannot be read to begin with.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._seen = _state(path)
        self._tokens: Mapping[str, tuple[StoredToken, TokenBucket | None]] = {}
        self._take(read_tokens(path))
        self._looked_s = clock()
        if not self._tokens:
            log.warning("the file of tokens %s is empty, so nobody may call; make one with `twinlens tokens new`", path)
        if self._seen is not None and self._seen.mode & (stat.S_IWGRP | stat.S_IWOTH):
            log.warning("others may write to the file of tokens %s, and give themselves one: chmod go-w it", path)

    def __len__(self) -> int:
        return len(self._tokens)

    def find(self, token: str) -> Holder | None:
        """Who holds a token; None for one that is not good.

        Which token it is, is told by its name, which is no secret; the comparison with it takes the same time whatever
        the token.
        """
        self._look_if_due()
        stored, bucket = self._tokens.get(name_in(token) or "", (None, None))
        same = hmac.compare_digest(stored.digest if stored is not None else _NOBODY, digest(token))
        if stored is None or not same or _expired(stored):
            return None
        return Holder(stored.caller, stored.digest, bucket)

    def is_good(self, holder: Holder) -> bool:
        """Whether a token that was found is good still, and for the same."""
        self._look_if_due()
        stored, _ = self._tokens.get(holder.caller.name, (None, None))
        if stored is None or _expired(stored):
            return False
        return (stored.digest, stored.caller) == (holder.digest, holder.caller)

    def look(self) -> None:
        """Reads the file again, if it changed since the last time."""
        self._looked_s = self._clock()
        state = _state(self._path)
        if state == self._seen:
            return
        self._seen = state
        try:
            tokens = read_tokens(self._path)
        except TokenFileError as error:
            log.error("%s; the tokens that were good before stay good", error)  # noqa: TRY400 - it says all
            return
        self._take(tokens)
        log.info("%d tokens are good now", len(self._tokens))

    def _look_if_due(self) -> None:
        if self._clock() - self._looked_s >= LOOK_EVERY_S:
            self.look()

    def _take(self, tokens: list[StoredToken]) -> None:
        self._tokens = {token.caller.name: (token, self._bucket(token)) for token in tokens}

    def _bucket(self, token: StoredToken) -> TokenBucket | None:
        if token.rate_per_s is None:
            return None
        before = self._tokens.get(token.caller.name, (None, None))[1]
        # A file that is touched gives nobody a full bucket.
        if before is not None and before.per_s == token.rate_per_s:
            return before
        return TokenBucket(token.rate_per_s, self._clock)


@dataclass(frozen=True, slots=True)
class _State:
    """What tells one version of a file from another."""

    modified_ns: int
    changed_ns: int
    size: int
    inode: int
    mode: int


def _expired(token: StoredToken) -> bool:
    return token.expires is not None and token.expires <= datetime.now(UTC)


def _state(path: Path) -> _State | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - once a second on the event loop: no path is built for it
    except OSError:
        return None
    return _State(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)
