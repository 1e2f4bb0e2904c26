"""Responses that are kept: to be read again, and to be gone on from."""

import uuid
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from pydantic import TypeAdapter

from octavo.config import ServerConfig
from octavo.errors import InvalidRequestError
from octavo.request.orders import RecordLimits
from octavo.server.responses.items import AnyItem, Item, MessageItem
from octavo.server.serving_engine import ServingEngine


@cache
def _items() -> TypeAdapter[list[AnyItem]]:
    """Made at first use: it takes its time."""
    return TypeAdapter(list[Item])


class StoredResponse(msgspec.Struct, frozen=True):
    """One response with all that its prompt was made of, so that it can be gone on from when those before it are
    gone."""

    response: dict[str, Any]
    context: list[dict[str, Any]]
    """All items of the conversation before the response's own, those of earlier responses included; each has an id.
    Without instructions: they are not carried on."""

    def items(self) -> list[AnyItem]:
        """The conversation with the response's own items.

        Raises:
            InvalidRequestError: it ends in a call that was cut off: what the model meant to call with is not known, and
                no client could send such a call back either.
        """
        if any(item["type"] == "function_call" and item["status"] == "incomplete" for item in self.response["output"]):
            problem = "this response was cut off in a call, so it cannot be gone on from; go on from the one before it"
            raise InvalidRequestError("previous_response_id", self.response["id"], problem)
        return checked_items([*self.context, *self.response["output"]])


def checked_items(plain: Sequence[dict[str, Any]]) -> list[AnyItem]:
    """Items that came from here once, checked like those of a client: one way leads from items to a prompt."""
    return _items().validate_json(msgspec.json.encode(plain))


def plain_items(items: Sequence[AnyItem]) -> list[dict[str, Any]]:
    """Items as they are kept: each with an id, nothing absent spelled out."""
    plain = [item.model_dump(exclude_none=True) for item in items]
    return [item if "id" in item else {"id": f"{_PREFIXES[item['type']]}_{uuid.uuid4().hex}", **item} for item in plain]


_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def shown_item(item: dict[str, Any]) -> dict[str, Any]:
    """A kept item as the API shows it: a message's content in parts, of the kind of its role."""
    if item["type"] != MessageItem.model_fields["type"].default:
        return item
    content = item["content"]
    texts = [content] if isinstance(content, str) else [part["text"] for part in content]
    part = {"type": "output_text", "annotations": []} if item["role"] == "assistant" else {"type": "input_text"}
    return {"status": "completed", **item, "content": [{**part, "text": text} for text in texts]}


class ResponseStore:
    """The responses of all keys, kept with the engine, so that every API process finds them."""

    def __init__(self, engine: ServingEngine, config: ServerConfig) -> None:
        self._engine = engine
        self._limits = RecordLimits(
            max_records=config.response_store_size,
            max_bytes=config.response_store_bytes,
            max_age_s=config.response_store_age_s,
        )
        self._max_bytes = config.max_body_bytes

    @property
    def keeps(self) -> bool:
        """Whether anything is kept at all."""
        return self._limits.max_records > 0

    async def put(self, stored: StoredResponse, tenant: str) -> bool:
        """Keeps a response; False if it is larger than may be: than a request, since it could not be sent whole either,
        or than all that is kept."""
        content = msgspec.json.encode(stored)
        if len(content) > self._max_bytes:
            return False
        return await self._engine.put_record(stored.response["id"], content, self._limits, tenant=tenant)

    async def get(self, response_id: str, tenant: str) -> StoredResponse | None:
        """A response of this tenant; None if there is none."""
        content = await self._engine.record(response_id, tenant=tenant)
        return None if content is None else msgspec.json.decode(content, type=StoredResponse)

    async def remove(self, response_id: str, tenant: str) -> bool:
        """Lets go of a response; False if there is none."""
        return await self._engine.remove_record(response_id, tenant=tenant)
