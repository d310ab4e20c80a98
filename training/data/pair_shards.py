"""Lists the pairs in webdataset shards: a picture (`7.jpg`) and its captions (`7.txt`, or a field of `7.json`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from twinlens.encoders.errors import InvalidText
from twinlens.encoders.sniff import IMAGE_SUFFIXES
from twinlens.encoders.tokenise import check_characters
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pairs import CaptionedPicture
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.data.pair_weight import pair_weight
from twinlens.training.data.shard_members import ShardMember, open_shard, shard_members

# Longer ones are no captions, and reading them whole would be an invitation.
_LONGEST_TEXT = 1 << 20
_TEXTS = ("txt", "json")


@dataclass(frozen=True, slots=True)
class ShardFields:
    """Where in a sample its captions stand.

    Attributes:
        caption: The field of the `.json`, a text or a list of texts; None: the `.txt`, or where there is none the field
            `caption` of the `.json`.
        wrong: The field of the `.json` with captions that are false of the picture; None: none.
        weight: The field of the `.json` that says how much the sample counts; None: all alike.
    """

    caption: str | None = None
    wrong: str | None = None
    weight: str | None = None


@dataclass
class ShardPairs:
    """What a shard holds.

    Attributes:
        rows: Every caption of every sample, in order.
        problems: What of it cannot be used, by name, and why.
    """

    rows: list[CaptionedPicture] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


def list_pair_shard(shard: Path, fields: ShardFields, *, name: str | None = None) -> ShardPairs:
    """The pairs of a shard; only headers and texts are read.

    A sample without a picture or a caption is a problem, and so is a file that comes a second time, whose first one is
    used, and the end of a shard that is cut off or damaged: what stands before it is used.

    Args:
        shard: The file.
        fields: Where the captions are.
        name: What the shard is called; None: as its file.
    """
    name = shard.name if name is None else name
    found = ShardPairs()
    pictures: dict[str, ShardMember] = {}
    texts: dict[str, dict[str, str]] = {}
    keys: dict[str, None] = {}
    seen: set[str] = set()
    try:
        with open_shard(shard) as stream:
            for member in shard_members(stream, name):
                if member.name in seen:
                    found.problems[f"{name}/{member.key} (again)"] = (
                        f"{member.name} is there twice; the first one is used"
                    )
                    continue
                seen.add(member.name)
                if member.kind in _TEXTS:
                    keys[member.key] = None
                    _keep_text(texts.setdefault(member.key, {}), member, stream, name, found)
                elif member.suffix in IMAGE_SUFFIXES:
                    keys[member.key] = None
                    pictures.setdefault(member.key, member)
    except DataError as error:
        found.problems[f"the rest of {name}"] = str(error)
    for key in keys:
        if (picture := pictures.get(key)) is None:
            found.problems.setdefault(f"{name}/{key}", "has no picture")
            continue
        try:
            captions, wrong, weight = _said(texts.get(key, {}), fields)
        except ValueError as error:
            found.problems.setdefault(f"{name}/{key}", str(error))
            continue
        listed = ListedPicture(f"{name}/{picture.name}", None, shard, picture.offset, picture.size)
        for k, caption in enumerate(captions):
            identity = f"{name}/{key}" + (f"#{k}" if k else "")
            found.rows.append(CaptionedPicture(identity, listed, caption, wrong, weight))
    return found


def _keep_text(texts: dict[str, str], member: ShardMember, stream: BinaryIO, name: str, found: ShardPairs) -> None:
    if member.size > _LONGEST_TEXT:
        found.problems[f"{name}/{member.key}"] = f"its .{member.kind} has {member.size:,} bytes"
        return
    try:
        texts[member.kind] = member.text(stream, _LONGEST_TEXT)
    except UnicodeDecodeError:
        found.problems[f"{name}/{member.key}"] = f"its .{member.kind} is not UTF-8 text"


def _said(texts: dict[str, str], fields: ShardFields) -> tuple[list[str], tuple[str, ...], float]:
    """Captions, wrong captions and weight of a sample.

    Raises:
        ValueError: saying what it lacks.
    """
    plain = texts.get("txt", "").strip() if fields.caption is None else ""
    record: dict[str, Any] = {}
    if "json" in texts and not (plain and fields.wrong is None and fields.weight is None):
        record = _record(texts["json"])
    captions = [plain] if plain else _texts(record, fields.caption or "caption")
    if not captions:
        where = "no caption" if fields.caption is None else f"no {fields.caption!r} in its .json"
        raise ValueError(f"has {where}")
    wrong = [] if fields.wrong is None else _texts(record, fields.wrong)
    for text in (*captions, *wrong):
        try:
            check_characters(text)
        except InvalidText as error:
            raise ValueError(f"a caption of it cannot be used: {error}") from None
    return captions, tuple(dict.fromkeys(wrong)), 1.0 if fields.weight is None else _weight(record, fields.weight)


def _record(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict):
        return record
    raise ValueError("its .json is no JSON object")


def _texts(record: dict[str, Any], key: str) -> list[str]:
    value = record.get(key)
    several = value if isinstance(value, list) else [value]
    if isinstance(value, dict):
        several = list(value.values())
    return [text.strip() for text in several if isinstance(text, str) and text.strip()]


def _weight(record: dict[str, Any], key: str) -> float:
    weight = pair_weight(record.get(key))
    if weight is None:
        raise ValueError(f"its {key!r} is no number from 0")
    return weight
