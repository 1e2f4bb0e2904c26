"""Chat through clients that others wrote, unmodified: tools, parsed answers, streams, sync and async."""

import asyncio
import warnings
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.lib.streaming.chat import (
    ContentDeltaEvent,
    FunctionToolCallArgumentsDeltaEvent,
    FunctionToolCallArgumentsDoneEvent,
)
from pydantic import BaseModel

from octavo.request.structured import StructuredKind
from tests.server.conftest import FakeServer
from tests.server.fake_engine import FakeEngine, FakeTokenizer
from tests.server.running import running_server

HELLO: Any = [{"role": "user", "content": "hello"}]
PERSON = '{"name": "Ada", "age": 36}'


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


class GetWeather(BaseModel):
    """The weather of a city."""

    city: str


def call(name: str, arguments: str) -> str:
    """A call as Hermes writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server whose model writes calls as Hermes does."""

    async def start() -> FakeEngine:
        return FakeEngine(max_model_len=8192, template="{{ tools }} <tool_call>")

    with running_server(start) as running:
        yield running


def constraint(server: FakeServer) -> StructuredKind | None:
    """The shape that the newest answer had to have."""
    shape = server.engine.seen[-1][1].structured_outputs
    return None if shape is None else shape.kind


def test_parse_into_a_model(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with(PERSON)
    answer = client.chat.completions.parse(model="fake", messages=HELLO, response_format=Person)
    assert answer.choices[0].message.parsed == Person(name="Ada", age=36)
    assert constraint(server) is StructuredKind.JSON_SCHEMA


def test_parse_calls(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with(call("GetWeather", '{"city": "Oslo"}'))
    tools = [openai.pydantic_function_tool(GetWeather)]
    answer = client.chat.completions.parse(model="fake", messages=HELLO, tools=tools)
    (made,) = answer.choices[0].message.tool_calls or []
    assert made.function.parsed_arguments == GetWeather(city="Oslo")
    assert "of a city" in FakeTokenizer().decode(server.engine.seen[-1][0])


def test_events_of_a_stream(server: FakeServer, client: openai.OpenAI) -> None:
    server.engine.answer_with("Well. " + call("GetWeather", '{"city": "Oslo"}'))
    tools = [openai.pydantic_function_tool(GetWeather)]
    with client.chat.completions.stream(model="fake", messages=HELLO, tools=tools) as stream:
        events = list(stream)
    content = [event.delta for event in events if isinstance(event, ContentDeltaEvent)]
    deltas = [event.arguments_delta for event in events if isinstance(event, FunctionToolCallArgumentsDeltaEvent)]
    (done,) = [event for event in events if isinstance(event, FunctionToolCallArgumentsDoneEvent)]
    assert "".join(content) == "Well."
    assert "".join(deltas) == done.arguments == '{"city": "Oslo"}'
    assert len(deltas) > 3
    assert done.parsed_arguments == GetWeather(city="Oslo")


def test_the_asynchronous_client(server: FakeServer) -> None:
    server.engine.answer_with(call("GetWeather", '{"city": "Oslo"}'))
    tools = [openai.pydantic_function_tool(GetWeather)]

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            whole = await client.chat.completions.create(model="fake", messages=HELLO, tools=tools)
            (made,) = whole.choices[0].message.tool_calls or []
            assert made.type == "function"
            assert made.function.arguments == '{"city": "Oslo"}'
            texts = []
            async for chunk in await client.chat.completions.create(
                model="fake", messages=HELLO, tools=tools, stream=True
            ):
                texts += [
                    delta.function.arguments for delta in chunk.choices[0].delta.tool_calls or [] if delta.function
                ]
            assert "".join(text or "" for text in texts) == '{"city": "Oslo"}'

    asyncio.run(main())


@pytest.mark.parametrize(
    ("mode", "text", "shape"),
    [
        ("TOOLS", call("Person", PERSON), StructuredKind.CALLS),
        ("JSON", PERSON, StructuredKind.JSON_OBJECT),
        ("JSON_SCHEMA", PERSON, StructuredKind.JSON_SCHEMA),
        ("MD_JSON", f"```json\n{PERSON}\n```", None),
    ],
)
def test_instructor(
    server: FakeServer, client: openai.OpenAI, mode: str, text: str, shape: StructuredKind | None
) -> None:
    import instructor  # here, because it takes a second

    server.engine.answer_with(text)
    patched = instructor.from_openai(client, mode=instructor.Mode[mode])
    person = patched.chat.completions.create(model="fake", messages=HELLO, response_model=Person, max_retries=0)
    assert (person.name, person.age) == ("Ada", 36)
    assert constraint(server) is shape


def test_instructor_streams_parts_of_an_object(server: FakeServer, client: openai.OpenAI) -> None:
    import instructor  # here, because it takes a second

    server.engine.answer_with(call("PartialPerson", PERSON))
    patched = instructor.from_openai(client)
    parts = list(patched.chat.completions.create_partial(model="fake", messages=HELLO, response_model=Person))
    assert (parts[-1].name, parts[-1].age) == ("Ada", 36)
    assert parts[0].name is None


@pytest.fixture
def chat(server: FakeServer) -> Any:
    """LangChain's model."""
    from langchain_openai import ChatOpenAI  # here, because it takes a second

    return ChatOpenAI(model="fake", base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_langchain_calls_tools(server: FakeServer, chat: Any) -> None:
    server.engine.answer_with(call("GetWeather", '{"city": "Oslo"}'))
    bound = chat.bind_tools([GetWeather])
    (made,) = bound.invoke("weather?").tool_calls
    assert (made["name"], made["args"]) == ("GetWeather", {"city": "Oslo"})
    gathered = None
    for chunk in bound.stream("weather?"):
        gathered = chunk if gathered is None else gathered + chunk
    assert gathered is not None
    (streamed,) = gathered.tool_calls
    assert (streamed["name"], streamed["args"]) == ("GetWeather", {"city": "Oslo"})


def test_langchain_sends_results_back(server: FakeServer, chat: Any) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage

    server.engine.answer_with(call("GetWeather", '{"city": "Oslo"}'))
    asked = chat.bind_tools([GetWeather], tool_choice="GetWeather").invoke("weather?")
    assert constraint(server) is StructuredKind.CALLS
    server.engine.answer_with("Rain.")
    result = ToolMessage("rain", tool_call_id=asked.tool_calls[0]["id"])
    assert chat.invoke([HumanMessage("weather?"), asked, result]).content == "Rain."


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_langchain_structured_output(server: FakeServer, chat: Any, method: str) -> None:
    server.engine.answer_with(call("Person", PERSON) if method == "function_calling" else PERSON)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pydantic's, about a field of the client's own
        person = chat.with_structured_output(Person, method=method).invoke("who?")
    assert person == Person(name="Ada", age=36)
    kinds = {"json_schema": StructuredKind.JSON_SCHEMA, "json_mode": StructuredKind.JSON_OBJECT}
    assert constraint(server) is kinds.get(method, StructuredKind.CALLS)
