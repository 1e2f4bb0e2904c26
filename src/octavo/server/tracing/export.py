"""Where spans go: to a collector, by OpenTelemetry's protocol over HTTP. All that the SDK reads from its environment
variables (headers, time-outs, compression, certificates, sampler, batches, limits, resource) holds."""

import logging
import os
import uuid
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import octavo

READERS_OF_HEADERS = ("opentelemetry.trace.propagation.tracecontext", "opentelemetry.baggage.propagation")
"""They warn of every header, and of every entry of one, that is not as it should be: a client could write as many lines
into the log as it likes, and what it likes."""
TRACES_PATH = "/v1/traces"
"""Where collectors take spans."""


class _Exporter(OTLPSpanExporter):
    """May be shut down twice: when there is no more time, then by the provider."""

    _is_over = False

    def shutdown(self) -> None:
        """Ends what is being tried again and again, too."""
        if not self._is_over:
            self._is_over = True
            super().shutdown()  # type: ignore[no-untyped-call]


def exporting_provider(endpoint: str) -> tuple[TracerProvider, Callable[[], None]]:
    """Samples spans and sends them in batches from a thread of its own. When a collector is slow or gone the oldest of
    a bounded number are dropped; nobody waits.

    Args:
        endpoint: URL of a collector; without a path its usual one is meant.

    Returns:
        The provider, and what has it try no more, from any thread: else it does for up to a minute.
    """
    for name in READERS_OF_HEADERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)  # a program's end would wait half a minute
    exporter = _Exporter(endpoint=full_url(endpoint))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider, exporter.shutdown


def full_url(endpoint: str) -> str:
    """The URL that spans are posted to."""
    parts = urlsplit(endpoint)
    return parts._replace(path=TRACES_PATH).geturl() if parts.path in ("", "/") else endpoint


def _resource() -> Resource:
    """Who speaks: what the environment says of itself comes first."""
    ours: Mapping[str, str | int] = {
        "service.name": "octavo",
        "service.version": octavo.__version__,
        "service.instance.id": str(uuid.uuid4()),
        "process.pid": os.getpid(),
    }
    said = OTELResourceDetector().detect().attributes
    return Resource.create({name: value for name, value in ours.items() if name not in said})
