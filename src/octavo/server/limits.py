"""Every bound on what a client may send, in one table: docs/limits.md prints it (`python -m octavo.server.limits`), and
a test sends what just fits and what is one too many."""

import sys
from dataclasses import dataclass

from octavo.config import ModelConfig, SchedulerConfig, ServerConfig
from octavo.request.params import MAX_BAD_WORDS, MAX_LOGPROB_TOKEN_IDS, MAX_N, MAX_PROCESSOR_ARGS_BYTES
from octavo.request.pin import MAX_LEASE_S, MAX_SESSIONS_PER_TENANT
from octavo.server.body import MAX_DIGITS, MAX_HEAVY_VALUES, MAX_NESTING, MIN_VALUES
from octavo.server.http_protocol import KEEP_ALIVE_S, MAX_HEAD_BYTES
from octavo.server.native.requests import MAX_NAME_CHARS, MAX_NAMES
from octavo.server.openai.completion_body import MAX_PROMPTS
from octavo.server.openai.completions import MAX_ANSWERS
from octavo.server.openai.embedding_body import MAX_INPUTS
from octavo.server.openai.generation_body import MAX_BAD_WORD_CHARS, MAX_STOP_CHARS, MAX_STOP_STRINGS
from octavo.server.openai.message import MAX_MESSAGES
from octavo.server.openai.tool_body import MAX_TOOLS
from octavo.text.library_encoder import MAX_TOKENS


@dataclass(frozen=True)
class Limit:
    """One bound."""

    what: str
    most: float | str
    """The value, a flag's as it is by default."""
    answer: str
    """What happens beyond it: a status, or words."""
    flag: str = ""
    """Which flag changes it; empty: none does."""


_SERVER = ServerConfig()
LIMITS = (
    Limit("bytes of the request line and headers", MAX_HEAD_BYTES, "400 `invalid_http`"),
    Limit(
        "seconds until the headers, and until the body, have arrived",
        _SERVER.receive_timeout,
        "408",
        "--receive-timeout",
    ),
    Limit("bytes of a body", _SERVER.max_body_bytes, "413", "--max-body-bytes"),
    Limit("objects, lists and texts in a body of 64 KiB or more", MAX_HEAVY_VALUES, "413"),
    Limit("values in such a body, or twice the context's tokens if that is more", MIN_VALUES, "413"),
    Limit("tokens of one text", MAX_TOKENS, "400"),
    Limit("seconds that an idle connection is kept", KEEP_ALIVE_S, "it is closed"),
    Limit("connections of one API process", "open files less 128", "503 `too_many_connections`", "--max-connections"),
    Limit("requests of a key in 60 seconds", "none", "429 `rate_limit_exceeded`", "--key-requests-per-minute"),
    Limit("tokens of a key in 60 seconds", "none", "429 `rate_limit_exceeded`", "--key-tokens-per-minute"),
    Limit("requests of a key at one time", "none", "429 `concurrency_limit_exceeded`", "--key-concurrent-requests"),
    Limit("waiting requests", SchedulerConfig().max_num_queued_reqs, "429 `queue_full`", "--max-num-queued-reqs"),
    Limit("nesting of JSON", MAX_NESTING, "400"),
    Limit("digits of an integer", MAX_DIGITS, "400"),
    Limit("tokens of prompt and answer", "the model's", "400 `context_length_exceeded`", "--max-model-len"),
    Limit("`messages`", MAX_MESSAGES, "400"),
    Limit("prompts in `prompt`", MAX_PROMPTS, "400"),
    Limit("`n`", MAX_N, "400"),
    Limit("answers, prompts times `n`", MAX_ANSWERS, "400"),
    Limit("strings in `stop`", MAX_STOP_STRINGS, "400"),
    Limit("characters of a stop string", MAX_STOP_CHARS, "400"),
    Limit("ids in `stop_token_ids`", "the vocabulary", "400"),
    Limit("ids in `allowed_token_ids`", "the vocabulary", "400"),
    Limit("entries of `logit_bias`", "the vocabulary", "400"),
    Limit("`bad_words`", MAX_BAD_WORDS, "400"),
    Limit("characters of a bad word", MAX_BAD_WORD_CHARS, "400"),
    Limit("`top_logprobs`, `logprobs`, `prompt_logprobs`", ModelConfig().max_logprobs, "400", "--max-logprobs"),
    Limit("ids in `logprob_token_ids`", MAX_LOGPROB_TOKEN_IDS, "400"),
    Limit("bytes of `logits_processors`", MAX_PROCESSOR_ARGS_BYTES, "400"),
    Limit("`tools`", MAX_TOOLS, "400"),
    Limit("inputs in `input` of embeddings", MAX_INPUTS, "400"),
    Limit("characters of `cache_salt`", 128, "400"),
    Limit("characters of `session_id`", 128, "400"),
    Limit("seconds of a session's lease", MAX_LEASE_S, "400"),
    Limit("sessions of a key", MAX_SESSIONS_PER_TENANT, "429 `pin_budget`"),
    Limit("ids in one `POST /v1/abort`", MAX_NAMES, "400"),
    Limit("characters of a request's id", MAX_NAME_CHARS, "400"),
    Limit("characters of `X-Request-Id`", 128, "another id takes its place"),
)


def limits_table() -> str:
    """All of them, in Markdown."""
    rows = [f"| {limit.what} | {_shown(limit)} | {limit.answer} |" for limit in LIMITS]
    return "\n".join(["| what | at most | beyond it |", "|---|---|---|", *rows, ""])


def _shown(limit: Limit) -> str:
    value = limit.most if isinstance(limit.most, str) else f"{limit.most:,.0f}".replace(",", " ")
    return f"{value} (`{limit.flag}`)" if limit.flag else value


if __name__ == "__main__":
    sys.stdout.write(limits_table())
