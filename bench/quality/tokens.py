"""Token ids of every tokenizer family against its reference implementation.

    python bench/quality/tokens.py [--strings 6000] [--data DIR] [--folder DIR …] [--clean canonicalize] [--json FILE]

Strings: as many awkward ones as told, and every caption and query of the shared data where it is there. `refused`
counts those of which nothing is left after the clean-up. `typed` counts spellings of special tokens (`</s>`, `[SEP]`,
`<end_of_text>` …) within a sentence that are read as the token, which may end or cut a query.
The vocabularies that are not on a package index are trained here, small, with the published settings; a published one,
in a folder as transformers saves it, is compared with `--folder`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from tests.support.strings import SPECIAL_SPELLINGS, awkward_strings, real_strings  # noqa: E402
from tests.support.tokenizer_families import Families, Family, compare  # noqa: E402
from twinlens.encoders.clean_text import Clean  # noqa: E402

DATA = ROOT.parent / "shared" / "data"


@dataclass(frozen=True)
class Row:
    """One family's figures."""

    family: str
    reference: str
    strings: int
    equal: int
    refused: int
    typed_reference: int
    typed_ours: int


def measure(family: Family, strings: list[str]) -> Row:
    parity = compare(family, strings)
    for text, ours, wanted in parity.different[:3]:
        print(f"{family.name}: {ascii(text)[:100]}: {ours[:12]} … but the reference gives {wanted[:12]} …")
    sentences = [f"a dog {spelling} and a cat" for spelling in SPECIAL_SPELLINGS]
    theirs = family.reference(["a dog and a cat", *sentences])
    own_rows = [family.row(text) for text in ("a dog and a cat", *sentences)]
    special = {added["id"] for added in json.loads(family.export.json)["added_tokens"] if added["special"]}
    return Row(
        family.name,
        family.says,
        parity.compared,
        parity.equal,
        parity.refused,
        _read_as_tokens(theirs, special, family.export.spec.pad_id),
        _read_as_tokens(own_rows, special, family.export.spec.pad_id),
    )


def _read_as_tokens(rows: list[list[int]], special: set[int], pad_id: int) -> int:
    """How many rows hold more special tokens, or another one, than the first."""

    def inside(row: list[int]) -> list[int]:
        end = len(row)
        while end and row[end - 1] == pad_id:
            end -= 1
        return sorted(number for number in row[:end] if number in special)

    plain = inside(rows[0])
    return sum(inside(row) != plain for row in rows[1:])


def families(folder: Path, published: list[Path], clean: Clean, context: int) -> list[Family]:
    made = Families(folder)
    return [
        made.clip(),
        made.clip_short(),
        made.clip_whitespace(),
        made.mobileclip(),
        made.coca(),
        made.transformers_clip(),
        made.siglip(),
        made.siglip_short(),
        made.siglip2(),
        made.mt5(),
        made.xlm_roberta(),
        made.nllb(),
        made.roberta(),
        made.clipa(),
        made.minilm(),
        *(made.published(path, context, clean) for path in published),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--strings", type=int, default=6000, help="how many awkward strings")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of photo sets, for their captions")
    parser.add_argument("--folder", type=Path, action="append", default=[], help="a published tokenizer")
    parser.add_argument("--clean", default="canonicalize", choices=["clip_lower", "clip_whitespace", "canonicalize"])
    parser.add_argument("--context", type=int, default=64, help="the window of --folder")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    strings = awkward_strings(options.strings)
    if (options.data / "flickr8k_a").is_dir():
        strings += real_strings(options.data)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = families(Path(folder), options.folder, options.clean, options.context)
        rows = [measure(family, strings) for family in made]
    columns = ("family", "reference", "strings", "equal", "refused", "typed: reference", "typed: ours")
    table = Table(*columns, box=SIMPLE, title="Token ids")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else value for value in asdict(row).values()))
    Console(width=150).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return 0 if all(row.equal == row.strings and not row.typed_ours for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
