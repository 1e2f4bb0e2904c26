"""Who may start: what is refused at arrival, and what a waiting request needs to be admitted."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from octavo.config import SchedulerConfig
from octavo.errors import InvalidRequestError
from octavo.kv.manager import KVManager, PrefixHit
from octavo.request.request import GenerateRequest
from octavo.scheduling.forecast import Life, OutputLengths, peak_blocks, reserved_blocks
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest, max_total_tokens


class RunningRequests(Protocol):
    """The running requests, as far as a forecast looks at them."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[SchedulerRequest]: ...


class Outlook(NamedTuple):
    """What is foreseen of the running requests.

    Stays true while they only decode: what one gains in blocks it loses in life. Made anew when somebody leaves, for
    blocks may then have lost their last other holder.
    """

    lives: list[Life]
    num_shared: int
    """Blocks that several requests hold, each counted once; none of them is ever expected back."""


class Admission:
    """Decides whether a waiting request has the blocks it needs, now and as far as can be foreseen.

    The knob is `admission_conservativeness`. At 0 the known tokens must fit now; nothing is foreseen. In between the
    predicted peak of blocks, over the remaining lives of all running requests and the candidate, must fit the pool;
    answers are guessed at that quantile of those seen. At 1 whatever all of them may come to hold must fit at one
    time, so that nobody is ever preempted for want of blocks.
    """

    def __init__(self, config: SchedulerConfig, manager: KVManager) -> None:
        self._manager = manager
        self._watermark = int(config.watermark * manager.num_blocks)
        self._conservativeness = config.admission_conservativeness
        self._lengths = OutputLengths(config.admission_conservativeness)
        self._outlook: Outlook | None = None
        self._refused: set[SchedulerRequest] = set()
        """By the forecast, on the strength of this outlook."""

    def learn(self, request: SchedulerRequest) -> int | None:
        """A request has ended by itself.

        Returns:
            By how many tokens its answer is longer than would have been foreseen for it; None: nothing is foreseen.
        """
        length = request.num_output_tokens
        foreseen = self._lengths.remaining(0, request.max_total_tokens - request.num_prompt_tokens)
        self._lengths.learn(length)
        return length - foreseen if 0 < self._conservativeness < 1 else None

    def blocks_came_back(self) -> None:
        """A running request ended or was preempted, or a load has ended: what was foreseen no longer holds."""
        self._outlook = None
        self._refused.clear()

    def somebody_starts(self, request: SchedulerRequest, hit: PrefixHit) -> None:
        """A request is about to run; those refused remain so."""
        if self._outlook is not None:
            self._outlook.lives.append(self._life_of_candidate(request, hit))

    def num_missing(self, request: SchedulerRequest, hit: PrefixHit, num_running: int) -> int:
        """Blocks by which a waiting request does not fit now; 0 or less: there is room for all its known tokens.

        All of them, although the next step may run only a first chunk: a request admitted on the strength of its first
        chunk would be preempted in the middle of its prompt. Nothing is reserved; running requests still compete.
        While others run some blocks stay free: the watermark, and when a preempted request comes back a block for each
        of the others, lest it falls again in the next steps.
        """
        reserve = self._watermark if num_running else 0
        if request.status is RequestStatus.PREEMPTED:
            reserve = max(reserve, num_running * len(self._manager.layout.groups))
        return self._manager.num_blocks_needed(hit, len(request.token_ids)) + reserve - self._manager.num_free_blocks

    def foresees_room(self, request: SchedulerRequest, hit: PrefixHit, running: RunningRequests) -> bool:
        """Whether the blocks will last for the running requests and this one, as far as can be foreseen.

        Always true while nothing runs: a request that fits the pool alone was not refused at arrival.
        """
        if self._conservativeness == 0 or len(running) == 0:
            return True
        if request in self._refused:
            return False
        if self._outlook is None:
            self._outlook = self._look_ahead(running)
        lives = [*self._outlook.lives, self._life_of_candidate(request, hit)]
        needed = reserved_blocks(lives) if self._conservativeness == 1 else peak_blocks(lives)
        if self._outlook.num_shared + needed <= self._manager.num_blocks:
            return True
        self._refused.add(request)
        return False

    def _look_ahead(self, running: RunningRequests) -> Outlook:
        num_private = [self._manager.num_private_blocks(request.blocks) for request in running]
        lives = [self._life(request, private) for request, private in zip(running, num_private, strict=True)]
        num_held = self._manager.num_blocks - self._manager.num_free_blocks
        return Outlook(lives, num_held - sum(num_private))

    def _life(self, request: SchedulerRequest, num_private: int) -> Life:
        num_shared = request.blocks.num_blocks - num_private
        num_known, remaining = len(request.token_ids), self._remaining(request)
        now = self._manager.blocks_per_request(num_known) - num_shared
        end = self._manager.blocks_per_request(num_known + remaining - 1) - num_shared  # the last token is never run
        return Life(remaining, now, end)

    def _life_of_candidate(self, request: SchedulerRequest, hit: PrefixHit) -> Life:
        num_known, remaining = len(request.token_ids), self._remaining(request)
        now = self._manager.num_blocks_needed(hit, num_known)
        return Life(remaining, now, self._manager.num_blocks_needed(hit, num_known + remaining - 1))

    def _remaining(self, request: SchedulerRequest) -> int:
        """Tokens that a request is expected to yield yet, at least 1."""
        at_most = request.max_remaining_tokens
        if self._conservativeness == 1:
            return at_most
        return self._lengths.remaining(request.num_output_tokens, at_most)


