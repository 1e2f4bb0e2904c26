"""What a server's /metrics holds, as samples by name and labels."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Scrape:
    """One answer of /metrics."""

    kinds: Mapping[str, str]
    """Family -> type."""
    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float:
        """Sum of the samples of this name whose labels include these; there must be one."""
        wanted = set(labels.items())
        found = [value for (known, held), value in self.samples.items() if known == name and wanted <= held]
        assert found, f"no sample of {name} with {labels}"
        return sum(found)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Value of a label -> value of the sample, of those that are not 0."""
        return {
            dict(held)[label]: value
            for (known, held), value in self.samples.items()
            if known == name and label in dict(held) and value
        }

    def counters(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """What must never fall: counters, and counts, sums and buckets of histograms."""
        monotone = tuple(f"{name}" for name, kind in self.kinds.items() if kind in ("counter", "histogram", "summary"))
        return {key: value for key, value in self.samples.items() if key[0].startswith(monotone)}

    def gauges(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """What goes up and down."""
        gauges = {name for name, kind in self.kinds.items() if kind == "gauge"}
        return {key: value for key, value in self.samples.items() if key[0] in gauges}


def parsed(text: str) -> Scrape:
    """Reads Prometheus' text format. No sample may stand there twice."""
    kinds: dict[str, str] = {}
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        kinds[family.name] = family.type
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, f"{key} stands there twice"
            if not sample.name.endswith("_created"):
                samples[key] = sample.value
    return Scrape(kinds, samples)


def scrape(url: str) -> Scrape:
    """Asks a server."""
    answer = httpx.get(f"{url}/metrics", timeout=60)
    assert answer.status_code == 200, answer.text
    return parsed(answer.text)
