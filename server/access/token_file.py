"""The file of tokens: TOML with one `[[tokens]]` table each, which holds a hash and never the token."""

from __future__ import annotations

import fcntl
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twinlens.server.access.token import is_name
from twinlens.server.core.caller import EVERY_COLLECTION, Caller, Grant, Scope

MAX_RATE = 1e6
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_COLLECTIONS = re.compile(r"[a-z0-9_*?-]{1,64}")
_KEYS = frozenset({"name", "hash", "scopes", "rate", "created", "expires"})
_HEAD = re.compile(r"^\s*\[\[\s*tokens\s*\]\]\s*(#.*)?$")


class TokenFileError(Exception):
    """A file of tokens cannot be used. The message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What a file says of a token.

    Attributes:
        caller: Whose it is.
        digest: SHA-256 of the token.
        rate_per_s: Calls a second; None: no limit.
        expires: Until when it is good; None: for ever.
    """

    caller: Caller
    digest: bytes
    rate_per_s: float | None = None
    expires: datetime | None = None


def read_grant(text: str) -> Grant:
    """A scope as it is written: "read", or "write:photos-*" for some collections.

    Raises:
        ValueError: saying how it is written.
    """
    scope, colon, collections = text.partition(":")
    if scope.upper() not in Scope.__members__ or not (colon == "" or _COLLECTIONS.fullmatch(collections)):
        raise ValueError(f"{text!r} is not a scope: read, write or admin, or read:COLLECTION with * and ? in it")
    return Grant(Scope[scope.upper()], collections if colon else EVERY_COLLECTION)


def write_grant(grant: Grant) -> str:
    """The opposite of `read_grant`."""
    scope = grant.scope.name.lower()
    return scope if grant.collections == EVERY_COLLECTION else f"{scope}:{grant.collections}"


def read_tokens(path: Path) -> list[StoredToken]:
    """Reads a file.

    Raises:
        TokenFileError: if it cannot be read, or anything in it is not as it should be.
    """
    try:
        content = path.read_bytes().decode()
    except OSError as error:
        raise TokenFileError(f"the tokens cannot be read from {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokenFileError(f"the file of tokens {path} is not text") from None
    return parse_tokens(content, path)


def parse_tokens(content: str, path: Path) -> list[StoredToken]:
    """Reads the content of a file; `path` is for the messages.

    Raises:
        TokenFileError: as `read_tokens`.
    """
    try:
        read = tomllib.loads(content)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is no TOMLDecodeError
        raise TokenFileError(f"the file of tokens {path} is not TOML: {error}") from None
    entries = read.get("tokens", [])
    if set(read) - {"tokens"} or not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise TokenFileError(f"the file of tokens {path} has something else than [[tokens]] tables")
    tokens: dict[str, StoredToken] = {}
    for number, entry in enumerate(entries, 1):
        try:
            token = _token(entry)
        except ValueError as error:
            raise TokenFileError(f"the file of tokens {path}: token {number}: {error}") from None
        if token.caller.name in tokens:
            raise TokenFileError(f"the file of tokens {path} has two tokens named {token.caller.name}")
        tokens[token.caller.name] = token
    return list(tokens.values())


def _token(entry: Mapping[str, Any]) -> StoredToken:
    if unknown := sorted(set(entry) - _KEYS):
        raise ValueError(f"{unknown[0]} is not known")
    name, hashed, scopes = entry.get("name"), entry.get("hash"), entry.get("scopes")
    rate, expires = entry.get("rate"), entry.get("expires")
    if not isinstance(name, str) or not is_name(name):
        raise ValueError('its name must be 1 to 63 of a-z, 0-9 and "-"')
    found = _HASH.fullmatch(hashed) if isinstance(hashed, str) else None
    if found is None:
        raise ValueError(f"the hash of {name} must be sha256: and 64 digits; make tokens with `twinlens tokens new`")
    if not isinstance(scopes, list) or not scopes or not all(isinstance(scope, str) for scope in scopes):
        raise ValueError(f"the scopes of {name} must be a list of at least one")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= MAX_RATE):
        raise ValueError(f"the rate of {name} must be calls a second, above 0 and at most {MAX_RATE:g}")
    if expires is not None and not isinstance(expires, datetime):
        raise ValueError(f"the time {name} expires must be written as 2027-01-31T00:00:00Z")
    return StoredToken(
        caller=Caller(name, tuple(read_grant(scope) for scope in scopes)),
        digest=bytes.fromhex(found[1]),
        rate_per_s=None if rate is None else float(rate),
        expires=expires if expires is None or expires.tzinfo is not None else expires.replace(tzinfo=UTC),
    )


