"""Files compiled for an instruction set share no function with the others.

The linker keeps one instance of an inline function or template that several files emit. If that one came from a file
compiled for AVX2, the portable path would stop with an illegal instruction on the very processors it is for.

Looked at is what the compiler would hand to optimisation at link time: all functions that early inlining leaves, so
rather more than the built module holds, and known in a third of the time that machine code takes.
"""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
AVX2_FLAGS = ["-mavx2", "-mfma", "-mf16c"]
AVX512_FLAGS = [*AVX2_FLAGS, *(f"-mavx512{feature}" for feature in ("f", "bw", "vl", "dq", "vnni"))]
FLAGS_BY_SUFFIX = {
    "_avx2": AVX2_FLAGS,
    "_avx512": AVX512_FLAGS,
    "_amx": [*AVX512_FLAGS, "-mamx-tile", "-mamx-int8"],
}
FILES = sorted(source for suffix in FLAGS_BY_SUFFIX for source in CSRC.glob(f"**/*{suffix}.cpp"))
ALLOWED = {"DW.ref.__gxx_personality_v0"}  # a pointer that the compiler emits for exceptions


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="these files are empty on this architecture")
@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("gcc-nm")), reason="needs g++ and gcc-nm")
@pytest.mark.parametrize(
    "source",
    # the longest one reads what attention_avx2.cpp and ops_avx512.cpp read
    [pytest.param(path, marks=[pytest.mark.long] * (path.name == "attention_avx512.cpp")) for path in FILES],
    ids=lambda path: path.name,
)
def test_no_function_of_such_a_file_can_stand_in_for_anothers(source, tmp_path):
    compiled = tmp_path / "file.o"
    isa = source.stem[source.stem.rindex("_") :]
    flags = ["-std=c++17", "-O1", "-flto", "-ffp-contract=off", *FLAGS_BY_SUFFIX[isa], f"-I{CSRC}"]
    subprocess.run(["g++", *flags, "-c", str(source), "-o", str(compiled)], check=True)
    listing = subprocess.run(["gcc-nm", str(compiled)], check=True, capture_output=True, text=True).stdout
    symbols = [line.split()[-2:] for line in listing.splitlines()]
    assert {name for kind, name in symbols if kind in "WVu"} <= ALLOWED
    assert any(kind == "T" and isa[1:] in name for kind, name in symbols)  # what the base files call
