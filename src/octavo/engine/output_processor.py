"""From core outputs to what callers see: text, stop strings, and where a choice really ends."""

import logging
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from octavo.engine.input import PreparedRequest
from octavo.engine.output import ChoiceDelta, CompletionOutput, GenerationDelta, GenerationOutput
from octavo.request.orders import End
from octavo.request.outputs import FinishReason, LogprobRow, RequestOutput, RequestStats
from octavo.request.params import SamplingParams
from octavo.text.stream import TextStream
from octavo.text.tokenizer import Tokenizer

Result = TypeVar("Result")

log = logging.getLogger(__name__)

REPETITION_REASON = "repetition_detected"
"""Stop reason of an answer that was ended because it repeats itself; vLLM's word."""


class ChoiceStream:
    """One choice while it runs. Ends at the core's finish or at a stop string, whichever token comes first; what the
    core sends after that is dropped."""

    def __init__(self, index: int, params: SamplingParams, tokenizer: Tokenizer | None) -> None:
        self.index = index
        self.finished = False
        self._text = _open_text(params, tokenizer)
        self._held_ids: list[int] = []
        self._held_logprobs: list[LogprobRow] = []
        self._held_offsets: list[int] = []
        self._wants_logprobs = params.logprobs is not None

    def push(self, output: RequestOutput) -> ChoiceDelta | None:
        """Takes one core output; returns what may be shown now, None while text is held back or after the end."""
        if self.finished:
            return None
        text, stop = self._push_text(output)
        reason = FinishReason.STOP if stop is not None else output.finish_reason
        self.finished = reason is not None
        if not text and not self.finished and self._text is not None:
            return None
        cause = (stop if stop is not None else output.stop_token_id) if reason is FinishReason.STOP else None
        return self._delta(text, reason, cause, output)

    def fail(self, problem: str, output: RequestOutput) -> ChoiceDelta:
        """Ends the choice with an error; what was held back is lost."""
        self.finished = True
        return ChoiceDelta(
            index=self.index,
            text="",
            token_ids=(),
            finish_reason=FinishReason.ERROR,
            error=problem,
            stats=output.stats,
        )

    def _push_text(self, output: RequestOutput) -> tuple[str, str | None]:
        """Text of the output's tokens and the stop string that ended it; holds the ids and logprobs that count."""
        ids, text, stop = output.new_token_ids, "", None
        used = len(ids)
        if self._text is not None:
            by_stop_token = output.finish_reason is FinishReason.STOP and not output.ends_with_text
            step = self._text.push(ids, ends_with_stop_token=by_stop_token)
            text, used, stop = step.text, step.num_tokens, step.stop
            self._held_offsets += step.text_offsets
            if stop is None and output.finish_reason is not None:
                tail = self._text.flush()
                text, stop = text + tail.text, tail.stop
        self._held_ids += ids[:used]
        self._held_logprobs += (output.new_logprobs or [])[:used]
        return text, stop

    def _delta(
        self, text: str, reason: FinishReason | None, stop_reason: str | int | None, output: RequestOutput
    ) -> ChoiceDelta:
        text_offsets, self._held_offsets = tuple(self._held_offsets), []
        token_ids, self._held_ids = tuple(self._held_ids), []
        logprobs, self._held_logprobs = tuple(self._held_logprobs), []
        return ChoiceDelta(
            index=self.index,
            text=text,
            token_ids=token_ids,
            logprobs=logprobs if self._wants_logprobs else None,
            text_offsets=text_offsets,
            finish_reason=reason,
            stop_reason=REPETITION_REASON if reason is FinishReason.REPETITION else stop_reason,
            error=_error_text(output),
            error_status=output.error_status,
            error_field=output.error_field,
            stats=output.stats if reason is not None else None,
        )


def _error_text(output: RequestOutput) -> str | None:
    """What went wrong; of a request that was not taken with the field that it is about."""
    if output.error is None or not output.error_field:
        return output.error
    return f"{output.error_field}: {output.error}"


def _open_text(params: SamplingParams, tokenizer: Tokenizer | None) -> TextStream | None:
    if tokenizer is None or not params.detokenize:
        return None
    return TextStream(
        tokenizer,
        stops=params.stop,
        include_stop=params.include_stop_str_in_output,
        min_tokens=params.min_tokens,
        skip_special=params.skip_special_tokens,
    )


class OutputStream(Protocol[Result]):
    """A request while it runs: makes of the core's outputs what its caller gets."""

    request: PreparedRequest

    @property
    def finished(self) -> bool:
        """Whether its caller gets no more."""
        ...

    @property
    def unfinished_ids(self) -> list[str]:
        """Core request ids still running; to be aborted when the caller goes away."""
        ...

    def push(self, output: RequestOutput) -> tuple[Result | None, End | None]:
        """Takes one core output. Returns what to show, if anything, and what the core must be told: that this request
        of its has ended here, where the core says otherwise or nothing. Nothing raises out of here, for whoever pushes
        may do so for others."""
        ...

    def with_ledger(self, result: Result | None, stats: RequestStats) -> Result | None:
        """What was to be shown when a core request ended here, with the ledger that the core closed for that."""
        ...


