"""The two formats of the log, and what set_up does to loggers."""

import json
import logging
import os
import subprocess
import sys

import pytest

from octavo.log import JsonFormatter, TextFormatter


def record(message: str, *arguments: object, fields: dict[str, object] | None = None) -> logging.LogRecord:
    made = logging.LogRecord("octavo.x", logging.WARNING, "x.py", 1, message, arguments, None)
    if fields is not None:
        made.fields = fields
    return made


def test_text_is_one_line_and_lets_nobody_write_another() -> None:
    line = TextFormatter("server").format(
        record("request %s", "a\nb\x1b[31m\x85", fields={"path": "/x\r\ny", "tenant": "", "n": 0, "none": None})
    )
    assert line.endswith(r"WARNING octavo.x: request a\x0ab\x1b[31m\x85 path=/x\x0d\x0ay n=0")
    assert "\n" not in line


def test_text_names_other_processes_than_the_server() -> None:
    assert TextFormatter("core").format(record("hello")).endswith("octavo.x: [core] hello")


def test_json_is_one_object_per_line() -> None:
    made = record("request %s", "ä\nb", fields={"status": 200, "path": object})
    line = JsonFormatter("api 1").format(made)
    assert "\n" not in line
    entry = json.loads(line)
    assert entry["message"] == "request ä\nb" and entry["status"] == 200
    assert (entry["level"], entry["logger"], entry["process"]) == ("warning", "octavo.x", "api 1")
    assert entry["time"].endswith("Z") and entry["pid"] == made.process


@pytest.mark.parametrize("kind", [TextFormatter, JsonFormatter])
def test_a_traceback_comes_with_it(kind: type[logging.Formatter]) -> None:
    try:
        raise KeyError("inside")
    except KeyError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    line = kind("server").format(made)  # type: ignore[call-arg]
    assert "KeyError" in line and "test_a_traceback_comes_with_it" in line
    if kind is JsonFormatter:
        assert "KeyError: 'inside'" in json.loads(line)["exception"]


PROGRAM = """
import logging, warnings
from octavo.log import LogSettings, current, set_up
set_up(LogSettings(level="info", format="json"), role="server")
set_up(LogSettings(level="info", format="json"), role="server")
assert current() == LogSettings(level="info", format="json")
logging.getLogger("octavo.engine").info("ours")
logging.getLogger("octavo.engine").debug("too fine")
logging.getLogger("uvicorn.error").info("chatter")
logging.getLogger("uvicorn.error").warning("theirs")
warnings.warn("old")
"""


def test_libraries_and_warnings_speak_the_same_way_and_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    assert [entry["logger"] for entry in entries] == ["octavo.engine", "uvicorn.error", "py.warnings"]
    assert [entry["message"] for entry in entries[:2]] == ["ours", "theirs"] and "old" in entries[2]["message"]


def test_importing_octavo_touches_no_logger() -> None:
    program = "import logging, octavo, octavo.log; print(logging.getLogger().handlers, octavo.log.current().level)"
    here = {name: value for name, value in os.environ.items() if name != "OCTAVO_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=here)
    assert done.stdout == "[] warning\n"
