"""Where the golden blocks lie."""

from pathlib import Path

GOLDEN = Path(__file__).with_name("golden.json")
