"""The language side of a model: tokenizer and chat template, loaded in the process that speaks to users."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from octavo.config import EngineConfig
from octavo.engine.output import EngineInfo
from octavo.errors import ConfigError, InvalidRequestError, ModelFileError
from octavo.execution.loader import open_checkpoint
from octavo.hub.files import ModelFiles
from octavo.text.chat import ChatEncoder
from octavo.text.hf_config import read_json_object
from octavo.text.template import ChatTemplate
from octavo.text.template_source import template_from_gguf, template_from_hf
from octavo.text.tokenizer import Tokenizer, from_gguf, from_hf

SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Keys of a model's generation config that a server takes over as defaults."""


@dataclass(frozen=True)
class Words:
    """Tokenizer and chat encoder; both None under skip_tokenizer_init, the latter None for a base model."""

    tokenizer: Tokenizer | None
    chat: ChatEncoder | None
    sampling_defaults: dict[str, float]

    def complete(self, info: EngineInfo) -> EngineInfo:
        """The core's facts with those that only the language side knows."""
        eos_ids = () if self.tokenizer is None else self.tokenizer.eos_ids
        return replace(info, eos_token_ids=eos_ids, sampling_defaults=self.sampling_defaults)

    @property
    def takes_system_message(self) -> bool:
        """Whether the template accepts a conversation that begins with a system message."""
        probe = [{"role": "system", "content": "x"}, {"role": "user", "content": "x"}]
        try:
            self.render_chat(probe)
        except InvalidRequestError:
            return False
        return True

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation, ready for an answer. Only the template speaks in control tokens.

        Args:
            template: in place of the model's own.

        Raises:
            InvalidRequestError: there is no template or tokenizer, or the template refuses the messages.
        """
        if self.chat is None:
            raise InvalidRequestError(
                "messages",
                len(messages),
                "this model has no chat template (a base model?): ask for a completion, or give --chat-template",
            )
        chat = self.chat if template is None else self.chat.with_template(template)
        return chat.encode(
            messages,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            now=datetime.now(),
            variables=variables,
        )


@dataclass(frozen=True)
class _Source:
    """What a model's files say about words."""

    tokenizer: Tokenizer
    template: str | None
    sampling_defaults: dict[str, float]


def load_words(config: EngineConfig, files: ModelFiles) -> Words:
    """Loads tokenizer and template of a model, from GGUF metadata or from a Hugging Face folder.

    Raises:
        ModelFileError, UnsupportedModelError: the tokenizer cannot be read or is of a kind Octavo does not know.
        ConfigError: the given chat template cannot be read, or is none.
    """
    if config.model.skip_tokenizer_init:
        return Words(None, None, {})
    source = _READERS[files.kind](files)
    template = _compiled(config.model.chat_template, source, files.name)
    encoder = None if template is None else ChatEncoder(source.tokenizer, template)
    return Words(source.tokenizer, encoder, source.sampling_defaults)


def _compiled(given: str | None, source: _Source, model: str) -> ChatTemplate | None:
    """The given chat template, else the model's; None: there is none."""
    text = source.template if given is None else _given_template(given)
    if text is None:
        return None
    origin = f"chat template of {model}" if given is None else "is no chat template"
    bos, eos = source.tokenizer.bos_token, source.tokenizer.eos_token
    try:
        return ChatTemplate(text, bos_token=bos, eos_token=eos, origin=origin)
    except ModelFileError as error:
        if given is None:
            raise
        raise ConfigError("chat_template", given, str(error)) from None


def _given_template(given: str) -> str:
    """The text itself if it looks like jinja, else the file of that name."""
    if "{{" in given or "{%" in given:
        return given
    try:
        return Path(given).read_text()
    except OSError as error:
        raise ConfigError("chat_template", given, f"neither a jinja text nor a readable file: {error}") from error


def _read_gguf(files: ModelFiles) -> _Source:
    metadata = open_checkpoint(files.files).metadata
    keys = {name: f"general.sampling.{'temp' if name == 'temperature' else name}" for name in SAMPLING_DEFAULTS}
    defaults = {name: float(metadata[key]) for name, key in keys.items() if key in metadata}
    return _Source(from_gguf(metadata), template_from_gguf(metadata), defaults)


def _read_hf(files: ModelFiles) -> _Source:
    generation = read_json_object(files.folder / "generation_config.json")
    if not generation.get("do_sample", True):
        generation = {**generation, "temperature": 0.0}
    defaults = {key: float(generation[key]) for key in SAMPLING_DEFAULTS if generation.get(key) is not None}
    return _Source(from_hf(files.folder), template_from_hf(files.folder), defaults)


_READERS: dict[str, Callable[[ModelFiles], _Source]] = {"gguf": _read_gguf, "safetensors": _read_hf}
