"""Turning traces on. Nothing of OpenTelemetry is imported before, nor without."""

import importlib.util
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.serving_engine import ServingEngine

if TYPE_CHECKING:
    from octavo.server.tracing.tracer import Tracer

NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
PROTOCOL = "http/protobuf"
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""The first that is set says how to speak to the collector."""


def check_tracing(config: ServerConfig) -> None:
    """
    Raises:
        ConfigError: traces are asked for and cannot be sent.
    """
    endpoint = config.otlp_traces_endpoint
    if endpoint is None:
        return
    if not all(map(_is_there, NEEDED)):
        problem = "needs OpenTelemetry, which is not installed; run: pip install 'octavo[otel]'"
        raise ConfigError("otlp_traces_endpoint", endpoint, problem)
    for variable in PROTOCOL_VARIABLES:
        protocol = os.environ.get(variable)
        if protocol and protocol != PROTOCOL:
            problem = f"spans are sent by {PROTOCOL} alone; unset it, and give the collector's port for that, say 4318"
            raise ConfigError(f"${variable}", protocol, problem)
        if protocol:
            return


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False


def start_tracer(
    config: ServerConfig, engine: ServingEngine, clock: Callable[[], float], wall_clock: Callable[[], float]
) -> "Tracer | None":
    """Makes the tracer of an API process; None: the server makes no traces.

    Raises:
        ConfigError: as of `check_tracing`.
    """
    check_tracing(config)
    if config.otlp_traces_endpoint is None:
        return None
    from octavo.server.tracing.export import exporting_provider  # noqa: PLC0415 - an extra
    from octavo.server.tracing.tracer import Tracer  # noqa: PLC0415

    provider, give_up = exporting_provider(config.otlp_traces_endpoint)
    return Tracer(
        provider,
        give_up=give_up,
        look=lambda request_id, tenant: engine.ledger(request_id, tenant=tenant),
        clock=clock,
        wall_clock=wall_clock,
        model=engine.info.served_model_names[0],
    )
