"""Token counts as clients see them."""

from collections.abc import Sequence
from typing import Any

from octavo.server.conversation.pieces import PromptWriter


def usage(prompts: Sequence[PromptWriter]) -> dict[str, Any]:
    """Counts so far: each prompt once, the answers of all choices, prompt tokens that the prefix cache served, and how
    much of the answers is reasoning."""
    prompt_tokens = sum(len(writer.prompt.token_ids) for writer in prompts)
    completion_tokens = sum(writer.num_output_tokens for writer in prompts)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(writer.num_cached_tokens for writer in prompts)},
        "completion_tokens_details": {"reasoning_tokens": sum(writer.num_reasoning_tokens for writer in prompts)},
    }
