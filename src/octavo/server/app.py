"""The application: endpoints and what stands around them."""

import inspect
import time
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

import octavo
from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.request.slo import Promise, read_promise
from octavo.server.anthropic.endpoint import Messages
from octavo.server.anthropic.errors import AnthropicShape
from octavo.server.anthropic.messages_body import CountTokensBody, MessagesBody
from octavo.server.api_keys import load_keys
from octavo.server.busy_board import BusyBoard
from octavo.server.context import ServerContext
from octavo.server.conversation.dialect import Dialects
from octavo.server.delivery import DeliveryNotes
from octavo.server.endpoints import Answerer, Endpoint, EndpointRoute, describe, json_response
from octavo.server.errors import ERROR_HANDLERS, ErrorBoundary
from octavo.server.key_limits import KeyLimiter, LimitGuard
from octavo.server.metrics import ServerMetrics
from octavo.server.native.admin import Admin, DrainBody, EmptyBody, PauseBody
from octavo.server.native.load_card import LoadCard
from octavo.server.native.profiles import ProfileBody, Profiles, ProfileStartBody
from octavo.server.native.render import Render, RenderBody
from octavo.server.native.requests import AbortBody, Requests
from octavo.server.native.sessions import LeaseBody, SessionBody, Sessions
from octavo.server.native.status import Status
from octavo.server.native.tokens import DetokenizeBody, TokenizeBody, Tokens
from octavo.server.observe import Observer
from octavo.server.openai.chat import ChatCompletions
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.completion_body import CompletionBody
from octavo.server.openai.completions import Completions
from octavo.server.openai.embedding_body import EmbeddingBody
from octavo.server.openai.embeddings import Embeddings
from octavo.server.openai.models import Models
from octavo.server.origins import OriginGuard
from octavo.server.responses.endpoint import Responses
from octavo.server.responses.response_body import InputTokensBody, ResponseBody
from octavo.server.security import ApiKeyGuard
from octavo.server.serving_engine import ServingEngine
from octavo.server.siblings import Alone, Siblings
from octavo.server.state import ServerState
from octavo.server.tracing.middleware import TraceRequests
from octavo.server.tracing.start import start_tracer
from octavo.server.usage_ledger import UsageLedger


def build_context(
    engine: ServingEngine,
    config: ServerConfig,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
    usage: UsageLedger | None = None,
    board: BusyBoard | None = None,
    siblings: Siblings | None = None,
) -> ServerContext:
    """Puts together what the endpoints share. Call it in the event loop that will serve.

    Args:
        usage: what API keys have used, where several processes share it; None: this one counts alone.
        board: how many requests each process has in progress; None: there is only this one.
        siblings: the other API processes of the server; None: there are none.

    Raises:
        ConfigError: keys cannot be read, or traces cannot be sent.
    """
    keys = load_keys(config)
    return ServerContext(
        engine=engine,
        config=config,
        keys=keys,
        limiter=KeyLimiter(usage or UsageLedger(keys.limited), clock),
        state=ServerState(board),
        siblings=siblings or Alone(),
        metrics=ServerMetrics(engine.info, config.metrics_prefix, clock, read_promises(config)),
        tracer=start_tracer(config, engine, clock, wall_clock),
        dialects=Dialects(config),
        clock=clock,
        wall_clock=wall_clock,
        fingerprint=f"octavo-{octavo.__version__}",
    )


def read_promises(config: ServerConfig) -> list[Promise]:
    """By which answers are judged.

    Raises:
        ConfigError: one reads otherwise, or two have one name.
    """
    promises = [read_promise(text) for text in config.goodput]
    if len({promise.name for promise in promises}) < len(promises):
        raise ConfigError("goodput", config.goodput, "has two classes of one name; give each another: NAME=LIMITS")
    return promises


