"""What the server needs of an engine: the contract between HTTP and generation. `AsyncLLM` fulfils it; tests bring
a deterministic stand-in."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from octavo.engine.embedding import EmbeddingOutput
from octavo.engine.output import EngineInfo, GenerationDelta
from octavo.engine.traces import Trace
from octavo.request.control import EngineLoad
from octavo.request.ledger import RequestLedger
from octavo.request.orders import PauseMode, RecordLimits
from octavo.request.params import SamplingParams
from octavo.request.pin import PinRequest, SessionState
from octavo.request.pooling import PoolingParams


class TextCodec(Protocol):
    """The tokenizer, as far as the server looks into it."""

    def encode(self, text: str, *, add_special: bool, parse_special: bool = False) -> list[int]:
        """Token ids of a text; `parse_special` reads the spelling of special tokens as those tokens."""
        ...

    def least_tokens(self, text: str) -> int:
        """A number of tokens that a text certainly has; costs next to nothing."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of token ids."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token spells; they may be a part of a UTF-8 character."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a control token, which `skip_special` leaves out of the text."""
        ...


class ChatTemplateSource(Protocol):
    """The chat template, as far as the server looks into it: it tells how the model writes calls and reasoning."""

    @property
    def source(self) -> str:
        """Its text."""
        ...


class ServingEngine(Protocol):
    """One loaded model that generates."""

    @property
    def info(self) -> EngineInfo:
        """Facts fixed after start."""
        ...

    @property
    def tokenizer(self) -> TextCodec | None:
        """None: token ids in, token ids out."""
        ...

    @property
    def template(self) -> ChatTemplateSource | None:
        """None: the model has no chat template, so it cannot chat."""
        ...

    @property
    def alive(self) -> bool:
        """False once the engine core is gone."""
        ...

    def generate(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        cache_salt: str | None = None,
        session: PinRequest | None = None,
        group: str = "",
        alias: str = "",
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Streams one prompt's choices, interleaved where n > 1. Closing the iterator aborts.

        Args:
            group: the API request that the prompt is a part of; empty: its own.
            alias: another name of that.

        Raises:
            InvalidRequestError: at once, from the call itself.
            QueueFullError, EngineDrainingError, PinBudgetError, EngineDeadError: from the iterator.
        """
        ...

    async def abort_named(self, names: Sequence[str], *, tenant: str = "") -> list[str]:
        """Ends API requests of a tenant, by group or alias; returns the groups that were live."""
        ...

    def note_delivery(self, group: str, *, tenant: str = "") -> None:
        """All of the answer of an API request has left, now. Nothing waits for it; one that is unknown is ignored."""
        ...

    async def ledger(self, name: str, *, tenant: str = "") -> RequestLedger | None:
        """The ledger of an API request of a tenant, by group or alias; None: there is none."""
        ...

    async def live_requests(self) -> list[RequestLedger]:
        """Those of all tenants that have not ended."""
        ...

    async def pause(self, mode: PauseMode) -> int:
        """Begins a pause; returns how many sequences it has ended."""
        ...

    async def settled(self, timeout_s: float | None = None) -> bool:
        """Waits during a pause until what still runs has ended; False: not in time."""
        ...

    async def drain(self, timeout_s: float) -> int:
        """Takes no more requests, waits for those there, aborts those that are late; returns how many these were."""
        ...

    async def resume(self) -> None:
        """Ends a pause or a drain."""
        ...

    async def reset_prefix_cache(self) -> bool:
        """Forgets cached prefixes; False, and nothing done, while requests hold blocks."""
        ...

    async def profile(self, *, max_steps: int | None, max_seconds: float, max_events: int) -> Trace:
        """Records what the engine does until the first limit. Cancelling ends it.

        Raises:
            ProfileError: there is a profile, or somebody has stopped this one.
            InvalidRequestError: a limit that cannot be.
        """
        ...

    async def start_profile(self, *, max_steps: int | None, max_seconds: float | None, max_events: int) -> int:
        """Begins to record; returns the profile's number.

        Raises:
            ProfileError, InvalidRequestError: as `profile`.
        """
        ...

    async def stop_profile(self) -> Trace:
        """Ends whichever profile there is.

        Raises:
            ProfileError: there is none.
        """
        ...

    async def embed(
        self,
        prompt: str | Sequence[int],
        params: PoolingParams,
        *,
        request_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        cache_salt: str | None = None,
        group: str = "",
        alias: str = "",
    ) -> EmbeddingOutput:
        """Makes a vector of a prompt. Cancelling aborts.

        Raises:
            InvalidRequestError, QueueFullError, EngineDeadError: it was not taken, or the engine is gone.
        """
        ...

    async def pin(
        self, prompt: Sequence[int], session: PinRequest, *, tenant: str = "", cache_salt: str | None = None
    ) -> SessionState:
        """Computes a prompt and has a session of the tenant hold it.

        Raises:
            InvalidRequestError, PinBudgetError: it cannot be held, ever or now.
        """
        ...

    async def open_session(self, session: PinRequest, *, tenant: str = "") -> SessionState:
        """Opens a session that holds nothing yet.

        Raises:
            InvalidRequestError, PinBudgetError: as `pin`.
        """
        ...

    async def session(self, session_id: str, *, tenant: str = "") -> SessionState:
        """A session of the tenant.

        Raises:
            SessionNotFoundError: there is none.
        """
        ...

    async def sessions(self, *, tenant: str = "") -> list[SessionState]:
        """All of the tenant."""
        ...

    async def extend_session(self, session: PinRequest, *, tenant: str = "") -> SessionState:
        """Begins a lease anew.

        Raises:
            SessionNotFoundError: there is none.
        """
        ...

    async def end_session(self, session_id: str, *, tenant: str = "") -> bool:
        """False if there is none."""
        ...

    async def put_record(self, name: str, content: bytes, limits: RecordLimits, *, tenant: str = "") -> bool:
        """Keeps some bytes for a tenant, where every process of this engine finds them; False if they are more than may
        be kept."""
        ...

    async def record(self, name: str, *, tenant: str = "") -> bytes | None:
        """What was kept for the tenant under a name; None if it was never, or is no more."""
        ...

    async def remove_record(self, name: str, *, tenant: str = "") -> bool:
        """Lets go of it; False if there is none."""
        ...

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation under the model's chat template, or under another `template`. With
        `continue_final_message` they end where the text of the last message does.

        Raises:
            InvalidRequestError: the template refuses the messages.
        """
        ...

    async def load(self) -> EngineLoad:
        """How busy the engine is, between two steps."""
        ...

    def newest_load(self) -> EngineLoad:
        """How busy the engine was when it last began a step or came to rest; without waiting for it.

        Raises:
            EngineDeadError: it is gone.
        """
        ...

    async def wait_dead(self) -> str:
        """Returns the reason when the engine core dies of itself."""
        ...
