"""Arguments of a call, as both kinds of chat templates take them."""

import json
from collections.abc import Mapping
from typing import Any


class CallArguments(dict[str, Any]):
    """An object for templates that look into it or print it with `tojson`; where one prints or adds it as a text, as
    DeepSeek's do, that text is its JSON."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._text = json.dumps(arguments, ensure_ascii=False)

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return other + self._text if isinstance(other, str) else NotImplemented
