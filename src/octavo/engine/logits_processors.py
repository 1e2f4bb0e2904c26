"""Logits processors that other packages bring, found by entry point, and what requests say to them."""

import logging
from collections.abc import Mapping, Sequence
from typing import cast

from octavo.decoding.processors.contract import LogitsProcessor
from octavo.decoding.processors.rows import check_names
from octavo.engine.plug_ins import made, plug_in
from octavo.errors import ConfigError, InvalidRequestError
from octavo.request.params import SamplingParams

log = logging.getLogger(__name__)

GROUP = "octavo.logits_processors"
_SETTING = "logits_processors"

Processors = Mapping[str, LogitsProcessor]
"""By name, in the order in which they apply."""


def load_processors(names: Sequence[str], valid_vocab_size: int) -> Processors:
    """The processors of these names. Nothing else that packages bring is loaded.

    Raises:
        ConfigError: a name twice; or there is none of this name, several packages bring one, or it cannot be loaded or
            made.
    """
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(_SETTING, name, "is named twice; each applies once, in the order given")
    points = {name: plug_in(GROUP, _SETTING, name) for name in names}
    return {
        name: cast(LogitsProcessor, made(point, _SETTING, valid_vocab_size, LogitsProcessor))
        for name, point in points.items()
    }


def check_arguments(params: SamplingParams, processors: Processors) -> None:
    """Has each processor that a request names look at its arguments.

    Raises:
        InvalidRequestError: a processor that there is not, or arguments that it refuses.
    """
    asked = params.logits_processors or {}
    check_names(asked, processors)
    for name, args in asked.items():
        try:
            processors[name].check(args)
        except ValueError as error:
            raise InvalidRequestError(f"{_SETTING}.{name}", args, str(error)) from None
        except Exception as error:  # the plug-in's fault, at this request's arguments: only that one is refused
            log.exception("the logits processor %r failed at the arguments of a request", name)
            problem = f"the processor failed at these arguments ({type(error).__name__}); the log says more"
            raise InvalidRequestError(f"{_SETTING}.{name}", args, problem) from None
