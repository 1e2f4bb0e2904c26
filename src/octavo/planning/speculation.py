"""Speculation: what drafts cost a step, and what they must bring."""


def step_tokens(num_requests: int, num_drafts: int) -> int:
    """To verify: a request's next token and its drafts."""
    return num_requests * (1 + num_drafts)


def num_steps(output_tokens: int, tokens_per_step: float) -> float:
    """To get so many tokens, if each step yields so many (accepted drafts and one more)."""
    return output_tokens / tokens_per_step


def implied_step_s(total_s: float, steps: float) -> float:
    """Of so many equal steps in a known time."""
    return total_s / steps


def tpot_s(step_s: float, tokens_per_step: float) -> float:
    """A step's time is shared by the tokens that it yields."""
    return step_s / tokens_per_step


def speed_up(plain_s: float, speculative_s: float) -> float:
    """Of the same tokens."""
    return plain_s / speculative_s


def step_ratio(speculative_step_s: float, plain_step_s: float) -> float:
    """How much longer a step with drafts takes."""
    return speculative_step_s / plain_step_s


def throughput_factor(tokens_per_step: float, step_time_ratio: float) -> float:
    """Output tokens per second, over those without drafts."""
    return tokens_per_step / step_time_ratio


def break_even_tokens_per_step(step_time_ratio: float, draft_share: float = 0.0) -> float:
    """Tokens that a step must yield for drafts to pay.

    Args:
        draft_share: time of drafting, in plain steps.
    """
    return step_time_ratio + draft_share


def num_free_drafts(num_requests: int, boundary_tokens: float) -> int:
    """Drafts per request that keep a step below the boundary where linears are bound by arithmetic: so far they cost
    little, as the weights are read anyway."""
    return max(0, int(boundary_tokens // num_requests) - 1)


def draft_kv_share(draft_token_bytes: float, target_token_bytes: float) -> float:
    """KV of a draft model beside that of the model it drafts for."""
    return draft_token_bytes / target_token_bytes
