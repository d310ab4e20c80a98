"""Reading metrics as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """All series of one reading."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Scraped:
        return cls(generate_latest(registry).decode())

    def samples(self, name: str, **labels: str) -> Iterator[Any]:
        """The series of a name that have these labels, whatever else they have."""
        for family in self.families:
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    yield sample

    def sum(self, name: str, **labels: str) -> float:
        """Their values together; 0 where there are none."""
        return float(sum(sample.value for sample in self.samples(name, **labels)))

    def labels(self) -> dict[str, set[str]]:
        """Of every name the labels its series have."""
        found: dict[str, set[str]] = {}
        for family in self.families:
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        return found
