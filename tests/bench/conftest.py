"""Scripts in benchmarks/ import each other as siblings; so do their tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
