"""Who gives up its blocks when a running request needs some and none are free.

Preemption is by recomputation: the victim loses its blocks, keeps its tokens and waits to be admitted again. Its full
blocks stay findable until they are reused, so that it often finds most of them when it comes back.

Under every rule there is a request that never falls while others run, and so gets on: the one admitted first, the most
urgent, or the one that arrived first.
"""

from collections.abc import Callable, Sequence

from octavo.errors import ConfigError
from octavo.kv.manager import KVManager
from octavo.scheduling.request_state import SchedulerRequest

ChooseVictim = Callable[[Sequence[SchedulerRequest], KVManager], SchedulerRequest]
"""Picks one of the candidates: running requests in admission order, at least one. The manager may be asked, not told.

Candidates are of one class of urgency, the least urgent that runs."""


def last_admitted(candidates: Sequence[SchedulerRequest], _: KVManager) -> SchedulerRequest:
    """The request admitted last: it has most probably got least work to lose, and the oldest always get on."""
    return candidates[-1]


def least_urgent(candidates: Sequence[SchedulerRequest], _: KVManager) -> SchedulerRequest:
    """The request with the worst (priority, arrival): larger numbers yield to smaller ones."""
    return max(candidates, key=lambda request: (request.request.priority, request.arrival_s, request.arrival_index))


def cheapest(candidates: Sequence[SchedulerRequest], manager: KVManager) -> SchedulerRequest:
    """The request with the fewest tokens to recompute per block that it frees; among equals the one admitted last.

    Blocks shared with others free nothing, and their tokens will be found again. Spared is the one that arrived first.
    """
    oldest = min(candidates, key=lambda request: request.arrival_index)
    others = [request for request in candidates if request is not oldest]
    return min(reversed(others), key=lambda request: _tokens_per_block(request, manager), default=oldest)


def _tokens_per_block(request: SchedulerRequest, manager: KVManager) -> float:
    num_private = manager.num_private_blocks(request.blocks)
    if num_private == 0:
        return float("inf")
    num_shared = (request.blocks.num_blocks - num_private) // len(manager.layout.groups)
    return max(0, request.num_computed - num_shared * manager.layout.block_size) / num_private


VICTIMS: dict[str, ChooseVictim] = {"last": last_admitted, "least_urgent": least_urgent, "cheapest": cheapest}
"""Rules that `preemption_victim` can name."""


def victim_rule(name: str, preferred: ChooseVictim) -> ChooseVictim:
    """The rule of this name; `auto` is the one that the policy prefers.

    Raises:
        ConfigError: listing the names there are.
    """
    rules = {"auto": preferred, **VICTIMS}
    if name not in rules:
        raise ConfigError("preemption_victim", name, f"known rules are {', '.join(sorted(rules))}")
    return rules[name]
