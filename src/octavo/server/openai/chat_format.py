"""The shape of a chat completion, whole and in chunks."""

from collections.abc import Sequence
from typing import Any

from octavo.request.outputs import FinishReason
from octavo.server.conversation.message import AnswerMessage, MadeCall, message_of
from octavo.server.conversation.pieces import AnswerOptions, Piece, PromptWriter
from octavo.server.openai.answer import finish_reason
from octavo.server.openai.logprobs import chat_logprobs, prompt_logprob_rows
from octavo.server.serving_engine import TextCodec


class ChatFormat:
    """See AnswerFormat. The role comes with the first text, not in a chunk of its own: a chunk without a token would
    look like a token to anyone who measures."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, options: AnswerOptions, tokenizer: TextCodec | None) -> None:
        self._options = options
        self._tokenizer = tokenizer

    def choice(self, piece: Piece, prompt: PromptWriter) -> dict[str, Any]:
        """A whole choice."""
        return self._with(piece, prompt, {"message": _whole_message(message_of(piece.events))})

    def delta(self, piece: Piece, prompt: PromptWriter) -> dict[str, Any]:
        """A part of a choice."""
        role = {"role": "assistant"} if piece.first else {}
        return self._with(piece, prompt, {"delta": role | _delta(message_of(piece.events), first=piece.first)})

    def _with(self, piece: Piece, prompt: PromptWriter, content: dict[str, Any]) -> dict[str, Any]:
        logprobs = None if self._options.num_top_logprobs is None else chat_logprobs(piece.scored)
        choice: dict[str, Any] = {"index": piece.index, **content, "logprobs": logprobs}
        choice |= {"finish_reason": _finish_reason(piece), "stop_reason": piece.stop_reason}
        if self._options.return_token_ids:
            choice["token_ids"] = piece.token_ids
            choice["prompt_token_ids"] = prompt.prompt.token_ids if piece.first else None
        return choice

    def beside_choices(self, prompts: Sequence[PromptWriter]) -> dict[str, Any]:
        """vLLM puts the prompt's facts here, since a chat has one prompt."""
        (prompt,) = prompts
        facts: dict[str, Any] = {}
        if self._options.return_token_ids:
            facts["prompt_token_ids"] = prompt.prompt.token_ids
        if self._options.return_prompt_text:
            facts["prompt_text"] = prompt.prompt.text
        count = self._options.num_prompt_logprobs
        if count is not None:
            facts["prompt_logprobs"] = prompt_logprob_rows(self._tokenizer, prompt.prompt_rows or (), count)
        return facts


def _whole_message(made: AnswerMessage) -> dict[str, Any]:
    """Content is null where there is none beside calls or reasoning."""
    silent = not made.content and (made.calls or made.reasoning)
    message: dict[str, Any] = {"role": "assistant", "content": None if silent else made.content, "refusal": None}
    if made.reasoning:
        message["reasoning"] = made.reasoning
    if made.calls:
        message["tool_calls"] = [_call(call) for call in made.calls]
    return message


def _call(call: MadeCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _delta(made: AnswerMessage, *, first: bool) -> dict[str, Any]:
    """Only what there is; an answer's first chunk has content, if only empty, where there is nothing else."""
    delta: dict[str, Any] = {}
    if made.reasoning:
        delta["reasoning"] = made.reasoning
    calls = [_call_delta(call) for call in made.calls if call.name is not None or call.arguments]
    if calls:
        delta["tool_calls"] = calls
    if made.content or (first and not delta):
        delta["content"] = made.content
    return delta


def _call_delta(call: MadeCall) -> dict[str, Any]:
    """Id, type and name come once, with the first delta of a call."""
    if call.name is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    return {"index": call.index, **_call(call)}


def _finish_reason(piece: Piece) -> str | None:
    """`tool_calls` if the answer ended by itself and holds a call."""
    if piece.calls and piece.finish_reason is FinishReason.STOP:
        return "tool_calls"
    return finish_reason(piece.finish_reason)
