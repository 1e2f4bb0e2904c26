"""The application: endpoints and what stands around them."""

import time
from collections.abc import Callable

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

import octavo
from octavo.config import ServerConfig
from octavo.server.context import ServerContext
from octavo.server.errors import ErrorBoundary, install_error_handlers
from octavo.server.fields import RequestBody
from octavo.server.metrics import ServerMetrics
from octavo.server.native.status import Status
from octavo.server.native.tokens import DetokenizeBody, TokenizeBody, Tokens
from octavo.server.observe import Observer
from octavo.server.openai.chat import ChatCompletions
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.completion_body import CompletionBody
from octavo.server.openai.completions import Completions
from octavo.server.openai.models import Models
from octavo.server.security import ApiKeyGuard, KeyRing
from octavo.server.serving_engine import ServingEngine
from octavo.server.state import ServerState


def build_context(
    engine: ServingEngine,
    config: ServerConfig,
    *,
    scheduling_policy: str = "fcfs",
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
) -> ServerContext:
    """Puts together what the endpoints share. Call it in the event loop that will serve."""
    return ServerContext(
        engine=engine,
        config=config,
        state=ServerState(),
        metrics=ServerMetrics(engine.info, config.metrics_prefix, clock),
        clock=clock,
        wall_clock=wall_clock,
        scheduling_policy=scheduling_policy,
        fingerprint=f"octavo-{octavo.__version__}",
    )


def build_app(server: ServerContext) -> FastAPI:
    """The ASGI application over one engine."""
    app = FastAPI(
        title="Octavo",
        version=octavo.__version__,
        docs_url=None,  # the stock page fetches scripts from the network
        redoc_url=None,
        middleware=[
            Middleware(Observer, metrics=server.metrics.http, clock=server.clock),
            Middleware(ErrorBoundary),
            Middleware(ApiKeyGuard, keys=KeyRing(server.config.api_key)),
        ],
    )
    install_error_handlers(app)
    _add_generation(app, server)
    _add_native(app, server)
    return app


def _add_generation(app: FastAPI, server: ServerContext) -> None:
    models, completions, chat = Models(server), Completions(server), ChatCompletions(server)

    @app.post("/v1/completions", openapi_extra=_body_schema(CompletionBody))
    async def create_completion(request: Request) -> Response:
        with server.taking_requests():
            return await completions(request)

    @app.post("/v1/chat/completions", openapi_extra=_body_schema(ChatBody))
    async def create_chat_completion(request: Request) -> Response:
        with server.taking_requests():
            return await chat(request)

    app.get("/v1/models")(models.list)
    app.get("/v1/models/{model:path}")(models.retrieve)


def _add_native(app: FastAPI, server: ServerContext) -> None:
    tokens, status = Tokens(server), Status(server)

    app.post("/tokenize", openapi_extra=_body_schema(TokenizeBody))(tokens.tokenize)
    app.post("/detokenize", openapi_extra=_body_schema(DetokenizeBody))(tokens.detokenize)
    app.get("/health")(status.health)
    app.get("/ready")(status.ready)
    app.get("/version")(status.version)
    app.get("/load")(status.load)
    app.get("/metrics")(status.metrics)


def _body_schema(body: type[RequestBody]) -> dict[str, object]:
    """The body's schema for /openapi.json: bodies are read by us, so the framework does not know them."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": body.model_json_schema()}}}}
