"""`speculative_config`: how vLLM is told who guesses and how much, read as settings of ours.

A key that means something here is taken over; whatever else stands there is refused with what to do instead, unless
its value asks for nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from octavo.errors import ConfigError

FIELD = "speculative_config"
_NO_MODEL: dict[str, str] = {"ngram": "ngram", "suffix": "suffix"}
_OF_A_MODEL = {"draft_model": "draft", "eagle": "eagle", "eagle3": "eagle"}
"""Method -> what stands before the model's name in `speculation`."""
_METHODS = (*_NO_MODEL, *_OF_A_MODEL)
_NUMBERS = ("num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min")
"""Keys that are fields under the same name."""
_LOOKUP = ("prompt_lookup_max", "prompt_lookup_min")

_ASKS_FOR_NOTHING: dict[str, object] = {
    "draft_tensor_parallel_size": 1,
    "parallel_drafting": False,
    "use_heterogeneous_vocab": False,
    "use_local_argmax_reduction": False,
}
"""Key -> the value that is how things are here anyway."""
_NO_SAMPLER = "drafts are verified by drawing as if alone: no token depends on them, and there is no method to choose"
_BY_LOAD = "without num_speculative_tokens there are as many drafts as pay at the load there is, or none"
_ONE_PLACE = "a draft model is loaded as every model is, and runs on the same cores"
_INSTEAD = {
    "draft_tensor_parallel_size": "one process runs the whole model; its cores are `threads`",
    "tensor_parallel_size": "one process runs the whole model; its cores are `threads`",
    "revision": "write it behind the model's name: org/name@revision",
    "code_revision": "no code of a model's author is run",
    "max_model_len": "drafts end where the request's context does",
    "quantization": "weights run as their file holds them",
    "kv_cache_dtype": "the draft model's cache has the type of kv_cache_dtype",
    "enforce_eager": _ONE_PLACE,
    "draft_load_config": _ONE_PLACE,
    "moe_backend": _ONE_PLACE,
    "attention_backend": _ONE_PLACE,
    "rejection_sample_method": _NO_SAMPLER,
    "draft_sample_method": _NO_SAMPLER,
    "synthetic_acceptance_rates": _NO_SAMPLER,
    "synthetic_acceptance_length": _NO_SAMPLER,
    "speculative_token_tree": "drafts are chains",
    "parallel_drafting": "drafts are made one token after the other",
    "use_heterogeneous_vocab": "a draft model must have the tokenizer of the model",
    "use_local_argmax_reduction": "nothing is spread over devices",
    "disable_by_batch_size": _BY_LOAD,
    "num_speculative_tokens_per_batch_size": _BY_LOAD,
    "suffix_decoding_max_tree_depth": "contexts are counted up to 64 tokens",
    "suffix_decoding_max_cached_requests": "earlier answers are kept up to 2^18 tokens in all",
    "suffix_decoding_max_spec_factor": "a draft ends where the product of its chances falls below 0.1",
    "suffix_decoding_min_token_prob": "a draft ends where the product of its chances falls below 0.1",
}
"""Key that means nothing here -> why, or what does."""


def in_our_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `SpeculationConfig` that say the same.

    Raises:
        ConfigError: a key or a value that nothing here obeys.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    fields: dict[str, Any] = {"speculation": _speculation(asked)}
    for name in _NUMBERS:
        if name in asked:
            fields[name] = _number(name, asked[name])
    for name, value in asked.items():
        if name not in (*_NUMBERS, "method", "model"):
            _refuse_unless_it_asks_for_nothing(name, value)
    return fields


def _speculation(asked: Mapping[str, Any]) -> str:
    """Who guesses, as `speculation` has it."""
    model = _text("model", asked["model"]) if "model" in asked else None
    _require("method" in asked or model is not None, "method", None, f"is missing; give one of {', '.join(_METHODS)}")
    method = _text("method", asked.get("method", "draft_model"))
    _require(method in _METHODS, "method", method, f"must be one of {', '.join(_METHODS)}")
    for name in _LOOKUP:
        _require(name not in asked or method == "ngram", name, asked.get(name), "goes with method ngram alone")
    if method in _NO_MODEL:
        _require(model is None, "model", model, f"has no meaning for method {method}, which guesses without one")
        return _NO_MODEL[method]
    _require(model is not None, "model", model, f"must name the model that guesses, for method {method}")
    return f"{_OF_A_MODEL[method]}:{model}"


def _refuse_unless_it_asks_for_nothing(name: str, value: object) -> None:
    neutral = _ASKS_FOR_NOTHING.get(name)
    if neutral is None or type(value) is not type(neutral) or value != neutral:
        known = f"no such key; known are {', '.join(('method', 'model', *_NUMBERS))}"
        problem = f"{_INSTEAD[name]}; leave it out" if name in _INSTEAD else known
        raise ConfigError(f"{FIELD}.{name}", value, problem)


def _of_type(kind: type, what: str) -> Callable[[str, object], Any]:
    def check(name: str, value: object) -> Any:
        _require(type(value) is kind, name, value, f"must be {what}")
        return value

    return check


_text = _of_type(str, "a text")
_number = _of_type(int, "a whole number")


def _require(holds: bool, name: str, value: object, problem: str) -> None:
    if not holds:
        raise ConfigError(f"{FIELD}.{name}", value, problem)
