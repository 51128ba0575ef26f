"""Render samples as Prometheus text, in the format that the scraper asks for. Only the given
samples are rendered: nothing is registered globally, and a program's own metrics stay separate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.util import find_spec
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..model.errors import Unsupported
from ..worker.worker_metrics import BUCKET_EDGES_S, DurationBuckets
from .catalogue import CATALOGUE, Metric, Origin
from .collectors import Sample

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

log = logging.getLogger("outlast.metrics")

BOUNDS = (*(f"{edge:g}" for edge in BUCKET_EDGES_S), "+Inf")

Collector = Callable[[], Iterable[Sample]]
Values = dict[tuple[str, ...], float | DurationBuckets]


def check_exporter() -> None:
    """Check for the package at start-up: missing metrics would be noticed only when they are
    needed."""
    if find_spec("prometheus_client") is None:
        reason = "metrics need the package prometheus-client: pip install 'outlast[serve]'"
        raise Unsupported(reason=reason)


class Exposition:
    """The samples of some collectors as text. The metrics of `origins` are listed even without
    samples, so that a scraper can tell a zero from a removed name."""

    def __init__(self, origins: Collection[Origin], *collectors: Collector) -> None:
        check_exporter()
        self._listed = [metric for metric in CATALOGUE.values() if metric.origin in origins]
        self._collectors = collectors

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its content type; `accept` is the scraper's Accept header."""
        from prometheus_client.exposition import choose_encoder

        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is not a number
            encode, content_type = choose_encoder("")
        return encode(self), content_type

    def collect(self) -> Iterator[Family]:
        values: dict[str, Values] = {metric.name: {} for metric in self._listed}
        for collector in self._collectors:
            for sample in collector():
                _add_sample(values.setdefault(sample.name, {}), sample)
        for name, series in values.items():
            yield _family(CATALOGUE[name], series)


def _add_sample(values: Values, sample: Sample) -> None:
    """Merge samples whose names give the same label."""
    before = values.get(sample.labels)
    if isinstance(before, DurationBuckets) and isinstance(sample.value, DurationBuckets):
        values[sample.labels] = _merge_histograms(before, sample.value)
    elif isinstance(before, float | int) and isinstance(sample.value, float | int):
        values[sample.labels] = before + sample.value
    else:
        values[sample.labels] = sample.value


def _merge_histograms(one: DurationBuckets, other: DurationBuckets) -> DurationBuckets:
    both = DurationBuckets()
    both.counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
    both.total = one.total + other.total
    return both


def _family(metric: Metric, values: Values) -> Family:
    from prometheus_client import core

    kinds: dict[str, Any] = {
        "gauge": core.GaugeMetricFamily,
        "counter": core.CounterMetricFamily,
        "histogram": core.HistogramMetricFamily,
    }
    family: Family = kinds[metric.kind](metric.family, metric.about, labels=metric.labels)
    for labels, value in values.items():
        if isinstance(value, DurationBuckets):
            counts = list(value.counts)  # a job may end during the rendering
            buckets = list(zip(BOUNDS, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, value.total)  # type: ignore[attr-defined]
        else:
            family.add_metric(labels, value)  # type: ignore[attr-defined]
    return family
