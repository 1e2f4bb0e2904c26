"""Makes a GGUF file of another type with llama.cpp's own quantiser: llama_quantize.py SOURCE TARGET TYPE."""

import sys

import llama_cpp as lib

TYPES = {"Q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0, "Q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0}


def quantize(source: str, target: str, kind: str) -> None:
    """From whatever type the source has; no importance matrix."""
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = TYPES[kind], True
    status = lib.llama_model_quantize(source.encode(), target.encode(), params)
    if status != 0:
        raise SystemExit(f"llama.cpp cannot write {target} (status {status})")


if __name__ == "__main__":
    quantize(*sys.argv[1:4])
