"""What `twinlens label` labels by: words, a label set, a folder of examples, or the items of a collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer

from twinlens.client.client import Client
from twinlens.client.commands.word_options import words
from twinlens.client.example_files import ExampleFiles, find_examples
from twinlens.client.label_types import NoneOfThese
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.sources import Skipped
from twinlens.client.types import Examples


class RuleName(StrEnum):
    """How examples become scores."""

    prototype = "prototype"
    knn = "knn"


@dataclass(frozen=True, slots=True)
class LabelBy:
    """What to label by.

    Attributes:
        labels: Words to choose from; empty where there are examples or a label set.
        label_set: The label set to choose from; empty where there is none.
        files: Examples of each label.
        options: The other fields of `Examples`; None where there are words.
    """

    labels: Sequence[str] = ()
    label_set: str = ""
    files: ExampleFiles | None = None
    options: dict[str, Any] | None = None

    @property
    def needs_no_data(self) -> bool:
        """Whether it needs nothing that a data folder keeps."""
        return not self.label_set and not (self.options or {}).get("collection")

    @property
    def way_out(self) -> str:
        """What to do where there is no data folder."""
        if self.needs_no_data:
            return "labelling needs none: give --bundle instead"
        return f"`twinlens {'labelsets put' if self.label_set else 'ingest'}` makes one"

    @property
    def only_label(self) -> str | None:
        """The label, where these words or files have but one; None also where only the server knows."""
        known = self.labels or list(self.files.pictures if self.files is not None else ())
        return known[0] if len(known) == 1 else None

    def prepare(self, client: Client, say: Callable[[str], None]) -> PreparedExamples | None:
        """Embeds the examples, and says which cannot be used; None where there are none."""
        if self.options is None:
            return None
        pictures = self.files.pictures if self.files is not None else {}
        images = {label: [each.path for each in found] for label, found in pictures.items()}
        prepared = client.prepare_examples(Examples(images=images, **self.options))
        for note in self.files.notes if self.files is not None else ():
            say(note)
        for error in prepared.errors:
            say(f"not used as an example: {pictures[error.label][error.position].id}: {error.message}")
        return prepared


def label_by(
    *,
    labels: str | None,
    labels_file: Path | None,
    label_set: str | None,
    examples: Path | None,
    collection: str | None,
    label_key: str | None,
    rule: RuleName | None,
    k: int | None,
    temperature: float | None,
    text_weight: float | None,
    templates: Sequence[str] | None,
    multi_label: bool,
    none_of_these: NoneOfThese | None,
    skipped: Skipped,
) -> LabelBy:
    """What the options of the command say.

    Raises:
        typer.BadParameter: where they contradict each other.
        TwinlensError: where files or folders cannot be read.
    """
    ways = {
        "--labels": labels,
        "--labels-file": labels_file,
        "--label-set": label_set,
        "--examples": examples,
        "--examples-collection": collection,
    }
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        raise typer.BadParameter(
            "give the labels in one way: --labels a,b,c, --labels-file FILE or --label-set NAME, or by pictures that "
            "show them: --examples DIR|FILE or --examples-collection NAME --label-key KEY"
        )
    of_examples: dict[str, Any] = {"--rule": rule, "--k": k, "--temperature": temperature, "--text-weight": text_weight}
    if examples is None and collection is None:
        of_examples["--label-key"] = label_key
        _refuse(of_examples, "is for labels by --examples or --examples-collection")
        if label_set is not None:
            own = {
                "--template": templates or None,
                "--multi-label": multi_label or None,
                "--min-cosine, --min-probability or --background": none_of_these,
            }
            _refuse(own, "is what a label set brings: `twinlens labelsets put` takes it")
            return LabelBy(label_set=label_set)
        return LabelBy(labels=words(labels, labels_file))
    if (collection is None) != (label_key is None):
        raise typer.BadParameter("--examples-collection and --label-key go together")
    _refuse({"--multi-label": multi_label or None}, "is for labels in words; examples have their cosines")
    if not text_weight:
        _refuse({"--template": templates or None}, "is of use beside examples only with --text-weight")
    if none_of_these is not None and none_of_these.background:
        _refuse(
            {"--background": none_of_these.background}, "is for labels in words; beside examples, show it as a label"
        )
    if rule is not RuleName.knn:
        _refuse({"--k": k}, "is for --rule knn")
    else:
        _refuse({"--min-cosine or --min-probability": none_of_these}, "is for --rule prototype")
        _refuse({"--text-weight": text_weight}, "is for --rule prototype")
    options = {
        "collection": collection or "",
        "label_key": label_key or "",
        "rule": (rule or RuleName.prototype).value,
        "k": k or 0,
        "temperature": temperature,
        "text_weight": text_weight or 0.0,
    }
    return LabelBy(files=None if examples is None else find_examples(examples, skipped), options=options)


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"{name} {why}")
