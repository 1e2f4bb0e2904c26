"""What one HTTP request has come to, for the line that the access log has of it. Never its content."""

import logging
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field

from octavo.engine.output import GenerationDelta
from octavo.log import ACCESS
from octavo.request.outputs import FinishReason

log = logging.getLogger(ACCESS)

MAX_PATH_CHARS = 200
TENANT_CHARS = 8
"""Of the digest: enough to tell keys apart, and to find one in a list."""


@dataclass
class RequestFigures:
    """Tokens and ends of all choices of one request."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    draft_tokens: int = 0
    saved_steps: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)
    _prompts: set[int] = field(default_factory=set)

    def see(self, prompt: int, delta: GenerationDelta) -> None:
        """Takes note of a delta of one of the prompts."""
        if prompt not in self._prompts:
            self._prompts.add(prompt)
            self.prompt_tokens += len(delta.prompt_token_ids)
            self.cached_tokens += delta.num_cached_tokens
        self.output_tokens += len(delta.choice.token_ids)
        stats = delta.choice.stats
        if stats is not None and delta.choice.finish_reason is not None:
            self.draft_tokens += stats.num_draft_tokens
            self.saved_steps += stats.num_saved_steps
        if delta.choice.finish_reason is not None:
            self.finish_reasons[str(delta.choice.finish_reason)] += 1

    def see_vector(self, num_tokens: int, num_cached_tokens: int, reason: FinishReason) -> None:
        """Takes note of a prompt of which a vector was made, or should have been."""
        self.prompt_tokens += num_tokens
        self.cached_tokens += num_cached_tokens
        self.finish_reasons[str(reason)] += 1

    def end(self, reason: FinishReason, num_choices: int) -> None:
        """Choices have ended without a delta that says so."""
        self.finish_reasons[str(reason)] += num_choices

    def fields(self) -> dict[str, object]:
        """For the log; empty for a request that generated nothing."""
        if not (self._prompts or self.finish_reasons.total()):
            return {}
        reasons = {reason: count for reason, count in self.finish_reasons.items() if count}
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            **({"draft_tokens": self.draft_tokens, "saved_steps": self.saved_steps} if self.draft_tokens else {}),
            "finish_reasons": ",".join(f"{reason}:{count}" for reason, count in sorted(reasons.items())),
        }


FIGURES: ContextVar[RequestFigures | None] = ContextVar("figures", default=None)
"""Of the HTTP request being answered."""


def log_access(
    method: str, path: str, status: int | None, seconds: float, request_id: str, tenant: str, figures: RequestFigures
) -> None:
    """One line. A status of None: the client left before there was one, which is written 499, as nginx does.

    The path is that of the request without its query, which may hold anything.
    """
    fields = {
        "method": method,
        "path": path[:MAX_PATH_CHARS],
        "status": 499 if status is None else status,
        "seconds": round(seconds, 6),
        "request_id": request_id,
        "tenant": tenant[:TENANT_CHARS],
        **figures.fields(),
    }
    log.info("request", extra={"fields": fields})
