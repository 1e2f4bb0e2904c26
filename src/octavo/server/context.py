"""What every endpoint needs: one object per app, passed explicitly."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request

from octavo.config import ServerConfig
from octavo.errors import InvalidRequestError
from octavo.server.api_keys import KeyRings
from octavo.server.conversation.dialect import Dialects
from octavo.server.errors import ApiError, from_exception
from octavo.server.key_limits import KeyLimiter
from octavo.server.metrics import ServerMetrics
from octavo.server.serving_engine import ServingEngine
from octavo.server.siblings import Siblings
from octavo.server.state import ServerState

if TYPE_CHECKING:
    from octavo.server.tracing.tracer import Tracer


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """The engine, the server's settings, and what the server counts."""

    engine: ServingEngine
    config: ServerConfig
    keys: KeyRings
    limiter: KeyLimiter
    state: ServerState
    siblings: Siblings
    """The other API processes of the server."""
    metrics: ServerMetrics
    tracer: "Tracer | None"
    """None: the server makes no traces."""
    dialects: Dialects
    """How models write calls and reasoning."""
    clock: Callable[[], float]
    """Monotonic seconds, for durations."""
    wall_clock: Callable[[], float]
    """Unix seconds, for `created`."""
    fingerprint: str
    """`system_fingerprint`: equal fingerprints, equal tokens for equal requests."""

    @contextmanager
    def taking_requests(self) -> Iterator[None]:
        """Around the part of a generating endpoint that may refuse: counts refusals by reason.

        Raises:
            ApiError: 503 at once while draining or dead, before anything is read.
        """
        refusal = self.state.refusal()
        if refusal is not None:
            self._count_rejection(refusal)
            raise refusal
        try:
            yield
        except ApiError as error:
            if error.status < 500:  # beyond that it was taken, and failed
                self._count_rejection(error)
            raise
        except InvalidRequestError as error:
            self._count_rejection(from_exception(error))
            raise

    def _count_rejection(self, error: ApiError) -> None:
        self.metrics.rejected(error.code or "other").inc()

    def model_name(self, asked: str | None) -> str:
        """The name to answer under.

        Raises:
            ApiError: 404, the model is not served here.
        """
        served = self.engine.info.served_model_names
        if asked is None:
            return served[0]
        if asked not in served:
            message = f"the model {asked[:100]!r} is not served here; served: {', '.join(served)}"
            raise ApiError(404, message, param="model", code="model_not_found")
        return asked


def tenant_of(request: Request) -> str:
    """Digest of the request's API key; empty where no key is asked for."""
    return str(request.scope.get("state", {}).get("tenant", ""))
