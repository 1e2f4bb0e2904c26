"""How much work and memory one rendering of a chat template may cost.

A template comes with a model file, so nobody has read it. The sandbox keeps it away from Python; these limits
keep it from running for ever or filling memory. jinja2 has no `while`, but nested loops over `range` and
macros that call themselves twice have no end to speak of, and one `*` makes a gigabyte.
"""

import time
from collections.abc import Callable, Mapping, Set, ValuesView
from dataclasses import dataclass
from typing import Any

_ITEM_CHARACTERS = 16
"""What an item of a list counts, beside its own text: a bound on the number of items, too."""


class TemplateLimitError(Exception):
    """A rendering cost more than its limits allow. Internal: callers of the text room see an octavo error."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """Limits of one rendering."""

    max_characters: int = 16 * 2**20
    """Of the result, and of any one text or list made on the way."""
    max_work_characters: int = 256 * 2**20
    """Of all texts made on the way together."""
    max_cpu_s: float = 5.0
    """Processor time of the rendering thread, which other load on the machine does not count against."""


class RenderBudget:
    """What is left for one rendering. Every loop iteration, call and operation that makes text asks it
    first."""

    def __init__(self, limits: TemplateLimits, clock: Callable[[], float] = time.thread_time) -> None:
        self._limits = limits
        self._clock = clock
        self._deadline_s = clock() + limits.max_cpu_s
        self._work_left = limits.max_work_characters

    def step(self) -> None:
        """One loop iteration or call is about to run.

        Raises:
            TemplateLimitError: there is no time left.
        """
        if self._clock() > self._deadline_s:
            raise TemplateLimitError(f"it ran for more than {self._limits.max_cpu_s:g} s")

    def charge(self, size: int) -> None:
        """A text of this size is about to be made.

        Raises:
            TemplateLimitError: it is too large, or all of them together are.
        """
        if size > self._limits.max_characters:
            raise TemplateLimitError(f"it makes a text of more than {self._limits.max_characters} characters")
        self._work_left -= size
        if self._work_left < 0:
            raise TemplateLimitError(f"it makes more than {self._limits.max_work_characters} characters of text in all")

    def charge_items(self, count: int) -> None:
        """A list of this length is about to be made. Errors as in `charge`."""
        self.charge(count * _ITEM_CHARACTERS)

    def charge_text_of(self, value: Any) -> None:
        """A value is about to be turned into text, with all that it holds. Errors as in `charge`."""
        self.charge(len(value) if isinstance(value, str) else text_size(value, self._limits.max_characters))

    def check_size(self, value: Any) -> None:
        """A value is about to be compared or put into a container: work that grows with all that it holds,
        but makes no text. Errors as in `charge`."""
        if not isinstance(value, str) and text_size(value, self._limits.max_characters) > self._limits.max_characters:
            raise TemplateLimitError(f"it nests lists to more than {self._limits.max_characters} characters")


def text_size(value: Any, limit: int) -> int:
    """An upper bound (within a small factor) of the characters of a value as text; counting stops beyond
    `limit`.

    Containers are walked without recursion and counted as often as they are met, for they are written as
    often: a list that holds one list twice, thirty times over, is small in memory and has no end as text.
    """
    size, waiting = 0, [value]
    while waiting and size <= limit:
        item = waiting.pop()
        if isinstance(item, str | bytes):
            size += len(item)
        elif isinstance(item, Mapping):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple | Set | ValuesView):
            waiting.extend(item)
        size += _ITEM_CHARACTERS
    return size
