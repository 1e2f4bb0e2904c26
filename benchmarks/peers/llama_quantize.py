"""Makes a GGUF file of another type with llama.cpp's own quantiser: llama_quantize.py SOURCE TARGET TYPE."""

import sys

import llama_cpp as lib

TYPES = {
    "F16": lib.LLAMA_FTYPE_MOSTLY_F16,
    "BF16": lib.LLAMA_FTYPE_MOSTLY_BF16,
    "Q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_1": lib.LLAMA_FTYPE_MOSTLY_Q4_1,
    "Q5_0": lib.LLAMA_FTYPE_MOSTLY_Q5_0,
    "Q5_1": lib.LLAMA_FTYPE_MOSTLY_Q5_1,
    "Q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q2_K": lib.LLAMA_FTYPE_MOSTLY_Q2_K,
    "Q3_K": lib.LLAMA_FTYPE_MOSTLY_Q3_K_S,
    "Q4_K": lib.LLAMA_FTYPE_MOSTLY_Q4_K_S,
    "Q5_K": lib.LLAMA_FTYPE_MOSTLY_Q5_K_S,
    "Q6_K": lib.LLAMA_FTYPE_MOSTLY_Q6_K,
    "IQ4_NL": lib.LLAMA_FTYPE_MOSTLY_IQ4_NL,
}
"""Type of most matrices -> llama.cpp's name for the mix; of K-quants the small one."""


def quantize(source: str, target: str, kind: str) -> None:
    """From whatever type the source has; no importance matrix."""
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = TYPES[kind], True
    status = lib.llama_model_quantize(source.encode(), target.encode(), params)
    if status != 0:
        raise SystemExit(f"llama.cpp cannot write {target} (status {status})")


if __name__ == "__main__":
    quantize(*sys.argv[1:4])
