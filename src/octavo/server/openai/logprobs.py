"""The two logprob formats of OpenAI's API, and vLLM's `prompt_logprobs`."""

from collections.abc import Sequence
from typing import Any

from octavo.request.outputs import LogprobRow
from octavo.server.conversation.token_texts import LOWEST_LOGPROB, ScoredToken, best_tokens
from octavo.server.serving_engine import TextCodec


def legacy_logprobs(tokens: Sequence[ScoredToken]) -> dict[str, Any]:
    """The object of /v1/completions. `top_logprobs` holds the chosen token too, as OpenAI's does."""
    return {
        "tokens": [legacy_spelling(token.spelling) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_legacy_top(token) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def legacy_spelling(spelling: bytes) -> str:
    r"""A token as text; one that is no whole text as `bytes:\xf0\x9f`, so that two such tokens stay two keys."""
    try:
        return spelling.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)


def _legacy_top(token: ScoredToken) -> dict[str, float] | None:
    if token.logprob is None:
        return None
    top = {legacy_spelling(spelling): logprob for spelling, logprob, _ in token.top}
    top.setdefault(legacy_spelling(token.spelling), token.logprob)
    return top


def chat_logprobs(tokens: Sequence[ScoredToken]) -> dict[str, Any]:
    """The object of /v1/chat/completions."""
    return {"content": [_chat_token(token) for token in tokens], "refusal": None}


def _chat_token(token: ScoredToken) -> dict[str, Any]:
    entry = _chat_entry(token.spelling, token.logprob)
    entry["top_logprobs"] = [_chat_entry(spelling, logprob) for spelling, logprob, _ in token.top]
    return entry


def _chat_entry(spelling: bytes, logprob: float | None) -> dict[str, Any]:
    return {"token": spelling.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(spelling)}


def prompt_logprob_rows(
    tokenizer: TextCodec | None, rows: Sequence[LogprobRow | None], num_top: int
) -> list[dict[str, Any] | None]:
    """vLLM's form: per prompt token null or `{token id: {"logprob", "rank", "decoded_token"}}`, the prompt's own token
    first."""
    return [None if row is None else _ranked(tokenizer, row, num_top) for row in rows]


def _ranked(tokenizer: TextCodec | None, row: LogprobRow, num_top: int) -> dict[str, Any]:
    ranked = {row.token_ids[0]: (row.logprobs[0], row.rank)}
    for place, (token_id, logprob) in enumerate(best_tokens(row, num_top), start=1):
        ranked.setdefault(token_id, (logprob, place))
    return {
        str(token_id): {
            "logprob": max(logprob, LOWEST_LOGPROB),
            "rank": rank,
            "decoded_token": None if tokenizer is None else tokenizer.token_bytes(token_id).decode("utf-8", "replace"),
        }
        for token_id, (logprob, rank) in ranked.items()
    }
