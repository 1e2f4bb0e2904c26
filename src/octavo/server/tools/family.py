"""What the registry holds: a way to write tool calls."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from octavo.server.tools.answer_events import AnswerEvents, MakeId
from octavo.server.tools.call_format import CallFormat
from octavo.server.tools.parser import ToolParser
from octavo.server.tools.reader import Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice


@runtime_checkable
class ToolFamily(Protocol):
    """One format of tool calls. Stateless: parsers hold the state."""

    @property
    def name(self) -> str:
        """As given to `--tool-call-parser`."""
        ...

    @property
    def id_length(self) -> int | None:
        """Call ids must be this many letters and digits, because the chat template insists; None: any text will do."""
        ...

    def recognises(self, template: str) -> bool:
        """Whether a model with this chat template writes calls so."""
        ...

    def parse(self, scan: Scan) -> Parsing[None]:
        """Reads a whole answer from the scan's reader and reports to its events. Must not raise."""
        ...

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """What a constrained answer must look like."""
        ...


def tool_parser(
    family: ToolFamily,
    tools: Sequence[Tool],
    *,
    parallel: bool = True,
    make_id: MakeId | None = None,
) -> ToolParser:
    """A parser for one answer without reasoning.

    Args:
        family: how the model writes calls.
        tools: what the request offers. Where no marker tells a call from other text, only these names do.
        parallel: False: calls after the first are dropped.
        make_id: gives each call its id.
    """
    return parser_into(AnswerEvents(make_id, max_calls=None if parallel else 1), family, tools)


def parser_into(events: AnswerEvents, family: ToolFamily, tools: Sequence[Tool]) -> ToolParser:
    """A parser that reports to given events."""
    scan = Scan(events, tools)
    return ToolParser(scan, family.parse(scan))
