"""Strings that tokenizers get wrong: seeded, by kind, and the real captions and queries of the shared data."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path
from typing import Literal

_LINES = (Path(__file__).with_name("awkward_words.txt")).read_text(encoding="utf-8").splitlines()
WORDS = {kind: words.split(" ") for kind, words in (line.split(": ", 1) for line in _LINES if not line.startswith("#"))}
# What the families' special tokens look like; each is plain text when a user types it.
SPECIAL_SPELLINGS = WORDS.pop("special")
# Words that an editor would not show, or not keep.
WORDS["invisible"] = [
    "\u00e2\u20ac\u0153quoted\u00e2\u20ac\u009d",
    "\u00e3\u0081\u201a",
    "\u0093smart\u0094",
    "👨\u200d",
    "\u200d👧",
    "\ufe0f",
    "\x01",
    "\x07",
    "\x08",
    "\x1b[31m",
    "\x7f",
    "\x80",
    "\x9f",
    "\u200e",
    "\u202e",
    "\u2066",
    "\ue000",
    "\ufffd",
    "\ufffc",
    "\U000e0001",
    "\ufdd0",
    "\U0010ffff",
]
# Sentencepiece's mark for a blank, and what other vocabularies write into their tokens.
WORDS["marks"] = ["\u2581", "\u2581\u2581dog", "dog\u2581cat", "##ing", "\u0120dog", "</w>", "@@"]
SPACES = (
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1f",
    "\x85",
    "\u00a0",
    "\u1680",
    "\u2000",
    "\u2009",
    "\u200a",
    "\u2028",
    "\u2029",
    "\u202f",
    "\u205f",
    "\u3000",
    "\n\n\n",
    " \u00a0 ",
    "\u200b",
    "\u200c",
    "\u2060",
    "\ufeff",
    "\u180e",
    "\u00ad",
)
_BLOCKS = (
    (0x21, 0x7E),
    (0xA1, 0x24F),
    (0x250, 0x36F),
    (0x370, 0x5FF),
    (0x600, 0x6FF),
    (0x900, 0x97F),
    (0xE00, 0xE7F),
    (0x1100, 0x11FF),
    (0x1E00, 0x1FFF),
    (0x2000, 0x206F),
    (0x2070, 0x218F),
    (0x2190, 0x2BFF),
    (0x3041, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFB00, 0xFDFF),
    (0xFE00, 0xFE0F),
    (0xFE30, 0xFEFE),
    (0xFF01, 0xFFEF),
    (0x10330, 0x1034A),
    (0x1D400, 0x1D7FF),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x2A6DF),
)
MARKS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0327\u0328\u0323\u20dd\u05b0\u064b\u093c\u0e48\u3099"


_FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")


def awkward_strings(count: int, seed: int = 0) -> list[str]:
    """`count` strings in which every kind of trouble occurs, alone and mixed; none is empty or holds a NUL.

    Special-token spellings are left out: on those the references differ from us on purpose.
    """
    chance = random.Random(seed)
    kinds = tuple(WORDS.values())
    alone = [word for kind in kinds for word in kind]
    spaced = [f"dog{space}cat{space}{space}bird" for space in SPACES] + [f"{space}dog{space}" for space in SPACES]
    long = [
        " ".join(chance.choices(WORDS["english"], k=120)),
        "dog" * 400,
        "ab " * 300,
        "一只狗" * 60,
        "🐱" * 80,
        "1" * 200,
        "é" * 300,
    ]
    strings = [*alone, *spaced, *long]
    while len(strings) < count:
        strings.append(_mixed(chance, kinds))
    return strings[:count]


def real_strings(shared_data: Path) -> list[str]:
    """Every different caption, query and awkward text of the shared data that is not refused outright."""
    found: dict[str, None] = {}
    for name in ("flickr8k_a/captions.jsonl", "flickr8k_a/negatives.jsonl", "tuxpaint_stamps/captions.jsonl"):
        for line in (shared_data / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found.update(dict.fromkeys(row[key] for key in ("caption", "negative_caption") if row.get(key)))
    queries = shared_data / "flickr8k_queries" / "queries.txt"
    found.update(dict.fromkeys(queries.read_text(encoding="utf-8").splitlines()))
    for path in sorted((shared_data / "sugarcrepe_text").glob("*.json")):
        for row in json.loads(path.read_text(encoding="utf-8")).values():
            found.update(dict.fromkeys((row["caption"], row["negative_caption"])))
    return [text for text in found if text.strip() and "\0" not in text]


def million(kind: str) -> str:
    """A million characters without a space."""
    chance = random.Random(0)
    match kind:
        case "one letter":
            return "a" * 1_000_001
        case "letters":
            return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=1_000_000))
        case "ideographs":
            return "".join(chance.choices("一只狗的照片猫窓座漢字", k=1_000_000))
        case "emoji":
            return "👨\u200d👩\u200d👧🐱" * 166_667
    raise ValueError(kind)


def _mixed(chance: random.Random, kinds: tuple[list[str], ...]) -> str:
    words = [chance.choice(chance.choice(kinds)) for _ in range(chance.randint(1, 10))]
    if chance.random() < 0.5:
        words += ["".join(_character(chance) for _ in range(chance.randint(1, 8))) for _ in range(chance.randint(1, 3))]
    if chance.random() < 0.2:
        words.append(
            "".join(_character(chance) + "".join(chance.choices(MARKS, k=chance.randint(1, 3))) for _ in range(3))
        )
    if chance.random() < 0.05:
        words *= 15  # longer than any window
    words = [_recased(chance, word) for word in words]
    chance.shuffle(words)
    text = "".join(word + chance.choice(SPACES if chance.random() < 0.3 else (" ", " ", " ", "")) for word in words)
    if chance.random() < 0.5:
        text = unicodedata.normalize(chance.choice(_FORMS), text)
    return text if text.strip() else "dog"


def _recased(chance: random.Random, word: str) -> str:
    match chance.randrange(8):
        case 0:
            return word.upper()
        case 1:
            return word.title()
        case 2:
            return word.swapcase()
    return word


def _character(chance: random.Random) -> str:
    while True:
        found = chr(chance.randint(*chance.choice(_BLOCKS)))
        # Whether an unassigned character is a letter depends on the Unicode version of the regex engine.
        if unicodedata.category(found) not in {"Cn", "Cs"}:
            return found
