"""What each family's calls look like, well written and badly, and what comes of them."""

import pytest

from octavo.server.tools.tool import Tool
from tests.server.tools.answers import ADD, Answer, Call, parsed

OSLO = '{"city": "Oslo"}'


def call(name: str, arguments: str = "{}", complete: bool = True) -> Call:
    return Call(name, arguments, complete)


def check(family: str, text: str, calls: list[Call], content: str) -> None:
    for pieces in ([text], list(text), [text[at : at + 7] for at in range(0, len(text), 7)]):
        assert parsed(family, pieces) == Answer(content=content, calls=calls)


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ('<tool_call>{"name":"now","arguments":{}}</tool_call>', [call("now")], ""),
        # white space between text and calls is layout; text may stand before, between and after
        (
            'Hm.\n\n<tool_call>\n{"name": "now"}\n</tool_call>\n and \n<tool_call>{"name": "now"}</tool_call>\nDone.',
            [call("now"), call("now")],
            "Hm.\n and\nDone.",
        ),
        # arguments as text, null, missing, in front of the name; names that nobody offered
        ('<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', [call("add", '{"a": 1}')], ""),
        ('<tool_call>{"name": "add", "arguments": ""}</tool_call>', [call("add")], ""),
        ('<tool_call>{"name": "add", "arguments": null}</tool_call>', [call("add")], ""),
        ('<tool_call>{"name": "add"}</tool_call>', [call("add")], ""),
        ('<tool_call>{"arguments": {"a": [1]}, "name": "add"}</tool_call>', [call("add", '{"a": [1]}')], ""),
        ('<tool_call>{"name": "größe/v1:😀 x"}</tool_call>', [call("größe/v1:😀 x")], ""),
        ('<tool_call>{"name": "gr\\u00f6\\u00dfe"}</tool_call>', [call("größe")], ""),
        # the shapes of OpenAI's API, and of models that mix it in
        (
            '<tool_call>{"id": "x", "type": "function", "function": {"name": "add", "arguments": "{}"}}</tool_call>',
            [call("add")],
            "",
        ),
        ('<tool_call>{"type": "function", "function": "add", "arguments": {}}</tool_call>', [call("add")], ""),
        ('<tool_call>[{"name": "add"}, {"name": "now"}]</tool_call>', [call("add"), call("now")], ""),
        ('<tool_call>{"name": "add"}\n{"name": "now"}</tool_call>', [call("add"), call("now")], ""),
        # arguments stay as they were written: spacing, escapes, numbers, key order, duplicates
        (
            '<tool_call>{"name": "add", "arguments": {"b" :1.0,  "a":\n1E5,"u":"\\u00e9","b":-0}}</tool_call>',
            [call("add", '{"b" :1.0,  "a":\n1E5,"u":"\\u00e9","b":-0}')],
            "",
        ),
        # braces, markers, quotes and control characters inside strings
        (
            '<tool_call>{"name": "sh", "arguments": {"cmd": "mkdir -p test/{test1,test2"}}</tool_call>',
            [call("sh", '{"cmd": "mkdir -p test/{test1,test2"}')],
            "",
        ),
        (
            '<tool_call>{"name": "sh", "arguments": {"cmd": "</tool_call><tool_call>{\\"\\u0000\\" 😀"}}</tool_call>',
            [call("sh", '{"cmd": "</tool_call><tool_call>{\\"\\u0000\\" 😀"}')],
            "",
        ),
        ('<tool_call>{"name": "py", "arguments": {"code": "a\n\tb"}}', [call("py", '{"code": "a\\n\\tb"}')], ""),
        # no closing tag
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}', [call("add", '{"a": 1}')], ""),
        # no call: content, to the letter
        ("<tool_call>", [], "<tool_call>"),
        ("<tool_call>\nI will not.\n</tool_call>\n", [], "<tool_call>\nI will not.\n</tool_call>\n"),
        ("<tool_call>[]</tool_call>", [], "<tool_call>[]</tool_call>"),
        ('<tool_call>{"name": ""}</tool_call>', [], '<tool_call>{"name": ""}</tool_call>'),
        ('<tool_call>{"name": 5, "arguments": {}}', [], '<tool_call>{"name": 5, "arguments": {}}'),
        ('<tool_call>{"name": "add", "arguments": [1]}', [], '<tool_call>{"name": "add", "arguments": [1]}'),
        ('<tool_call>{"name": "add", "arguments": "Oslo"}', [], '<tool_call>{"name": "add", "arguments": "Oslo"}'),
        ('<tool_call>{"name": "add", "city": "Oslo"}', [], '<tool_call>{"name": "add", "city": "Oslo"}'),
        ('<tool_call>{"name": "\\ud800", "arguments": {}}', [], '<tool_call>{"name": "\\ud800", "arguments": {}}'),
        ("<tool_cal>", [], "<tool_cal>"),
        # a bad call does not take a good one with it
        (
            '<tool_call>{name: x}</tool_call>\n<tool_call>{"name": "now"}</tool_call>',
            [call("now")],
            "<tool_call>{name: x}</tool_call>",
        ),
        # cut off: before the arguments it was no call yet, inside them it is an unfinished one
        ('Well.\n<tool_call>\n{"name": "get_w', [], 'Well.\n<tool_call>\n{"name": "get_w'),
        ('<tool_call>{"name": "add", "arguments": {"a": "1', [call("add", '{"a": "1', complete=False)], ""),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}', [call("add", '{"a": 1}')], ""),
        # lost the thread inside the arguments: what was written from there on is content
        (
            '<tool_call>{"name": "add", "arguments": {"a": 1, oops}}</tool_call>',
            [call("add", '{"a": 1, ', complete=False)],
            "oops}}</tool_call>",
        ),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}} and so', [call("add", '{"a": 1}')], "and so"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}, x', [call("add", '{"a": 1}')], ", x"),
        # bare, as Qwen2.5-Coder answers to the same template
        ('{"name": "get_weather", "arguments": {"city": "Oslo"}}', [call("get_weather", OSLO)], ""),
        (
            '```json\n{\n  "name": "get_weather",\n  "arguments": {"city": "Oslo"}\n}\n```',
            [call("get_weather", OSLO)],
            "",
        ),
        (
            '```json\n{"name": "now"}\n```\n```json\n{"name": "add", "arguments": {"a": 1}}\n```\nThere.',
            [call("now"), call("add", '{"a": 1}')],
            "There.",
        ),
        ('{"name": "get_rich", "arguments": {}}', [], '{"name": "get_rich", "arguments": {}}'),
        ('{"name": "add", "age": 5, "arguments": {}}', [], '{"name": "add", "age": 5, "arguments": {}}'),
        ('See {"name": "add", "arguments": {}}', [], 'See {"name": "add", "arguments": {}}'),
        ('Such as:\n```json\n{"name": "now"}\n```', [], 'Such as:\n```json\n{"name": "now"}\n```'),
        ('```json\n{"city": "Oslo"}\n```', [], '```json\n{"city": "Oslo"}\n```'),
        ("  \n Hello \n", [], "  \n Hello \n"),
        ("", [], ""),
    ],
)
def test_hermes(text: str, calls: list[Call], content: str) -> None:
    check("hermes", text, calls, content)


