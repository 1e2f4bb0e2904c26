"""Limits of an API key: requests per minute, tokens per minute, requests at one time. Beyond them 429, with the time
after which a request will be taken.

Tokens are counted when they are spent: a prompt's when its request is taken, an answer's as they are generated. So a
request that is still running counts with what it has cost so far, one that was aborted with what it had cost, one that
the engine's queue did not take with nothing. Running answers are not cut when a key passes its limit: its next requests
wait until the minute has room for their prompts.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.api_keys import ApiKey, KeyLimits
from octavo.server.errors import ApiError
from octavo.server.rate_window import RateWindow
from octavo.server.usage_ledger import KeyUsage, UsageLedger

NO_LIMITS = KeyLimits()
UNLIMITED = re.compile(r"/v1/abort|/v1/sessions/[^/]+/extend|/v1/responses/[^/]+/cancel")
"""What makes less work, so it must go through when a key is at its limit."""


class RequestMeter:
    """Counts the tokens of one HTTP request."""

    def __init__(self, ledger: UsageLedger, usage: KeyUsage, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._usage = usage
        self._clock = clock
        self._prompts: list[tuple[int, int]] = []

    def take_prompt(self, num_tokens: int) -> None:
        """Counts a prompt, or all of a request's prompts, before anything runs.

        Raises:
            ApiError: 429, the minute has no room for it.
        """
        window, now = self._usage.tokens, self._clock()
        if window is None:
            return
        with self._ledger.locked():
            wait = window.wait_s(num_tokens, now)
            if not wait:
                self._prompts.append((num_tokens, window.add(num_tokens, now)))
        if wait:
            asked = f"this request's prompt has {num_tokens} tokens"
            raise _too_many(self._usage.key, f"{window.limit} tokens per minute, and {asked}", wait)

    def count_output(self, num_tokens: int) -> None:
        """Counts tokens of an answer."""
        if self._usage.tokens is not None and num_tokens:
            with self._ledger.locked():
                self._usage.tokens.add(num_tokens, self._clock())

    def give_back_prompts(self) -> None:
        """The engine did not take the request."""
        if self._usage.tokens is not None:
            with self._ledger.locked():
                while self._prompts:
                    self._usage.tokens.give_back(*self._prompts.pop())


class Unmetered:
    """Where no limit holds."""

    def take_prompt(self, num_tokens: int) -> None:
        """See `RequestMeter`."""

    def count_output(self, num_tokens: int) -> None:
        """See `RequestMeter`."""

    def give_back_prompts(self) -> None:
        """See `RequestMeter`."""


METER: ContextVar[RequestMeter | Unmetered] = ContextVar("meter", default=Unmetered())  # noqa: B039 - it has no state
"""Of the HTTP request being answered."""


@contextmanager
def unmetered() -> Iterator[None]:
    """Around what only looks as if it were run: it spends nothing."""
    before = METER.set(Unmetered())
    try:
        yield
    finally:
        METER.reset(before)


class KeyLimiter:
    """Takes requests of a key as long as it keeps within its limits."""

    def __init__(self, ledger: UsageLedger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock

    @contextmanager
    def taken(self, key: ApiKey) -> Iterator[RequestMeter]:
        """Around one request, until its last byte or its client's end.

        Raises:
            ApiError: 429.
        """
        usage = self._ledger.of(key)
        with self._ledger.locked():
            refusal = self._refusal(usage)
            if refusal is None:
                usage.enter()
                if usage.requests is not None:
                    usage.requests.add(1, self._clock())
        if refusal is not None:
            raise refusal
        try:
            yield RequestMeter(self._ledger, usage, self._clock)
        finally:
            with self._ledger.locked():
                usage.leave()

    def _refusal(self, usage: KeyUsage) -> ApiError | None:
        most, now = usage.key.limits.concurrent_requests, self._clock()
        if most and usage.in_progress >= most:
            message = f"{_whose(usage.key)} {most} requests at one time, and so many are in progress"
            return ApiError(429, message, code="concurrency_limit_exceeded", headers={"Retry-After": "1"})
        for window, unit in ((usage.requests, "requests"), (usage.tokens, "tokens")):
            wait = 0.0 if window is None else window.wait_s(1, now)
            if window is not None and wait:
                return _too_many(usage.key, f"{window.limit} {unit} per minute", wait)
        return None

    def in_progress(self, key: ApiKey) -> int:
        """Requests of a key that have not ended."""
        with self._ledger.locked():
            return self._ledger.of(key).in_progress

    def headers(self, key: ApiKey) -> dict[str, str]:
        """OpenAI's `x-ratelimit-*` headers, of the limits that there are."""
        usage, now = self._ledger.of(key), self._clock()
        with self._ledger.locked():
            return _headers_of("requests", usage.requests, now) | _headers_of("tokens", usage.tokens, now)


class LimitGuard:
    """Holds requests that ask for work to their key's limits, and tells what is left. Behind the key's guard."""

    def __init__(self, app: ASGIApp, limiter: KeyLimiter, refused: Callable[[str], None]) -> None:
        """
        Args:
            refused: told the reason of each refusal.
        """
        self._app = app
        self._limiter = limiter
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key: ApiKey | None = scope.get("state", {}).get("api_key")
        if key is None or key.limits == NO_LIMITS or not _asks_for_work(scope):
            await self._app(scope, receive, send)
            return

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = [(name.encode(), value.encode()) for name, value in self._limiter.headers(key).items()]
                message = {**message, "headers": [*message["headers"], *told]}
            await send(message)

        with ExitStack() as stack:
            try:
                METER.set(stack.enter_context(self._limiter.taken(key)))
            except ApiError as refusal:
                self._refused(refusal.code or "other")
                await refusal.response()(scope, receive, tell)
                return
            await self._app(scope, receive, tell)


def _asks_for_work(scope: Scope) -> bool:
    return scope["method"] == "POST" and not UNLIMITED.fullmatch(scope["path"])


def _too_many(key: ApiKey, limit: str, wait_s: float) -> ApiError:
    message = f"{_whose(key)} {limit}; try again in {duration(wait_s)}"
    headers = {"Retry-After": str(math.ceil(wait_s)), "retry-after-ms": str(math.ceil(1000 * wait_s))}
    return ApiError(429, message, code="rate_limit_exceeded", headers=headers)


def _whose(key: ApiKey) -> str:
    return f"the API key {key.name!r} may use" if key.digest else "all clients of this server together may use"


def _headers_of(unit: str, window: RateWindow | None, now: float) -> dict[str, str]:
    if window is None:
        return {}
    return {
        f"x-ratelimit-limit-{unit}": str(window.limit),
        f"x-ratelimit-remaining-{unit}": str(window.remaining(now)),
        f"x-ratelimit-reset-{unit}": duration(window.reset_s(now)),
    }


def duration(seconds: float) -> str:
    """`0s`, `250ms`, `6s`, `1m30s`: as OpenAI writes it, rounded up."""
    if 0 < seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
