"""The family is named by the user or recognised in the chat template."""

from importlib.metadata import EntryPoint

import pytest

from octavo.errors import ConfigError
from octavo.server.tools import registry
from octavo.server.tools.families.hermes import Hermes
from octavo.server.tools.registry import FAMILIES, recognised_family, tool_family
from tests.text import golden

TEMPLATES = {
    "functiongemma": "{{ '<start_function_call>call:' + call.name }}<start_of_turn> tools",
    "gemma4": "{{- '<|tool_call>call:' + function['name'] + '{' -}} {{ '<|channel>thought' }} tools",
    "qwen3_coder": "tools <tool_call>\\n<function=example>\\n<parameter=one>\\n1\\n</parameter></function></tool_call>",
    "deepseek_v3": "tools {{ '<｜tool▁call▁begin｜>' + tool.type + '<｜tool▁sep｜>' + name + '\\n```json\\n' }}",
    "deepseek_v31": "tools {{ '<｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + arguments }}",
    "mistral": "tools {{ '[TOOL_CALLS]' + tool.function.name + '[ARGS]' + arguments }}",
    "mistral_list": "{{ '[AVAILABLE_TOOLS] [' }} tools {{ '[TOOL_CALLS] [' }}",
    "granite": "{%- set available_tools = tools %}<|start_of_role|>available_tools<|end_of_role|>",
    "hermes": '{%- for tool in tools %} <tool_call>\\n{"name": <function-name>}\\n</tool_call>',
    "pythonic": "tools <|header_start|>system<|header_end|>",
    "llama3_json": 'tools <|start_header_id|>assistant<|end_header_id|> \'{"name": ... "parameters": \'',
    "gemma": "{{ '<start_of_turn>' + role }} {{ tools | tojson }}",
    "harmony": "tools <|start|>assistant<|channel|>commentary<|message|>",
    "json": "{% if tools %}{{ tools | tojson }}{% endif %}",
}
"""The marks of each family's templates, in the order of a real one."""


def test_every_family_is_recognised_by_its_template() -> None:
    assert set(TEMPLATES) == {family.name for family in FAMILIES}
    for name, template in TEMPLATES.items():
        found = recognised_family(template)
        assert found is not None and found.name == name


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("tools <|start_header_id|> Use [func_name1(params_name1=params_value1), func_name2(params)]", "pythonic"),
        ('tools <|start_of_role|> <tool_call>\\n{"name": <function-name>}', "hermes"),
        ("{{ '<|python_tag|>' + call.name + '.call(' }}", "llama3_json"),
        ("{{ '<｜Assistant｜>' }}", None),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", None),
    ],
)
def test_further_templates(template: str, name: str | None) -> None:
    found = recognised_family(template)
    assert (None if found is None else found.name) == name


def test_templates_of_the_reference_data() -> None:
    templates = {row["template_name"]: row["template"] for row in golden.rows("chat_templates")}
    found = {name: recognised_family(template) for name, template in templates.items()}
    names = {name: family.name for name, family in found.items() if family is not None}
    assert names["qwen2"] == "hermes"
    assert "smollm2" not in names and "gemma3_style_own" not in names


@pytest.mark.parametrize("name", [*sorted(TEMPLATES), *registry.ALIASES])
def test_every_name_has_its_family(name: str) -> None:
    assert tool_family(name).name == registry.ALIASES.get(name, name)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"tool_call_parser='hermse'.*deepseek_v3.*hermes.*qwen3_coder.*octavo.tool_pa"
    ):
        tool_family("hermse")


class Shouting(Hermes):
    """A plug-in's family."""

    name = "shouting"


PLUGGED_IN = Shouting()
WRONG = object()


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch):
    """Makes a package's entry points appear as if installed."""

    def install(*values: str) -> None:
        points = [EntryPoint("shouting", value, registry.GROUP) for value in values]
        monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.GROUP else [])

    return install


def test_a_plug_in_brings_a_family(plug_in) -> None:
    plug_in(f"{__name__}:PLUGGED_IN")
    assert tool_family("shouting") is PLUGGED_IN
    assert tool_family("hermes").name == "hermes"
    with pytest.raises(ConfigError, match="shouting"):
        tool_family("whispering")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ((f"{__name__}:WRONG",), "is a object, no ToolFamily"),
        ((f"{__name__}:MISSING",), "cannot be loaded: AttributeError"),
        ((f"{__name__}:PLUGGED_IN", f"{__name__}:PLUGGED_IN"), "several packages"),
    ],
)
def test_a_plug_in_that_does_not_work_is_named(plug_in, values: tuple[str, ...], problem: str) -> None:
    plug_in(*values)
    with pytest.raises(ConfigError, match=problem):
        tool_family("shouting")
