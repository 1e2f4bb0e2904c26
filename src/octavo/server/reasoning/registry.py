"""Which family separates a model's reasoning: named by the user, or recognised in the chat template."""

from octavo.errors import ConfigError
from octavo.server.reasoning.family import ReasoningFamily
from octavo.server.reasoning.harmony import HarmonyReasoning
from octavo.server.reasoning.tagged import TaggedReasoning, TagPair

NO_REASONING = TaggedReasoning("none", pairs=(), marks=(), forced_end="")
"""All of the answer is content."""

FAMILIES: tuple[ReasoningFamily, ...] = (
    HarmonyReasoning(),
    TaggedReasoning(
        "gemma4",
        # The template of google/gemma-4 models: <|channel>thought ... <channel|>
        pairs=(TagPair(("<|channel>thought",), ("<channel|>",)),),
        marks=("<|channel>thought",),
        forced_end="<channel|>",
    ),
    TaggedReasoning(
        "mistral",
        # mistral-common, SpecialTokens.begin_think and end_think; optional in an answer
        pairs=(TagPair(("[THINK]",), ("[/THINK]",)),),
        marks=("[THINK]",),
        forced_end="[/THINK]",
    ),
    TaggedReasoning(
        "granite",
        # ibm-granite/granite-3.2-8b-instruct (phrases) and granite-3.3 (tags)
        pairs=(
            TagPair(
                ("Here is my thought process:", "Here's my thought process:"),
                ("Here is my response:", "Here's my response:"),
            ),
            TagPair(("<think>",), ("</think>",)),
        ),
        marks=("Here is my thought process:", "<response></response>"),
        forced_end="</think>\n<response>",
        wrapper=("<response>", "</response>"),
    ),
    TaggedReasoning(
        "deepseek_r1",
        # deepseek-ai/DeepSeek-R1 and V3.1, Qwen3, QwQ and many others; often the prompt ends with the opening tag
        pairs=(TagPair(("<think>",), ("</think>",)),),
        marks=("<think>", "</think>"),
        forced_end="\n</think>\n\n",
    ),
    NO_REASONING,
)
"""In the order in which they look at a template."""

ALIASES = {
    "deepseek_v3": "deepseek_r1",
    "glm45": "deepseek_r1",
    "qwen3": "deepseek_r1",
    "openai_gptoss": "harmony",
}
"""Names that vLLM has for the same format."""


def reasoning_family(name: str) -> ReasoningFamily:
    """The family of a name.

    Raises:
        ConfigError: there is none.
    """
    families = {family.name: family for family in FAMILIES}
    known = ALIASES.get(name, name)
    if known not in families:
        names = ", ".join(sorted({*families, *ALIASES}))
        raise ConfigError("reasoning_parser", name, f"known parsers are {names}")
    return families[known]


def recognised_reasoning(template: str) -> ReasoningFamily:
    """The family whose marks stand in a chat template; `none` if there are none."""
    return next((family for family in FAMILIES if family.recognises(template)), NO_REASONING)
