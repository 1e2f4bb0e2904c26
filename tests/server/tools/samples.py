"""Texts of every family: whole calls as templates have them, and the pieces that adversarial texts are made of."""

JSON_PIECES = (
    '{"name": "get_weather", "arguments": {"city": "Oslo"}}',
    '{"name": "add", "parameters": {"a": 1, "b": [2, {"c": null}]}}',
    '{"arguments": {"a": 1}, "name": "add"}',
    '{"name": "add", "arguments": "{\\"a\\": 1}"}',
    '{"name": "now"}',
    '{"type": "function", "function": {"name": "add", "arguments": {}}}',
    '{"name": "',
    '"arguments": ',
    "get_weather",
    "{",
    "}",
    "[",
    "]",
    '"',
    "\\",
    "\\u12",
    ": ",
    ", ",
    "; ",
    "12.5e",
    "true",
    "null",
)
PYTHON_PIECES = (
    '[get_weather(city="Oslo", days=3)]',
    "add(a=1, b=[2, (3,), {'c': None}])",
    "get_weather(",
    "now()",
    "add(a=",
    "city='",
    "'''",
    '"',
    "'",
    "\\",
    "\\x4",
    "[",
    "]",
    "(",
    ")",
    "=",
    ", ",
    "None",
    "-1_0.5",
    "{'k': ",
    "}",
    "print(",
)
XML_PIECES = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
    "<function=add>",
    "<parameter=a>",
    "<parameter=days>\n3\n",
    "</parameter>",
    "</function>",
    "</tool_call>",
    "\n",
    "True",
    "<",
    ">",
    '"',
)
DEEPSEEK_PIECES = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "function<｜tool▁sep｜>add\n```json\n",
    "add<｜tool▁sep｜>",
    "<｜tool▁sep｜>",
    "```",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁",
)
HARMONY_PIECES = (
    "<|channel|>commentary to=functions.add <|constrain|>json<|message|>",
    "<|channel|>commentary to=",
    "<|channel|>",
    "<|channel|>analysis<|message|>",
    "<|channel|>final<|message|>",
    " to=functions.add",
    "<|start|>assistant",
    "<|message|>",
    "<|call|>",
    "<|end|>",
    "<|",
)


def delimited(begin: str, end: str, quote: str) -> tuple[str, ...]:
    return (
        f"{begin}call:get_weather{{city:{quote}Oslo{quote}}}{end}",
        f"{begin}call:add{{",
        begin,
        end,
        quote,
        quote[:-1],
        "call:",
        "a:1",
        "where:{k:[1,",
        "tags:[",
        ",",
        "}",
        "]",
        "]}",
        "true",
        "bare words",
    )


PIECES: dict[str, tuple[str, ...]] = {
    "hermes": ("<tool_call>\n", "\n</tool_call>", "<tool_call", "</tool_", "```json\n", "```", "``", *JSON_PIECES),
    "json": ("<tool_call>", "</tool_call>", "```json\n", "\n```", *JSON_PIECES),
    "llama3_json": ("<|python_tag|>", "<|python", *JSON_PIECES),
    "granite": ("<|tool_call|>", "<tool_call>", "</tool_call>", "<|/tool_call|>", "<|tool", *JSON_PIECES),
    "mistral": ("[TOOL_CALLS]", "[TOOL_CALLS] [", "[TOOL", "add[ARGS]", "add[CALL_ID]x9", "[ARGS]", *JSON_PIECES),
    "mistral_list": ("[TOOL_CALLS]", "[TOOL_CALLS] [", "[TOOL", "add[ARGS]", *JSON_PIECES),
    "deepseek_v3": (*DEEPSEEK_PIECES, *JSON_PIECES),
    "deepseek_v31": (*DEEPSEEK_PIECES, *JSON_PIECES),
    "qwen3_coder": ("<tool_call>", "<function", "<param", *XML_PIECES),
    "pythonic": ("<|python_start|>", "<|python_end|>", "<|python", *PYTHON_PIECES, *JSON_PIECES[:3]),
    "gemma": ("```tool_code\n", "\n```", "```json\n", "```", "``", *PYTHON_PIECES, *JSON_PIECES[:3]),
    "functiongemma": delimited("<start_function_call>", "<end_function_call>", "<escape>"),
    "gemma4": delimited("<|tool_call>", "<tool_call|>", '<|"|>'),
    "harmony": (*HARMONY_PIECES, *JSON_PIECES),
}
"""By family, what texts are put together from: markers, their beginnings, and bits of what stands between them."""

PLAIN = ("Hello", " ", "\n", "\n\n  ", "é", "日本", "😀", "\u200b", "x")

CALLS: dict[str, tuple[str, ...]] = {
    "hermes": (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
    ),
    "json": (
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}\n',
        '{"name": "add", "arguments": {"a": 1, "b": 2}}',
    ),
    "llama3_json": (
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}',
        '; {"name": "add", "parameters": {"a": 1, "b": 2}}',
    ),
    "granite": (
        '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Oslo"}}, ',
        '{"name": "add", "arguments": {"a": 1, "b": 2}}]',
    ),
    "mistral": (
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}',
        '[TOOL_CALLS]add[CALL_ID]a1B2c3D4e[ARGS]{"a": 1, "b": 2}',
    ),
    "mistral_list": (
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "a1B2c3D4e"}, ',
        '{"name": "add", "arguments": {"a": 1, "b": 2}}]',
    ),
    "deepseek_v3": (
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
            'function<｜tool▁sep｜>get_weather\n```json\n{"city": "Oslo"}\n```<｜tool▁call▁end｜>\n'
        ),
        (
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n"
            '```json\n{"a": 1, "b": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
        ),
    ),
    "deepseek_v31": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>',
        '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1, "b": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "qwen3_coder": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>\n",
        (
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n"
            "</function>\n</tool_call>"
        ),
    ),
    "pythonic": ('<|python_start|>[get_weather(city="Oslo"), ', "add(a=1, b=2)]<|python_end|>"),
    "gemma": ('```tool_code\nget_weather(city="Oslo")\n', "print(add(a=1, b=2))\n```"),
    "functiongemma": (
        "<start_function_call>call:get_weather{city:<escape>Oslo<escape>}<end_function_call>",
        "<start_function_call>call:add{a:1,b:2}<end_function_call>",
    ),
    "gemma4": (
        '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>}<tool_call|>',
        "<|tool_call>call:add{a:1,b:2}<tool_call|>",
    ),
    "harmony": (
        '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>',
        '<|channel|>commentary to=functions.add<|message|>{"a": 1, "b": 2}',
    ),
}
"""By family, the same two calls in its own words; together they are one answer."""
