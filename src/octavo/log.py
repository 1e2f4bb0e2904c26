"""Logging: one handler on stderr for the `octavo` loggers; a library user's own set-up is left alone."""

import logging
import os
import sys

LEVELS = ("debug", "info", "warning", "error")
ENVIRONMENT_VARIABLE = "OCTAVO_LOG_LEVEL"


def default_level() -> str:
    """The level from the environment, else `warning`."""
    level = os.environ.get(ENVIRONMENT_VARIABLE, "warning").lower()
    return level if level in LEVELS else "warning"


def set_up(level: str) -> None:
    """Sends what `octavo` loggers say to stderr. For programs (the CLI, the core process), not for `import octavo`.

    Args:
        level: one of `LEVELS`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("octavo")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