def build_app(server: ServerContext) -> Starlette:
    """The ASGI application over one engine."""
    endpoints = _endpoints(server)

    async def describe_api(_: Request) -> Response:
        """This description."""
        return json_response(describe(endpoints, "Octavo", octavo.__version__))

    app = Starlette(
        routes=[EndpointRoute(endpoint) for endpoint in (*endpoints, Endpoint("GET", "/openapi.json", describe_api))],
        middleware=[
            Middleware(DeliveryNotes, engine=server.engine, clock=server.clock),
            Middleware(Observer, metrics=server.metrics.http, clock=server.clock, logs_access=server.config.access_log),
            Middleware(AnthropicShape),
            Middleware(OriginGuard, allowed=server.config.allowed_origins),
            Middleware(ErrorBoundary),
            Middleware(ApiKeyGuard, keys=server.keys, open_metrics=server.config.open_metrics),
            *([] if server.tracer is None else [Middleware(TraceRequests, tracer=server.tracer)]),
            Middleware(LimitGuard, limiter=server.limiter, refused=lambda why: server.metrics.rejected(why).inc()),
        ],
        exception_handlers=ERROR_HANDLERS,
    )
    app.router.redirect_slashes = False  # a path is what it is: clients do not send bodies again after a redirect
    return app


def _endpoints(server: ServerContext) -> tuple[Endpoint, ...]:
    models, tokens, status, sessions = Models(server), Tokens(server), Status(server), Sessions(server)
    requests, admin, responses, messages = Requests(server), Admin(server), Responses(server), Messages(server)
    profiles = Profiles(server)
    return (
        Endpoint("POST", "/v1/completions", _generating(server, Completions(server)), CompletionBody),
        Endpoint("POST", "/v1/chat/completions", _generating(server, ChatCompletions(server)), ChatBody),
        Endpoint("POST", "/v1/embeddings", _generating(server, Embeddings(server)), EmbeddingBody),
        Endpoint("POST", "/v1/responses", _generating(server, responses.create), ResponseBody),
        Endpoint("POST", "/v1/responses/input_tokens", responses.count_input, InputTokensBody),
        Endpoint("GET", "/v1/responses/{response_id}", responses.retrieve),
        Endpoint("DELETE", "/v1/responses/{response_id}", responses.delete),
        Endpoint("GET", "/v1/responses/{response_id}/input_items", responses.input_items),
        Endpoint("POST", "/v1/responses/{response_id}/cancel", responses.cancel),
        Endpoint("POST", "/v1/messages", _generating(server, messages.create), MessagesBody),
        Endpoint("POST", "/v1/messages/count_tokens", messages.count_tokens, CountTokensBody),
        Endpoint("GET", "/v1/models", models.list),
        Endpoint("GET", "/v1/models/{model:path}", models.retrieve),
        Endpoint("POST", "/v1/sessions", sessions.create, SessionBody),
        Endpoint("GET", "/v1/sessions", sessions.list_all),
        Endpoint("GET", "/v1/sessions/{session_id}", sessions.retrieve),
        Endpoint("POST", "/v1/sessions/{session_id}/extend", sessions.extend, LeaseBody),
        Endpoint("DELETE", "/v1/sessions/{session_id}", sessions.end),
        Endpoint("GET", "/v1/requests/{request_id}", requests.retrieve),
        Endpoint("POST", "/v1/abort", requests.abort, AbortBody),
        Endpoint("POST", "/tokenize", tokens.tokenize, TokenizeBody),
        Endpoint("POST", "/detokenize", tokens.detokenize, DetokenizeBody),
        Endpoint("POST", "/render", Render(server).answer, RenderBody),
        Endpoint("GET", "/health", status.health),
        Endpoint("GET", "/ready", status.ready),
        Endpoint("GET", "/version", status.version),
        Endpoint("GET", "/load", LoadCard(server).answer),
        Endpoint("GET", "/metrics", status.metrics),
        Endpoint("POST", "/admin/pause", admin.pause, PauseBody),
        Endpoint("POST", "/admin/resume", admin.resume, EmptyBody),
        Endpoint("POST", "/admin/drain", admin.drain, DrainBody),
        Endpoint("POST", "/admin/reset_prefix_cache", admin.reset_prefix_cache, EmptyBody),
        Endpoint("GET", "/admin/requests", admin.requests),
        Endpoint("POST", "/admin/profile", profiles.profile, ProfileBody),
        Endpoint("POST", "/admin/profile/start", profiles.start, ProfileStartBody),
        Endpoint("POST", "/admin/profile/stop", profiles.stop, EmptyBody),
    )


def _generating(server: ServerContext, endpoint: Answerer) -> Answerer:
    async def answer(request: Request) -> Response:
        with server.taking_requests():
            return await endpoint(request)

    answer.__doc__ = inspect.getdoc(endpoint)
    return answer
