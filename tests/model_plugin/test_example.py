"""The example package: installed as its users would install it, found by its entry point, held against transformers."""

import importlib.util
import json
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.execution.loader.safetensors_writer import SafeTensor, write_safetensors
from octavo.model.registry import define_model
from tests.model_plugin.example import CONFIG, EXAMPLE, header

PROMPT = list(range(7, 67))
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, detokenize=False)
FIELDS = {"skip_tokenizer_init": True, "threads": 1, "kv_cache_memory_bytes": 1 << 20}

needs_oracle = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")),
    reason="torch and transformers are not installed: pip install 'octavo[oracle]'",
)


def write_checkpoint(folder: Path) -> Path:
    """A model of random weights, its tensors those that the plug-in asks for."""
    definition = define_model(header())
    rng = np.random.default_rng(0)
    tensors = []
    for name, weight in definition.program.weights.items():
        values = (rng.standard_normal(weight.shape) * 0.3).astype(np.float32)
        stored = definition.sources[name].name
        tensors.append(SafeTensor(stored, "F32", weight.shape, [values.reshape(-1).view(np.uint8)]))
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def answer(model: Path, **fields: object) -> tuple[list[int], list[float]]:
    with LLM(str(model), **{**FIELDS, **fields}) as llm:
        (output,) = llm.generate([PROMPT], GREEDY.replace(logprobs=1))
    (choice,) = output.outputs
    assert choice.error is None
    return list(choice.token_ids), [row.logprobs[0] for row in choice.logprobs or ()]


def test_the_package_says_what_it_brings(installed: Path) -> None:
    points = distribution("octavo-stablelm").entry_points.select(group="octavo.models")
    assert [(point.name, point.value) for point in points] == [("stablelm", "octavo_stablelm:STABLELM")]


def test_without_it_the_architecture_is_unknown(absent: None) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'StableLmForCausalLM' is not one.*group octavo\.models"):
        define_model(header())


def test_its_models_run_as_others_do(installed: Path, tmp_path: Path) -> None:
    """The promise holds for plug-ins, too: same tokens and bits, however the prompt is cut."""
    model = write_checkpoint(tmp_path / "model")
    whole = answer(model)
    assert len(set(whole[0])) > 3
    assert answer(model, long_prefill_token_threshold=7) == whole
    native, reference = (answer(model, executor=name, kv_cache_dtype="fp32") for name in ("native", "reference"))
    assert native[0] == reference[0]
    np.testing.assert_allclose(native[1], reference[1], atol=1e-4)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("qk_layernorm", True, UnsupportedModelError),
        ("hidden_act", "gelu", UnsupportedModelError),
        ("rope_scaling", {"type": "linear", "factor": 2.0}, UnsupportedModelError),
        ("hidden_size", None, ModelFileError),
        ("num_attention_heads", 5, ModelFileError),
    ],
)
def test_what_it_does_not_compute_is_named(installed: Path, key: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=key):
        define_model(header(**{key: value}))


def check_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("model_plugin_check", EXAMPLE / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_oracle
@pytest.mark.filterwarnings("default")  # what other libraries warn of is not ours to mend
def test_its_check_agrees_with_transformers(installed: Path, tmp_path: Path) -> None:
    check = check_module()
    for name, config in check.CASES.items():
        folder = tmp_path / name
        wanted = check.expected(check.make(folder, **config))
        assert check.difference(folder, wanted) < 1e-4, name
        changed = json.loads((folder / "config.json").read_text()) | {"layer_norm_eps": 0.1}
        (folder / "config.json").write_text(json.dumps(changed))
        assert check.difference(folder, wanted) > 1e-2, f"{name}: another model passes"


def test_it_is_short() -> None:
    assert len((EXAMPLE / "octavo_stablelm.py").read_text().splitlines()) < 150
