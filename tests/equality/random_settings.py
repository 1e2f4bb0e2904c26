"""Settings drawn from all combinations: what goes wrong only together is not found one by one."""

import random
from collections.abc import Iterator, Sequence

from octavo._native import available_isas
from tests.equality.settings import Again, Crowd, Setting
from tests.equality.workload import in_order, reverse, shuffled

CHOICES: dict[str, Sequence[object]] = {
    "max_num_batched_tokens": (5, 16, 33, 64, 200, 2048),
    "max_num_seqs": (1, 2, 5, 64),
    "long_prefill_token_threshold": (0, 0, 3, 50),
    "enable_prefix_caching": (True, True, False),
    "sub_block_match": (True, True, False),
    "block_size": (1, 2, 4, 8, 16, 32, 64),
    "threads": (1, 2, 3),
    "isa": ("auto", "auto", "auto", *available_isas()),
    "watermark": (0.0, 0.1),
    "scheduling_policy": ("fcfs", "fcfs", "priority", "prefix"),
    "preemption_victim": ("auto", "last", "least_urgent", "cheapest"),
    "admission_conservativeness": (0.0, 0.7, 1.0),
    "max_bypasses": (0, 1, 16),
    "fair_share": (False, False, True),
    "async_scheduling": (False, True),
}


def random_settings(seed: str, count: int) -> Iterator[Setting]:
    """So many settings; the same for the same seed on processors of one kind."""
    chance = random.Random(seed)
    for _ in range(count):
        fields = {name: chance.choice(values) for name, values in CHOICES.items()}
        if fields["enable_prefix_caching"] and chance.random() < 0.4:
            fields["kv_host_memory_bytes"] = 64 * 2**20
        order = chance.choice((in_order, reverse, shuffled))
        yield Again(fields, order=order) if chance.random() < 0.3 else Crowd(fields, order=order)
