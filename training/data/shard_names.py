"""Which shards a name means: a file, a folder, a pattern, a list in braces, or addresses of any of these."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from twinlens.training.data.errors import DataError
from twinlens.training.errors import first_line

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# Addresses may be chained (`zip://a.tar::https://…`).
_USER = re.compile(r"(?<=//)[^/?#]*@")
_QUERY = re.compile(r"[?#].*?(?=::|$)")


def is_address(name: str) -> bool:
    """Whether a name is not that of a local file (`https://…`, `s3://…`)."""
    return "://" in name


def shard_names(pattern: str) -> list[str]:
    """The shards, in a fixed order.

    Args:
        pattern: A `.tar` file, a folder of such, a pattern (`train-*.tar`), or an address; lists in braces stand for
            each of their values (`{a,b}`) or numbers (`{0000..0012}`, with as many digits as are written). In an
            address `${NAME}` stands for that variable of the environment.

    Raises:
        DataError: if it names nothing, a file that is not there, or a variable that is not set.
    """
    found: list[str] = []
    missing: list[str] = []
    for name in expand_braces(pattern):
        these = _addresses(_with_variables(name)) if is_address(name) else _local(name)
        found += these
        if not these and glob.escape(name) == name:  # a pattern may match nothing, a name is meant
            missing.append(name)
    if not found:
        shown = public_name(pattern)
        raise DataError(f"no shards at {shown}: name .tar files, a folder of them, a pattern or an address")
    if missing:
        raise DataError(f"{len(missing)} of the shards that {pattern} names are not there; the first is {missing[0]}")
    return list(dict.fromkeys(found))


def public_name(name: str) -> str:
    """What a shard may be called in records and messages: of an address neither user nor query, which may be keys."""
    return _QUERY.sub("", _USER.sub("", name)) if is_address(name) else name


def shard_titles(names: Sequence[str]) -> list[str]:
    """What the shards are called in the names of their samples: all different, and nothing that may be a key.

    The last part of the path; where several shards share it, the whole of it; where they differ in what may be a key
    alone, also their place among `names`.
    """
    public = [public_name(name) for name in names]
    last, whole = Counter(Path(name).name for name in public), Counter(public)
    return [
        Path(name).name if last[Path(name).name] == 1 else name if whole[name] == 1 else f"{name}[{place}]"
        for place, name in enumerate(public)
    ]


def _with_variables(address: str) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise DataError(f"the address of the shards names the variable {found[1]}, which is not set")
        return os.environ[found[1]]

    return _VARIABLE.sub(value, address)


def expand_braces(pattern: str) -> Iterator[str]:
    """A pattern for each value of its lists in braces, the last list running fastest.

    Example:
        >>> list(expand_braces("{a,b}-{08..10}.tar"))
        ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b-08.tar', 'b-09.tar', 'b-10.tar']
    """
    for braces in _BRACES.finditer(pattern):
        values = list(_values(braces[1]))
        if len(values) > 1 or _RANGE.fullmatch(braces[1]):
            for value in values:
                for rest in expand_braces(pattern[braces.end() :]):
                    yield pattern[: braces.start()] + value + rest
            return
    yield pattern


def _values(listed: str) -> Iterator[str]:
    for part in listed.split(","):
        numbers = _RANGE.fullmatch(part)
        if numbers is None:
            yield part
            continue
        first, last = int(numbers[1]), int(numbers[2])
        digits = len(numbers[1]) if numbers[1].startswith("0") else 0
        step = 1 if last >= first else -1
        yield from (f"{number:0{digits}d}" for number in range(first, last + step, step))


def _local(name: str) -> list[str]:
    path = Path(name)
    if path.is_file():
        return [name]
    if path.is_dir():
        return sorted(str(each) for each in path.glob("*.tar"))
    return sorted(each for each in glob.glob(name) if Path(each).is_file())  # noqa: PTH207 - the pattern is a whole path


def _addresses(name: str) -> list[str]:
    if "*" not in name or name.startswith(("http://", "https://")):
        return [name]
    import fsspec  # noqa: PLC0415 - for addresses only

    try:
        fs, path = fsspec.url_to_fs(name)
        return sorted(fs.unstrip_protocol(each) for each in fs.glob(path))
    except Exception as error:  # whatever a file system raises
        shown = public_name(name)
        raise DataError(f"{shown} cannot be listed: {first_line(error).replace(name, shown)}") from None
