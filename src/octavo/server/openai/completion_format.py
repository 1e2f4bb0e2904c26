"""The shape of a completion, whole and in chunks."""

from collections.abc import Sequence
from typing import Any

from octavo.server.conversation.pieces import AnswerOptions, Piece, PromptWriter
from octavo.server.openai.answer import finish_reason
from octavo.server.openai.logprobs import legacy_logprobs, prompt_logprob_rows
from octavo.server.serving_engine import TextCodec


class CompletionFormat:
    """The shape of a text completion; whole choices and streamed ones look alike."""

    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, options: AnswerOptions, tokenizer: TextCodec | None) -> None:
        self._options = options
        self._tokenizer = tokenizer

    def choice(self, piece: Piece, prompt: PromptWriter) -> dict[str, Any]:
        """A choice, whole or in part."""
        logprobs = None if self._options.num_top_logprobs is None else legacy_logprobs(piece.scored)
        choice: dict[str, Any] = {
            "index": piece.index,
            "text": piece.text,
            "logprobs": logprobs,
            "finish_reason": finish_reason(piece.finish_reason),
            "stop_reason": piece.stop_reason,
        }
        if self._options.return_token_ids:
            choice["token_ids"] = piece.token_ids
            choice["prompt_token_ids"] = prompt.prompt.token_ids if piece.first else None
        count = self._options.num_prompt_logprobs
        if count is not None and piece.first:
            choice["prompt_logprobs"] = prompt_logprob_rows(self._tokenizer, prompt.prompt_rows or (), count)
        return choice

    def delta(self, piece: Piece, prompt: PromptWriter) -> dict[str, Any]:
        """A part of a choice."""
        return self.choice(piece, prompt)

    def beside_choices(self, prompts: Sequence[PromptWriter]) -> dict[str, Any]:
        """Nothing: prompts differ per choice."""
        return {}