class RequestStream:
    """All choices of one request: routes core outputs to choices and wraps their deltas."""

    def __init__(self, request: PreparedRequest, tokenizer: Tokenizer | None) -> None:
        self.request = request
        self._choices = {
            choice.request_id: ChoiceStream(index, choice.params, tokenizer)
            for index, choice in enumerate(request.choices)
        }
        self._num_cached_tokens: int | None = None
        self._prompt_logprobs: tuple[LogprobRow | None, ...] | None = None

    @property
    def finished(self) -> bool:
        return all(choice.finished for choice in self._choices.values())

    @property
    def unfinished_ids(self) -> list[str]:
        """Core request ids still running; to be aborted when the caller goes away."""
        return [request_id for request_id, choice in self._choices.items() if not choice.finished]

    def push(self, output: RequestOutput) -> tuple[GenerationDelta | None, End | None]:
        """See `OutputStream.push`: a stop string ended the choice, or its text cannot be made."""
        choice = self._choices[output.request_id]
        self._note_prompt(output)
        try:
            delta = choice.push(output)
        except Exception as error:
            log.error("request %s ends: no text can be made of its tokens", output.request_id, exc_info=error)
            problem = f"no text can be made of the tokens ({type(error).__name__}); the log says more"
            delta = choice.fail(problem, output)
        if delta is None:
            return None, None
        reason = delta.finish_reason
        told = None if reason is None or reason is output.finish_reason else self._end(output.request_id, reason)
        return self._wrap(delta), told

    def _end(self, request_id: str, reason: FinishReason) -> End:
        first = self.request.choices[0]
        return End(tenant=first.tenant, group=first.group, request_id=request_id, reason=reason)

    def with_ledger(self, result: GenerationDelta | None, stats: RequestStats) -> GenerationDelta | None:
        """See `OutputStream.with_ledger`."""
        if result is None:
            return None
        return msgspec.structs.replace(result, choice=msgspec.structs.replace(result.choice, stats=stats))

    def _note_prompt(self, output: RequestOutput) -> None:
        if output.stats is not None and self._num_cached_tokens is None:
            self._num_cached_tokens = output.stats.num_cached_tokens
        if output.prompt_logprobs is not None:
            self._prompt_logprobs = tuple(output.prompt_logprobs)

    def _wrap(self, delta: ChoiceDelta) -> GenerationDelta:
        prompt_logprobs = None
        if delta.index == 0:
            prompt_logprobs, self._prompt_logprobs = self._prompt_logprobs, None
        return GenerationDelta(
            request_id=self.request.request_id,
            choice=delta,
            prompt_token_ids=self.request.prompt_token_ids,
            num_cached_tokens=self._num_cached_tokens or 0,
            prompt_logprobs=prompt_logprobs,
        )


@dataclass
class _Collected:
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[LogprobRow] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    stats: RequestStats | None = None


class OutputCollector:
    """Adds up deltas to a finished `GenerationOutput`."""

    def __init__(self, request: PreparedRequest, prompt: str | None) -> None:
        self._request = request
        self._prompt = prompt
        self._choices = [_Collected() for _ in request.choices]
        self._num_cached_tokens = 0
        self._prompt_logprobs: tuple[LogprobRow | None, ...] | None = None

    def add(self, delta: GenerationDelta, now_s: float) -> None:
        """Takes the next delta of any choice.

        Args:
            now_s: with the last one its ledger ends.
        """
        choice = delta.choice
        collected = self._choices[choice.index]
        collected.text.append(choice.text)
        collected.token_ids += choice.token_ids
        if choice.logprobs is not None:
            collected.logprobs = [*(collected.logprobs or []), *choice.logprobs]
        collected.finish_reason = choice.finish_reason
        collected.stop_reason = choice.stop_reason
        collected.error = choice.error
        if choice.stats is not None:
            collected.stats = msgspec.structs.replace(choice.stats, delivered_s=now_s)
        self._num_cached_tokens = delta.num_cached_tokens
        self._prompt_logprobs = delta.prompt_logprobs or self._prompt_logprobs

    def output(self) -> GenerationOutput:
        """The finished request; every choice must have ended."""
        return GenerationOutput(
            request_id=self._request.request_id,
            prompt=self._prompt,
            prompt_token_ids=self._request.prompt_token_ids,
            outputs=tuple(_completion(index, collected) for index, collected in enumerate(self._choices)),
            prompt_logprobs=self._prompt_logprobs,
            num_cached_tokens=self._num_cached_tokens,
        )


def _completion(index: int, collected: _Collected) -> CompletionOutput:
    if collected.finish_reason is None:
        raise RuntimeError(f"choice {index} has not ended")
    return CompletionOutput(
        index=index,
        text="".join(collected.text),
        token_ids=tuple(collected.token_ids),
        logprobs=None if collected.logprobs is None else tuple(collected.logprobs),
        finish_reason=collected.finish_reason,
        stop_reason=collected.stop_reason,
        error=collected.error,
        stats=collected.stats,
    )