def refuse_shapes(request: GenerateRequest) -> None:
    """For engines that compile no grammars.

    Raises:
        InvalidRequestError: the answer is to be of a given shape.
    """
    spec = request.params.structured_outputs
    if spec is not None:
        raise InvalidRequestError(
            spec.field, spec.kind, "this engine has no tokenizer (skip_tokenizer_init), so it compiles no grammars"
        )


def refuse_what_never_fits(request: GenerateRequest, max_model_len: int, manager: KVManager) -> None:
    """Checks that the request could run in an empty engine.

    Raises:
        InvalidRequestError: naming `prompt` or `max_tokens`, with the arithmetic.
    """
    num_prompt = len(request.prompt_token_ids)
    if num_prompt == 0:
        raise InvalidRequestError("prompt", "0 tokens", "must hold at least one token")
    if request.pooling is not None:
        _refuse_longer_than_the_context(num_prompt, max_model_len)
    elif num_prompt >= max_model_len:
        raise InvalidRequestError(
            "prompt",
            f"{num_prompt} tokens",
            f"the prompt has {num_prompt} tokens and one more must be generated, but the longest prompt + output is "
            f"max_model_len={max_model_len} tokens; shorten the prompt to at most {max_model_len - 1} tokens",
        )
    _refuse_more_than_the_pool(request, max_total_tokens(request, max_model_len), manager)


def _refuse_longer_than_the_context(num_prompt: int, max_model_len: int) -> None:
    if num_prompt > max_model_len:
        raise InvalidRequestError(
            "prompt",
            f"{num_prompt} tokens",
            f"the prompt has {num_prompt} tokens, but the context holds max_model_len={max_model_len}; shorten it",
        )


def _refuse_more_than_the_pool(request: GenerateRequest, num_total: int, manager: KVManager) -> None:
    """The last token of a request is never run, so it needs blocks for one token less than it has."""
    needed = manager.blocks_per_request(num_total - 1)
    if needed <= manager.num_blocks:
        return
    num_prompt = len(request.prompt_token_ids)
    outputs = "" if request.pooling is not None else f" + {num_total - num_prompt} output"
    arithmetic = (
        f"{num_prompt} prompt{outputs} tokens need {needed} KV blocks of "
        f"{manager.layout.block_size} tokens in {len(manager.layout.groups)} cache group(s), but the whole KV memory "
        f"has {manager.num_blocks}"
    )
    fix = "shorten the request or give the engine more KV memory (kv_cache_memory_bytes)"
    if request.pooling is not None or manager.blocks_per_request(num_prompt) > manager.num_blocks:
        raise InvalidRequestError("prompt", f"{num_prompt} tokens", f"{arithmetic}; {fix}")
    raise InvalidRequestError("max_tokens", request.params.max_tokens, f"{arithmetic}; {fix}")
