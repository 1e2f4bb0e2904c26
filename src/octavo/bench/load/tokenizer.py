"""The words of a run: counted by a model's tokenizer, or not."""

from octavo.bench.load.datasets.words import CommonWords, TokenWords, Words
from octavo.bench.load.settings import LoadSettings
from octavo.errors import ConfigError, ModelNotFoundError


def words_for(settings: LoadSettings) -> Words:
    """Words of known lengths if a tokenizer is named, which is fetched if need be.

    Raises:
        OctavoError: the tokenizer cannot be had, or no prompts can be made with it.
    """
    if settings.data.tokenizer is None:
        return CommonWords()
    from octavo.engine.grammars import load_tokenizer  # noqa: PLC0415
    from octavo.hub import resolve  # noqa: PLC0415

    try:
        files = resolve(settings.data.tokenizer)
    except ModelNotFoundError as error:
        raise ConfigError("tokenizer", settings.data.tokenizer, str(error)) from None
    encoder = load_tokenizer(files)
    return TokenWords(encoder, special=settings.target.endpoint == "completions")