def add_token(path: Path, token: StoredToken, created: datetime) -> None:
    """Appends a token to a file, which is made if it is missing. In one step: a server that looks reads all or nothing.

    Raises:
        TokenFileError: if there is one of that name, or the file cannot be read or written.
    """
    with _alone(path):
        content = _content(path)
        if any(each.caller.name == token.caller.name for each in parse_tokens(content, path)):
            raise TokenFileError(f"there is a token {token.caller.name} in {path} already; choose another name")
        added = _written(token, created)
        changed = f"{content.rstrip()}\n\n{added}" if content.strip() else added
        parse_tokens(changed, path)
        _replace(path, changed)


def remove_token(path: Path, name: str) -> None:
    """Takes a token out of a file, leaving everything else as it is.

    Raises:
        TokenFileError: if there is none of that name, or the file cannot be read or written.
    """
    with _alone(path):
        content = _content(path)
        before = parse_tokens(content, path)
        if not any(token.caller.name == name for token in before):
            raise TokenFileError(f"there is no token {name} in {path}; `twinlens tokens list` names them")
        position = [token.caller.name for token in before].index(name)
        changed = "".join(part for number, part in enumerate(_parts(content), -1) if number != position)
        # Whoever wrote the file may have written it in a way this cannot take apart.
        if parse_tokens(changed, path) != [token for token in before if token.caller.name != name]:
            raise TokenFileError(f"the token {name} cannot be taken out of {path}; remove its lines with an editor")
        _replace(path, changed)


def _parts(content: str) -> Iterator[str]:
    """What stands before the first table, then the tables, each with its lines."""
    part: list[str] = []
    for line in content.splitlines(keepends=True):
        if _HEAD.match(line):
            yield "".join(part)
            part = []
        part.append(line)
    yield "".join(part)


def _written(token: StoredToken, created: datetime) -> str:
    scopes = ", ".join(f'"{write_grant(grant)}"' for grant in token.caller.grants)
    lines = ["[[tokens]]", f'name = "{token.caller.name}"', f'hash = "sha256:{token.digest.hex()}"']
    lines.append(f"scopes = [{scopes}]")
    if token.rate_per_s is not None and math.isfinite(token.rate_per_s):
        lines.append(f"rate = {token.rate_per_s!r}")
    lines.append(f"created = {_time(created)}")
    if token.expires is not None:
        lines.append(f"expires = {_time(token.expires)}")
    return "\n".join(lines) + "\n"


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _content(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise TokenFileError(f"the tokens cannot be read from {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokenFileError(f"the file of tokens {path} is not text") from None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two commands at a time would each write a file without the other's token."""
    try:
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise TokenFileError(f"the tokens cannot be written to {path}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(path: Path, content: str) -> None:
    target = path.resolve()  # where it is a link, what it leads to
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        before = target.stat() if target.exists() else None
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            _give(file.fileno(), before)
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise TokenFileError(f"the tokens cannot be written to {path}: {error.strerror}") from None


def _give(handle: int, before: os.stat_result | None) -> None:
    """To whom the file was before: a server may run as another user than the one who revokes a token."""
    if before is None:
        return
    now = os.fstat(handle)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.fchown(handle, before.st_uid, before.st_gid)
    os.fchmod(handle, before.st_mode & 0o777)
