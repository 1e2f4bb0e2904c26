"""The request as it crosses from client to engine core."""

import msgspec

from octavo.request.params import SamplingParams
from octavo.request.pin import PinRequest
from octavo.request.pooling import PoolingParams


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sequence to generate (a request with n > 1 is split by the client into n of these)."""

    request_id: str
    """Unique among live requests of the engine."""
    prompt_token_ids: list[int]
    params: SamplingParams
    """n == 1, seed always a number, max_tokens always a number that fits the context."""
    eos_token_ids: tuple[int, ...] = ()
    """The model's end-of-sequence ids; empty under ignore_eos."""
    tenant: str = ""
    """Whose request this is (a digest of the API key); fairness and visibility follow it."""
    arrival_s: float = 0.0
    """Clock of the engine core at arrival, seconds; set by the core, an argument in tests and simulation."""
    priority: int = 0
    """Lower runs first under the `priority` policy."""
    cache_salt: str | None = None
    """Requests share cached prefixes only with requests of equal salt."""
    pin: PinRequest | None = None
    """The session that it belongs to."""
    received_s: float | None = None
    """When the API request came, on the clock that all processes of the machine share; None: nobody says."""
    sent_s: float | None = None
    """When this was sent to the engine core; None: nobody says."""
    group: str = ""
    """Id of the API request that it is a part of; empty: its own."""
    alias: str = ""
    """A name that the client gave the API request, if it did."""
    pooling: PoolingParams | None = None
    """Set: the answer is a vector of the prompt, and no token; `params` is then `NOTHING_SAMPLED`."""
