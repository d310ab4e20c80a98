"""Who may call what: asked for every call before a byte of its messages is read, and for every message then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from twinlens.server.access.keyring import Holder, Keyring
from twinlens.server.access.named_collections import Path, collections_named, paths_to_collections
from twinlens.server.access.scopes import HEALTH, NEEDS, REFLECTION, Need
from twinlens.server.core.caller import Caller
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.settings import Settings

Parse = Callable[[Any], Any]
Metadata = Sequence[tuple[str, str | bytes]]

_HEADER = "authorization"
_SCHEME = "bearer "
_HOW = 'send a token as "authorization: Bearer TOKEN"'


class Authority:
    """Admits callers by their tokens; without a file of tokens, everybody.

    Args:
        settings: The file, and whether health and reflection are open.
        telemetry: Counts whom it refuses.
        private: Whoever reaches the server may do everything: it listens where nobody else can.
    """

    def __init__(self, settings: Settings, telemetry: Telemetry, *, private: bool = False) -> None:
        self._path = None if private else settings.tokens
        self._keyring: Keyring | None = None
        self._open = tuple(
            prefix
            for prefix, is_open in ((HEALTH, settings.open_health), (REFLECTION, settings.open_reflection))
            if is_open
        )
        self._refused = telemetry.refused.labels
        self._paths: dict[str, tuple[Path, ...]] = {}

    @property
    def asks(self) -> bool:
        """Whether it asks callers for tokens, but for what is open to all."""
        return self._path is not None

    def open(self) -> None:
        """Reads the file; before that, nobody is admitted.

        Raises:
            TokenFileError: if it cannot be read.
        """
        if self._path is not None:
            self._keyring = Keyring(self._path)

    def reload(self) -> None:
        """Looks at the file now, if there is one."""
        if self._keyring is not None:
            self._keyring.look()

    def admit(self, method: str, metadata: Metadata) -> Holder | None:
        """Who calls; None where everybody may.

        Args:
            method: Its full name, "/package.Service/Method".
            metadata: What came with the call.

        Raises:
            ServiceError: UNAUTHENTICATED without a good token, PERMISSION_DENIED where it does not suffice,
                RESOURCE_EXHAUSTED where it was used too often.
        """
        if self._path is None or method.startswith(self._open):
            return None
        if self._keyring is None:
            raise ServiceError(Code.UNAVAILABLE, "the server is starting")
        holder = self._keyring.find(self._token(metadata))
        if holder is None:
            raise self._refusal("token", Code.UNAUTHENTICATED, f"the token is not good, or not any more; {_HOW}")
        caller, need = holder.caller, NEEDS.get(method)
        if need is None:
            raise self._refusal("scope", Code.PERMISSION_DENIED, "no scope allows to call this")
        if not (caller.may_everywhere if need.everywhere else caller.may_somewhere)(need.scope):
            raise self._refusal("scope", Code.PERMISSION_DENIED, _lacks(caller, need))
        if holder.bucket is not None and (wait_s := holder.bucket.take()):
            raise self._refusal(
                "rate",
                Code.RESOURCE_EXHAUSTED,
                f"the token {caller.name} is good for {holder.bucket.per_s:g} calls a second; try again in a moment",
                retry_after_s=wait_s,
            )
        return holder

    def checking(self, parse: Parse, method: str, holder: Holder | None) -> Parse:
        """A parser that also refuses messages about collections that are not the caller's.

        Args:
            parse: Makes a message of its bytes.
            method: What is called.
            holder: Who calls.
        """
        need = NEEDS.get(method)
        if holder is None or need is None or holder.caller.may_everywhere(need.scope):
            return parse
        caller = holder.caller

        def checked(raw: Any) -> Any:
            message = parse(raw)
            for collection in collections_named(message, self._paths_of(method, message)):
                if not caller.may(need.scope, collection):
                    raise self._refusal("scope", Code.PERMISSION_DENIED, _lacks(caller, need, on_that=True))
            return message

        return checked

    async def paced(self, messages: AsyncIterator[Any], holder: Holder) -> AsyncIterator[Any]:
        """The messages of a stream, as fast as the caller may send them: each after the first counts as a call.

        They wait instead of being refused: meanwhile the caller cannot send more, either.

        Raises:
            ServiceError: UNAUTHENTICATED where the token was revoked meanwhile, or its scopes changed.
        """
        first = True
        async for message in messages:
            if not first:
                if holder.bucket is not None and (wait_s := holder.bucket.owe()):
                    await asyncio.sleep(wait_s)
                if self._keyring is not None and not self._keyring.is_good(holder):
                    raise self._refusal("token", Code.UNAUTHENTICATED, f"the token was revoked or changed; {_HOW}")
            first = False
            yield message

    def _token(self, metadata: Metadata) -> str:
        given = [value for key, value in metadata if key == _HEADER]
        if not given:
            raise self._refusal("token", Code.UNAUTHENTICATED, f"this server asks for a token; {_HOW}")
        (value, *more) = given
        if more or not isinstance(value, str) or not value.lower().startswith(_SCHEME):
            raise self._refusal("token", Code.UNAUTHENTICATED, f"the authorization is not a single token; {_HOW}")
        return value[len(_SCHEME) :].strip()

    def _paths_of(self, method: str, message: Message) -> tuple[Path, ...]:
        if method not in self._paths:
            self._paths[method] = paths_to_collections(type(message))
        return self._paths[method]

    def _refusal(self, why: str, code: Code, message: str, *, retry_after_s: float | None = None) -> ServiceError:
        self._refused(why=why).inc()
        return ServiceError(code, message, retry_after_s=retry_after_s)


def _lacks(caller: Caller, need: Need, *, on_that: bool = False) -> str:
    reach = " on that collection" if on_that else " on every collection" if need.everywhere else ""
    return f"the token {caller.name} lacks the scope {need.scope.name.lower()}{reach}"
