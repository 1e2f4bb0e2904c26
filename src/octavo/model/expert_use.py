"""How many experts a step reads."""


def expected_experts(num_experts: int, num_active: int, num_tokens: float) -> float:
    """Distinct experts that meet at least one of so many tokens, each of which goes to `num_active` of them: expected
    over routings that are even and independent. An expert is idle if every token passes it by.

    Real routings are less even (docs/moe.md), so this is the most that a balanced router reads.
    """
    idle: float = (1 - num_active / num_experts) ** num_tokens
    return num_experts * (1 - idle)
