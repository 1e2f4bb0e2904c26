"""The small JSON files beside a Hugging Face tokenizer: which ids begin and end a text."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.errors import ModelFileError
from octavo.text.end_tokens import end_ids
from octavo.text.parts import TokenKind, Vocabulary

MAX_BYTES = 64 * 2**20
"""Of each of these files."""


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty if the file is not there.

    Raises:
        ModelFileError: the file is too large, or no JSON object.
    """
    if not path.is_file():
        return {}
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ModelFileError(f"is {size} bytes long, more than the {MAX_BYTES} allowed", str(path))
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelFileError(f"cannot be read ({error.strerror})", str(path)) from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"not valid JSON: {error}", str(path)) from error
    if not isinstance(content, dict):
        raise ModelFileError(f"must hold a JSON object, not {type(content).__name__}", str(path))
    return content


class HfTokenizerConfig:
    """`tokenizer_config.json`, `special_tokens_map.json`, `generation_config.json` and `config.json` of one
    folder."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = read_json_object(folder / "special_tokens_map.json")
        self._tokenizer |= read_json_object(folder / "tokenizer_config.json")
        self._generation = read_json_object(folder / "generation_config.json")
        self._model = read_json_object(folder / "config.json")
        self._added = read_json_object(folder / "added_tokens.json")

    def named_id(self, role: str, ids: Mapping[str, int]) -> int | None:
        """The id of the token that plays a role (`bos_token`, `eos_token`); None if no file names one."""
        spelling = self._tokenizer.get(role)
        if isinstance(spelling, dict):
            spelling = spelling.get("content")
        return ids.get(spelling) if isinstance(spelling, str) else None

    def added_ids(self, role: str, ids: Mapping[str, int], by_template: tuple[int, ...]) -> tuple[int, ...]:
        """Ids put around a text: as `add_{role}` says where it stands, else as the tokenizer's own template
        does."""
        says = self._tokenizer.get(f"add_{role}")
        if not isinstance(says, bool):
            return by_template
        token_id = self.named_id(role, ids)
        return (token_id,) if says and token_id is not None else ()

    def eos_ids(self, ids: Mapping[str, int], vocabulary: Vocabulary) -> tuple[int, ...]:
        """Every id that ends a generation: the tokenizer's own, then those of `generation_config.json`.

        Without that file: those of `config.json`, then control tokens whose spelling says so.
        """
        own = self.named_id("eos_token", ids)
        listed = _id_list(self._generation, len(vocabulary))
        if listed:
            return end_ids((own, *listed), (), vocabulary.pieces.__getitem__)
        listed = _id_list(self._model, len(vocabulary))
        return end_ids((own, *listed), vocabulary.ids_of(TokenKind.CONTROL), vocabulary.pieces.__getitem__)

    def added_tokens(self) -> dict[int, tuple[str, bool]]:
        """id -> (spelling, special) of tokens added on top of a SentencePiece model."""
        added = {i: (spelling, True) for spelling, i in self._added.items() if isinstance(i, int)}
        for key, token in self._tokenizer.get("added_tokens_decoder", {}).items():
            if key.isdecimal() and isinstance(token, dict) and isinstance(token.get("content"), str):
                added[int(key)] = (token["content"], bool(token.get("special", True)))
        return added


def _id_list(config: Mapping[str, Any], vocab_size: int) -> list[int]:
    value = config.get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return [i for i in values if isinstance(i, int) and 0 <= i < vocab_size]