@pytest.mark.parametrize(
    ("family", "text", "calls", "content"),
    [
        ("llama3_json", '{"name": "add", "parameters": {"a": 1}}', [call("add", '{"a": 1}')], ""),
        (
            "llama3_json",
            '{"name": "add", "parameters": {"a": 1}}; {"name": "now", "parameters": {}}',
            [call("add", '{"a": 1}'), call("now")],
            "",
        ),
        ("llama3_json", '<|python_tag|>{"type": "function", "name": "x", "parameters": {}}', [call("x")], ""),
        ("llama3_json", '[{"name": "add", "parameters": {}},{"name": "now"}]', [call("add"), call("now")], ""),
        ("llama3_json", '<|python_tag|>print("hi")', [], '<|python_tag|>print("hi")'),
        ("llama3_json", '{"name": "Ada", "parameters": {}}', [], '{"name": "Ada", "parameters": {}}'),
        ("json", '[{"name": "add", "arguments": {"a": 1}}]', [call("add", '{"a": 1}')], ""),
        ("json", '<tool_call>{"name": "add"}</tool_call>', [call("add")], ""),
        ("json", '<tool_call>{"name": "sub"}</tool_call>', [], '<tool_call>{"name": "sub"}</tool_call>'),
        ("granite", '<|tool_call|>[{"name": "add", "arguments": {}}]', [call("add")], ""),
        ("granite", '<tool_call>[{"name": "add"}, {"name": "x"}]', [call("add"), call("x")], ""),
        ("granite", '<tool_call>\n{"name": "add"}\n</tool_call>', [call("add")], ""),
        ("granite", '<|tool_call|>[{"name": "add"}]<|/tool_call|>', [call("add")], ""),
        ("granite", '<|tool_call|>[{"name": "add"}, oops', [call("add")], ", oops"),
        (
            "mistral",
            '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "a1b2c3d4e"}]',
            [call("add", '{"a": 1}')],
            "",
        ),
        ("mistral", "[TOOL_CALLS]add{}[TOOL_CALLS]now[ARGS]{}", [call("add"), call("now")], ""),
        ("mistral", '[TOOL_CALLS]ns.add-1[CALL_ID]abcdefghi[ARGS]{"a": 1}', [call("ns.add-1", '{"a": 1}')], ""),
        ("mistral", "Yes.[TOOL_CALLS]add[ARGS] {}", [call("add")], "Yes."),
        ("mistral", "[TOOL_CALLS]the tool", [], "[TOOL_CALLS]the tool"),
        ("mistral", "[TOOL_CALLS]add[ARGS]", [], "[TOOL_CALLS]add[ARGS]"),
        ("mistral", "[TOOL_CALLS]" + "x" * 300 + "{}", [], "[TOOL_CALLS]" + "x" * 300 + "{}"),
        ("mistral", "an [array] of [TOOL] [TOOL_CALL", [], "an [array] of [TOOL] [TOOL_CALL"),
        (
            "deepseek_v3",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{}\n```<｜tool▁call▁end｜> ok",
            [call("add")],
            "ok",
        ),
        ("deepseek_v3", "<｜tool▁calls▁begin｜>none", [], "<｜tool▁calls▁begin｜>none"),
        ("deepseek_v31", "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{}", [call("add")], ""),
        ("deepseek_v31", "<｜tool▁call▁begin｜>add<｜tool▁sep｜>[]", [], "<｜tool▁call▁begin｜>add<｜tool▁sep｜>[]"),
        ("pythonic", '[get_weather(city="Oslo")]', [call("get_weather", OSLO)], ""),
        ("pythonic", "[now(), add(a=1, b=-2)]", [call("now"), call("add", '{"a": 1, "b": -2}')], ""),
        ("pythonic", "<|python_start|>[any.thing(x=None)]<|python_end|>", [call("any.thing", '{"x": null}')], ""),
        (
            "pythonic",
            "[add(x={'a': [True, 1.5], 'b': ('c', \"d'\\n\")},)]",
            [call("add", '{"x": {"a": [true, 1.5], "b": ["c", "d\'\\n"]}}')],
            "",
        ),
        ("pythonic", '<|python_start|>{"name": "add", "parameters": {}}<|python_end|>', [call("add")], ""),
        ("pythonic", "[1](http://x.y) [add(a=1)]", [], "[1](http://x.y) [add(a=1)]"),
        ("pythonic", "[add(1, 2)]", [], "[add(1, 2)]"),
        ("pythonic", "[add(a=f())]", [call("add", '{"a": ', complete=False)], "f())]"),
        ("pythonic", "[add(a=1 b=2)]", [call("add", '{"a": 1', complete=False)], "b=2)]"),
        ("pythonic", '[add(a="x', [call("add", '{"a": "x', complete=False)], ""),
        ("pythonic", "[add(a=Tru", [call("add", '{"a": ', complete=False)], ""),
        ("pythonic", "[add(a=__import__('os'))]", [call("add", '{"a": ', complete=False)], "__import__('os'))]"),
        ("gemma", "```tool_code\nprint(add(a=1))\nnow()\n```\n", [call("add", '{"a": 1}'), call("now")], ""),
        ("gemma", "```tool_code\n[now(), add(a=1)]\n```", [call("now"), call("add", '{"a": 1}')], ""),
        ("gemma", "[add(a=1)]", [call("add", '{"a": 1}')], ""),
        ("gemma", '{"name": "add", "parameters": {"a": 1}}', [call("add", '{"a": 1}')], ""),
        ("gemma", '```json\n{"name": "add", "parameters": {"a": 1}}\n```', [call("add", '{"a": 1}')], ""),
        ("gemma", "```tool_code\nimport os\n```", [], "```tool_code\nimport os\n```"),
        ("gemma", "```python\nadd(a=1)\n```", [], "```python\nadd(a=1)\n```"),
        (
            "functiongemma",
            "<start_function_call>call:add{a:1,s:<escape>{\"x\": '}'},\n<escape>,l:[<escape>a<escape>,{k:null}]}",
            [call("add", '{"a": 1, "s": "{\\"x\\": \'}\'},\\n", "l": ["a", {"k": null}]}')],
            "",
        ),
        ("functiongemma", "<start_function_call>call:now{}<end_function_call>", [call("now")], ""),
        ("functiongemma", "<start_function_call>call:add{a:one two}", [call("add", '{"a": "one two"}')], ""),
        ("functiongemma", "<start_function_call>response", [], "<start_function_call>response"),
        (
            "gemma4",
            '<|tool_call>call:add{a:{<|"|>k<|"|>:[1,2.5e3]}}<tool_call|>',
            [call("add", '{"a": {"k": [1, 2.5e3]}}')],
            "",
        ),
        ("harmony", '<|channel|>commentary to=functions.add<|message|>{"a": 1}<|call|>', [call("add", '{"a": 1}')], ""),
        (
            "harmony",
            "<|channel|>commentary to=python<|message|>1+1",
            [],
            "<|channel|>commentary to=python<|message|>1+1",
        ),
    ],
)
def test_family(family: str, text: str, calls: list[Call], content: str) -> None:
    check(family, text, calls, content)


def coder(parameters: str) -> str:
    return f"<tool_call>\n<function=get_weather>\n{parameters}</function>\n</tool_call>"


def parameter(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


@pytest.mark.parametrize(
    ("key", "value", "argument"),
    [
        ("city", "Oslo", '"Oslo"'),
        ("city", "", '""'),
        (
            "city",
            '\n two lines,\n\none empty, and a "quote" \\ \n',
            '"\\n two lines,\\n\\none empty, and a \\"quote\\" \\\\ \\n"',
        ),
        ("city", "5", '"5"'),
        ("city", "<b>{not} [json]</b> </param>", '"<b>{not} [json]</b> </param>"'),
        ("days", " 3 ", "3"),
        ("days", "three", '"three"'),
        ("days", "3.0", "3.0"),
        ("exact", "True", "true"),
        ("exact", "false", "false"),
        ("exact", "5", '"5"'),
        ("where", '{"x":  [1, 2]}', '{"x":  [1, 2]}'),
        ("where", "{'x': 1}", "\"{'x': 1}\""),
        ("tags", '["a",\n"b"]', '["a",\n"b"]'),
        ("unit", "c", '"c"'),
        ("zip", "null", "null"),
        ("zip", "0150", '"0150"'),
        ("any", "[1]", "[1]"),
        ("any", "text", '"text"'),
        ("undeclared", "5", '"5"'),
    ],
)
def test_qwen3_coder_types_arguments_by_schema(key: str, value: str, argument: str) -> None:
    check("qwen3_coder", coder(parameter(key, value)), [call("get_weather", f'{{"{key}": {argument}}}')], "")


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        (coder(""), [call("get_weather")], ""),
        (
            coder(parameter("city", "Oslo") + parameter("days", "3")),
            [call("get_weather", '{"city": "Oslo", "days": 3}')],
            "",
        ),
        ("Hm.\n" + coder("") + "\n" + coder(""), [call("get_weather"), call("get_weather")], "Hm."),
        # what models leave out: the outer tag, the end of a parameter, the end of the function; quoted names
        ("<function=now>\n</function>", [call("now")], ""),
        (
            "<function=add>\n<parameter=a>\n1\n<parameter=b>\n2\n</function>\n</tool_call>",
            [call("add", '{"a": 1, "b": 2}')],
            "",
        ),
        ("<function=add>\n<parameter=a>\n1\n</parameter>\n</tool_call>", [call("add", '{"a": 1}')], ""),
        ('<function="add">\n<parameter="a">\n1\n</parameter>\n</function>', [call("add", '{"a": 1}')], ""),
        # malformed and cut off
        ("<tool_call>\nno", [], "<tool_call>\nno"),
        ("<function=>x", [], "<function=>x"),
        ("<function=now> oops", [], "<function=now> oops"),
        ("<function=get_weather>\n<parameter=city>\nOs", [call("get_weather", '{"city": "Os', complete=False)], ""),
        ("<function=get_weather>\n<parameter=days>\n1", [call("get_weather", '{"days": ', complete=False)], ""),
        (
            "<function=add>\n<parameter=a>\n1\n</parameter>\noops</function>",
            [call("add", '{"a": 1', complete=False)],
            "oops</function>",
        ),
    ],
)
def test_qwen3_coder(text: str, calls: list[Call], content: str) -> None:
    check("qwen3_coder", text, calls, content)


def test_without_tools_any_name_makes_a_bare_call() -> None:
    assert parsed("json", ['{"name": "x", "arguments": {}}'], tools=()).calls == [call("x")]
    assert parsed("pythonic", ["[x(a=1)]"], tools=()).calls == [call("x", '{"a": 1}')]


def test_a_description_never_matters() -> None:
    odd = Tool("add", {"description": '"</tool_call>\n\\', "properties": {"a": {"description": "<tool_call>{}"}}})
    for tool in (ADD, odd):
        assert parsed("hermes", ['<tool_call>{"name": "add"}</tool_call>'], tools=(tool,)).calls == [call("add")]
