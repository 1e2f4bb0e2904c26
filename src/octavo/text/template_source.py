"""Where models keep their chat template."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.errors import ModelFileError
from octavo.text.hf_config import read_json_object

GGUF_KEY = "tokenizer.chat_template"
_MAX_FILE_BYTES = 4 * 2**20


def template_from_gguf(metadata: Mapping[str, Any]) -> str | None:
    """The chat template among a GGUF file's key/values; None if the model has none (a base model).

    Raises:
        ModelFileError: the key holds something other than text.
    """
    source = metadata.get(GGUF_KEY)
    if source is not None and not isinstance(source, str):
        raise ModelFileError(f"{GGUF_KEY} is of type {type(source).__name__}, but must be a string")
    return source or None


def template_from_hf(folder: Path) -> str | None:
    """The chat template of a Hugging Face folder: `chat_template.jinja`, else the one in
    `tokenizer_config.json` (of several, the one named `default`), else `chat_template.json`; None if there is
    none.

    Raises:
        ModelFileError: a damaged or oversized file.
    """
    if (path := folder / "chat_template.jinja").is_file():
        return _read(path)
    for name in ("tokenizer_config.json", "chat_template.json"):
        found = read_json_object(folder / name).get("chat_template")
        if isinstance(found, list):
            found = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}.get(
                "default"
            )
        if isinstance(found, str) and found:
            return found
    return None


def _read(path: Path) -> str | None:
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise ModelFileError(f"larger than {_MAX_FILE_BYTES} bytes", str(path))
    try:
        return path.read_text("utf-8") or None
    except UnicodeDecodeError as error:
        raise ModelFileError(f"not UTF-8: {error}", str(path)) from error
