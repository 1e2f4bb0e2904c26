"""Which family reads a model's calls: named by the user, or recognised in the chat template."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from octavo.errors import ConfigError
from octavo.server.tools.families.deepseek import DeepSeekV3, DeepSeekV31
from octavo.server.tools.families.delimited_gemma import DelimitedGemma
from octavo.server.tools.families.gemma import Gemma
from octavo.server.tools.families.granite import Granite
from octavo.server.tools.families.harmony import Harmony
from octavo.server.tools.families.hermes import Hermes
from octavo.server.tools.families.json_fallback import JsonFallback
from octavo.server.tools.families.llama3_json import Llama3Json
from octavo.server.tools.families.mistral import Mistral, MistralList
from octavo.server.tools.families.pythonic import Pythonic
from octavo.server.tools.families.qwen3_coder import Qwen3Coder
from octavo.server.tools.family import ToolFamily

GROUP = "octavo.tool_parsers"
"""Entry points of other packages: the name is the family's, the object a ToolFamily."""

FAMILIES: tuple[ToolFamily, ...] = (
    Harmony(),
    DelimitedGemma("functiongemma", "<start_function_call>", "<end_function_call>", "<escape>"),
    DelimitedGemma("gemma4", "<|tool_call>", "<tool_call|>", '<|"|>'),
    Qwen3Coder(),
    DeepSeekV3(),
    DeepSeekV31(),
    MistralList(),
    Mistral(),
    Granite(),
    Hermes(),
    Pythonic(),
    Llama3Json(),
    Gemma(),
    JsonFallback(),
)
"""In the order in which they look at a template: the one whose marks are rarest first."""

ALIASES = {
    "qwen3_xml": "qwen3_coder",
    "llama4_pythonic": "pythonic",
    "llama4_json": "llama3_json",
    "granite4": "hermes",
    "deepseek_r1": "deepseek_v3",
    "openai": "harmony",
}
"""Names that vLLM has for the same format."""


def tool_family(name: str) -> ToolFamily:
    """The family of a name: a built-in one, or else a plug-in's. No plug-in is loaded but that one.

    Raises:
        ConfigError: there is none of this name, several packages bring one, or it cannot be loaded.
    """
    built_in = {family.name: family for family in FAMILIES}
    known = ALIASES.get(name, name)
    return built_in[known] if known in built_in else _plug_in(name, entry_points(group=GROUP))


def recognised_family(template: str) -> ToolFamily | None:
    """The family whose marks stand in a chat template; None if the template has no place for tools. Plug-ins are not
    asked: they are chosen by name."""
    return next((family for family in FAMILIES if family.recognises(template)), None)


def _plug_in(name: str, found: Iterable[EntryPoint]) -> ToolFamily:
    points = list(found)
    offers = [point for point in points if point.name == name]
    if not offers:
        known = ", ".join(sorted({family.name for family in FAMILIES} | {*ALIASES} | {p.name for p in points}))
        problem = f"known parsers are {known}; packages can bring others as entry points of {GROUP!r}"
        raise ConfigError("tool_call_parser", name, problem)
    if len(offers) > 1:
        raise ConfigError("tool_call_parser", name, "several packages bring a parser of this name")
    return _loaded(offers[0])


def _loaded(point: EntryPoint) -> ToolFamily:
    try:
        family = point.load()
    except Exception as error:
        problem = f"{point.value} cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigError("tool_call_parser", point.name, problem) from error
    if not isinstance(family, ToolFamily):
        raise ConfigError("tool_call_parser", point.name, f"{point.value} is a {type(family).__name__}, no ToolFamily")
    return family
