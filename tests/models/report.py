"""Writes the parity matrix into docs/models.md: run `python -m tests.models.report` after adding a case."""

import os
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- parity matrix: begin -->", "<!-- parity matrix: end -->"
_FIRST = "model"


def main() -> None:
    """Computes all cells and replaces the table."""
    from tests.models.cases import CASES
    from tests.models.matrix import max_error
    from tests.models.oracle import Transformers
    from tests.models.paths import PATHS

    warnings.simplefilter("ignore")
    lines = [_line([_FIRST, *PATHS]), _line(["---"] * (1 + len(PATHS)))]
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            oracle = Transformers(case, Path(folder))
            errors = [max_error(oracle, path(case, oracle.folder)) for path in PATHS.values()]
        lines.append(_line([name, *(f"{error:.1e}" for error in errors)]))
        print(lines[-1], flush=True)
    document = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text("\n".join((before + BEGIN, *lines, END + after)), encoding="utf-8")


def columns_of(document: str) -> list[str]:
    """Paths of the table in a document."""
    return _cells(_table(document)[0])[1:]


def rows_of(document: str) -> dict[str, list[float]]:
    """Model -> its errors."""
    return {name: [float(cell) for cell in cells] for name, *cells in map(_cells, _table(document)[2:])}


def _table(document: str) -> list[str]:
    return document.partition(BEGIN)[2].partition(END)[0].strip().splitlines()


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


if __name__ == "__main__":
    main()
