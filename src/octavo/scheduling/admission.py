"""Who may start: what is refused at arrival, and what a waiting request needs to be admitted."""

from octavo.errors import InvalidRequestError
from octavo.kv.manager import KVManager, PrefixHit
from octavo.request.request import GenerateRequest
from octavo.scheduling.request_state import max_total_tokens


def refuse_what_never_fits(request: GenerateRequest, max_model_len: int, manager: KVManager) -> None:
    """Checks that the request could run in an empty engine.

    Raises:
        InvalidRequestError: naming `prompt` or `max_tokens`, with the arithmetic.
    """
    num_prompt = len(request.prompt_token_ids)
    if num_prompt == 0:
        raise InvalidRequestError("prompt", "0 tokens", "must hold at least one token")
    if num_prompt >= max_model_len:
        raise InvalidRequestError(
            "prompt",
            f"{num_prompt} tokens",
            f"the prompt has {num_prompt} tokens and one more must be generated, but the longest prompt + output is "
            f"max_model_len={max_model_len} tokens; shorten the prompt to at most {max_model_len - 1} tokens",
        )
    _refuse_more_than_the_pool(request, max_total_tokens(request, max_model_len), manager)


def _refuse_more_than_the_pool(request: GenerateRequest, num_total: int, manager: KVManager) -> None:
    """The last token of a request is never run, so it needs blocks for one token less than it has."""
    needed = manager.blocks_per_request(num_total - 1)
    if needed <= manager.num_blocks:
        return
    num_prompt = len(request.prompt_token_ids)
    arithmetic = (
        f"{num_prompt} prompt + {num_total - num_prompt} output tokens need {needed} KV blocks of "
        f"{manager.layout.block_size} tokens in {len(manager.layout.groups)} cache group(s), but the whole KV memory "
        f"has {manager.num_blocks}"
    )
    fix = "shorten the request or give the engine more KV memory (kv_cache_memory_bytes)"
    if manager.blocks_per_request(num_prompt) > manager.num_blocks:
        raise InvalidRequestError("prompt", f"{num_prompt} tokens", f"{arithmetic}; {fix}")
    raise InvalidRequestError("max_tokens", request.params.max_tokens, f"{arithmetic}; {fix}")


def watermark_blocks(share: float, manager: KVManager) -> int:
    """Blocks that an admission leaves free while other requests run."""
    return int(share * manager.num_blocks)


def has_room(manager: KVManager, hit: PrefixHit, num_tokens: int, reserve: int) -> bool:
    """Whether all known tokens of a waiting request would fit now, with `reserve` blocks left.

    All of them, although the next step may run only a first chunk: a request admitted on the strength of its first
    chunk would be preempted in the middle of its prompt. Nothing is reserved; running requests still compete.
    """
    return manager.num_blocks_needed(hit, num_tokens) + reserve <= manager.num_free_blocks
