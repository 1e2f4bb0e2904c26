"""A conversation with a model in this process."""

from collections.abc import Iterator

from octavo.engine.llm import LLM
from octavo.errors import RequestFailedError
from octavo.request.outputs import FinishReason, RequestStats
from octavo.request.params import SamplingParams

ANSWER_TOKENS = 1024
"""Most tokens of an answer unless told otherwise: a small model that repeats itself would fill the whole context."""


class Conversation:
    """The messages so far, and the statistics of the last answer."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str = "") -> None:
        self.model = llm.info.model
        self._llm = llm
        self._params = params
        self._system = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._system)
        self._last: RequestStats | None = None
        self.was_cut = False
        """Whether the last answer ended at its bound."""

    def ask(self, question: str) -> Iterator[str]:
        """Streams the answer to a question. An answer that is broken off is forgotten together with its question.

        Raises:
            InvalidRequestError: the conversation does not fit the context, or the model cannot chat.
            RequestFailedError: the engine failed on this answer.
        """
        asked = [*self._messages, {"role": "user", "content": question}]
        answer = ""
        prompt = self._llm.render_chat(asked)
        for delta in self._llm.stream(prompt, self._bounded(len(prompt))):
            if delta.choice.finish_reason is FinishReason.ERROR:
                raise RequestFailedError(delta.choice.error or "generation failed")
            self.was_cut = delta.choice.finish_reason is FinishReason.LENGTH
            answer += delta.choice.text
            self._last = delta.choice.stats or self._last
            yield delta.choice.text
        self._messages = [*asked, {"role": "assistant", "content": answer}]

    def _bounded(self, num_prompt_tokens: int) -> SamplingParams:
        """The parameters with a bound on the answer; a prompt that leaves no room is refused by the engine."""
        room = max(1, self._llm.info.max_model_len - num_prompt_tokens)
        if self._params.max_tokens is not None:
            return self._params
        return self._params.replace(max_tokens=min(ANSWER_TOKENS, room))

    def reset(self) -> None:
        """Forgets everything but the system message."""
        self._messages = list(self._system)

    def stats(self) -> str:
        """One line about the last answer."""
        stats = self._last
        if stats is None or stats.first_token_s is None or stats.finished_s is None:
            return "no answer yet"
        first, rest = stats.first_token_s - stats.arrival_s, stats.finished_s - stats.first_token_s
        speed = f", {(stats.num_output_tokens - 1) / rest:.1f} tokens/s" if rest > 0 else ""
        right = f"{stats.num_accepted_draft_tokens} of {stats.num_draft_tokens}"
        drafts = f", {right} drafted tokens right" if stats.num_drafts else ""
        return (
            f"{stats.num_prompt_tokens} prompt tokens ({stats.num_cached_tokens} cached), "
            f"{stats.num_output_tokens} answer tokens, first after {first:.2f} s{speed}{drafts}"
        )
