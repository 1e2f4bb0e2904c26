import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import ConfigError
from octavo.execution.loader import Checkpoint, open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import WRITABLE_TYPES, TensorType

ARCHITECTURES = ["llama", "granite", "phi3", "olmo2", "qwen2", "gemma2", "gemma3"]
TEXTS = ["What is the capital of France?", " naïve 你好 42\n\n  x", "", "tab\tnew\nline 🙂"]


def gguf(folder: Path, model: TinyModel) -> Checkpoint:
    return open_checkpoint([write_tiny_model(folder / "model.gguf", model)])


def huggingface(folder: Path, model: TinyModel) -> Checkpoint:
    return open_checkpoint([write_tiny_model(folder / "hf", model, format="safetensors") / "model.safetensors"])


LAYER_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
POST_NORM_NAMES = {
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
OWN_NAMES = {
    **dict.fromkeys(("olmo2", "gemma2", "gemma3"), POST_NORM_NAMES),
    "phi3": {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
}


def expected_name(architecture: str, name: str) -> str:
    """Of a GGUF tensor in a Hugging Face checkpoint."""
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if not name.startswith("blk."):
        return whole.get(name, "lm_head.weight")
    _, layer, part, suffix = name.split(".")
    names = LAYER_NAMES | OWN_NAMES.get(architecture, {})
    return f"model.layers.{layer}.{names[part]}.{suffix}"


def expected_gguf(model: TinyModel, name: str, hf: np.ndarray) -> np.ndarray:
    """What llama.cpp's converter makes of a Hugging Face tensor; row by row, unlike the writer."""
    if model.architecture in ("gemma2", "gemma3") and "norm" in name:
        return hf + np.float32(1)
    if model.architecture in ("llama", "granite") and name.endswith(("attn_q.weight", "attn_k.weight")):
        d = model.key_dim
        return np.stack([hf[r // d * d + r % d // 2 + (r % 2) * (d // 2)] for r in range(len(hf))])
    return hf


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head_dim", [16, 80])
def test_both_formats_hold_the_same_function(tmp_path: Path, architecture: Any, tied: bool, head_dim: int) -> None:
    model = TinyModel(architecture=architecture, tied=tied, head_dim=head_dim, layers=3, seed=5)
    ours, theirs = gguf(tmp_path, model), huggingface(tmp_path, model)
    assert len(ours.tensors) == len(theirs.tensors)
    assert ("output.weight" in ours.tensors) is ("lm_head.weight" in theirs.tensors) is (not tied)
    for name in ours.tensors:
        hf = theirs.float32(expected_name(architecture, name))
        np.testing.assert_array_equal(ours.float32(name), expected_gguf(model, name, hf), err_msg=name)


WRITTEN_IN_FILES = [t for t in TensorType if t.is_in_files and t in WRITABLE_TYPES]


@pytest.mark.parametrize("tensor_type", WRITTEN_IN_FILES, ids=lambda t: t.name)
def test_every_type(tmp_path: Path, tensor_type: TensorType) -> None:
    model = TinyModel(tensor_type=tensor_type, hidden=256, heads=4, intermediate=256)
    ours, theirs = gguf(tmp_path, model), huggingface(tmp_path, model)
    assert ours.tensors["blk.1.ffn_up.weight"].type is tensor_type
    assert ours.tensors["blk.1.ffn_norm.weight"].type is TensorType.F32
    in_safetensors = tensor_type if tensor_type.block_size == 1 else TensorType.F32
    assert {info.type for info in theirs.tensors.values()} == {in_safetensors}
    for name in ours.tensors:
        hf = theirs.float32(expected_name("llama", name))
        np.testing.assert_array_equal(ours.float32(name), expected_gguf(model, name, hf), err_msg=name)


def test_embedding_type(tmp_path: Path) -> None:
    model = TinyModel(tensor_type=TensorType.Q4_1, embedding_type=TensorType.Q8_0, tied=False)
    tensors = gguf(tmp_path, model).tensors
    assert (tensors["token_embd.weight"].type, tensors["output.weight"].type) == (TensorType.Q8_0, TensorType.Q8_0)
    assert tensors["blk.0.attn_q.weight"].type is TensorType.Q4_1


COMMON_KEYS = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "rope.freq_base",
}  # fmt: skip
OWN_KEYS = {
    "llama": {"vocab_size", "rope.dimension_count"},
    "granite": {
        "vocab_size", "rope.dimension_count", "embedding_scale", "attention.scale", "residual_scale", "logit_scale",
    },
    "phi3": {"vocab_size", "rope.dimension_count"},
    "olmo2": {"vocab_size", "rope.dimension_count"},
    "qwen2": set(),
    "gemma2": {"attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"},
    "gemma3": {"attention.key_length", "attention.value_length", "attention.sliding_window"},
}  # fmt: skip
TOKENIZER_KEYS = {
    "model",
    "pre",
    "tokens",
    "token_type",
    "bos_token_id",
    "eos_token_id",
    "padding_token_id",
    "add_bos_token",
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_metadata_keys_are_those_of_real_files(tmp_path: Path, architecture: Any) -> None:
    period = 2 if architecture == "gemma2" else 6
    metadata = gguf(tmp_path, TinyModel(architecture=architecture, window_period=period)).metadata
    prefix = f"{architecture}."
    keys = {key.removeprefix(prefix) for key in metadata if key.startswith(prefix)}
    assert keys - {"attention.key_length", "attention.value_length"} == (
        COMMON_KEYS | OWN_KEYS[architecture] - {"attention.key_length", "attention.value_length"}
    )
    assert {f"tokenizer.ggml.{key}" for key in TOKENIZER_KEYS} <= set(metadata)
    assert metadata["general.architecture"] == architecture
    assert metadata["general.quantization_version"] == 2


def test_metadata_of_unusual_heads_and_periods(tmp_path: Path) -> None:
    wide = gguf(tmp_path, TinyModel(architecture="qwen2", head_dim=96)).metadata
    assert (wide["qwen2.attention.key_length"], wide["qwen2.attention.value_length"]) == (96, 96)
    sliding = gguf(tmp_path, TinyModel(architecture="gemma3", window_period=3, window=7)).metadata
    assert sliding["gemma3.attention.sliding_window_pattern"] == 3
    assert sliding["gemma3.attention.sliding_window"] == 7


def test_config_json(tmp_path: Path) -> None:
    model = TinyModel(architecture="gemma3", layers=5, window=9, window_period=3, head_dim=32, kv_heads=1)
    config = huggingface(tmp_path, model).metadata
    assert config["model_type"] == "gemma3_text"
    sliding, full = "sliding_attention", "full_attention"
    assert config["layer_types"] == [sliding, sliding, full, sliding, sliding]
    assert (config["sliding_window"], config["head_dim"], config["num_key_value_heads"]) == (9, 32, 1)
    assert config["query_pre_attn_scalar"] == 32


@pytest.mark.parametrize("file_format", ["gguf", "safetensors"])
def test_same_seed_same_bytes(tmp_path: Path, file_format: Any) -> None:
    def contents(folder: str, seed: int) -> list[bytes]:
        made = write_tiny_model(tmp_path / folder / "m.gguf", TinyModel(seed=seed), format=file_format)
        files = sorted(made.iterdir()) if made.is_dir() else [made]
        return [file.read_bytes() for file in files]

    assert contents("a", 3) == contents("b", 3)
    assert contents("c", 4) != contents("a", 3)


def test_more_layers_leave_the_first_ones_as_they_are(tmp_path: Path) -> None:
    short, long = gguf(tmp_path / "a", TinyModel(layers=1)), gguf(tmp_path / "b", TinyModel(layers=3))
    np.testing.assert_array_equal(short.raw("blk.0.ffn_up.weight"), long.raw("blk.0.ffn_up.weight"))


def test_shards(tmp_path: Path) -> None:
    model = TinyModel()
    whole = gguf(tmp_path, model)
    first = write_tiny_model(tmp_path / "split.gguf", model, shards=3)
    assert first.name == "split-00001-of-00003.gguf"
    split = open_checkpoint(sorted(tmp_path.glob("split-*.gguf")))
    folder = write_tiny_model(tmp_path / "sharded", model, format="safetensors", shards=3)
    sharded = open_checkpoint(sorted(folder.glob("*.safetensors")))
    assert len({info.file for info in sharded.tensors.values()}) == 3
    for name in whole.tensors:
        np.testing.assert_array_equal(split.raw(name), whole.raw(name))
        hf = sharded.float32(expected_name("llama", name))
        np.testing.assert_array_equal(whole.float32(name), expected_gguf(model, name, hf))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"layers": 0}, "layers"),
        ({"kv_heads": 3}, "kv_heads"),
        ({"hidden": 65}, "hidden"),
        ({"head_dim": 9}, "head_dim"),
        ({"tensor_type": TensorType.Q4_K}, "hidden"),
        ({"tensor_type": TensorType.Q8_0, "intermediate": 48}, "intermediate"),
        ({"tensor_type": TensorType.Q8_0, "head_dim": 10}, "heads"),
        ({"embedding_type": TensorType.Q6_K}, "hidden"),
        ({"rotary_dim": 8}, "rotary_dim"),
        ({"architecture": "phi3", "rotary_dim": 18}, "rotary_dim"),
        ({"architecture": "gemma2", "window_period": 3}, "window_period"),
    ],
)
def test_sizes_that_do_not_go_together(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TinyModel(**fields)
    assert caught.value.field == named


def test_an_unknown_architecture_is_told_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"architecture='qwen3moe': must be one of llama, .*, qwen3_moe"):
        TinyModel(architecture="qwen3moe")  # type: ignore[arg-type]


def test_vocabulary_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"vocab_size=258: must be at least 259"):
        gguf(tmp_path, TinyModel(vocab_size=258))
    with pytest.raises(ConfigError, match="no gemma3 model has such a vocabulary"):
        gguf(tmp_path, TinyModel(architecture="gemma3", vocabulary="bpe"))
    with pytest.raises(ConfigError, match=r"shards=0: must be in \[1, 20\]"):
        write_tiny_model(tmp_path / "m.gguf", shards=0)


# --- the vocabulary ----------------------------------------------------------------------------------------------

VOCABULARIES = [("llama", "bpe"), ("llama", "spm"), ("qwen2", "bpe"), ("gemma3", "spm")]


@pytest.mark.parametrize(("architecture", "vocabulary"), VOCABULARIES)
def test_text_survives_the_tokenizer(tmp_path: Path, architecture: Any, vocabulary: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = TinyModel(architecture=architecture, vocabulary=vocabulary)
    folder = write_tiny_model(tmp_path / "hf", model, format="safetensors")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids) == text
        assert max(ids, default=0) < model.vocab_size
    words = tokenizer.encode("the capital of France").ids
    assert len(words) <= 6, "merges should join common words"


@pytest.mark.parametrize(("architecture", "vocabulary"), VOCABULARIES)
def test_vocabulary_is_the_same_in_both_formats(tmp_path: Path, architecture: Any, vocabulary: Any) -> None:
    model = TinyModel(architecture=architecture, vocabulary=vocabulary)
    metadata = gguf(tmp_path, model).metadata
    folder = write_tiny_model(tmp_path / "hf", model, format="safetensors")
    document = json.loads((folder / "tokenizer.json").read_text())
    by_id = {i: token for token, i in document["model"]["vocab"].items()}
    by_id |= {added["id"]: added["content"] for added in document["added_tokens"]}
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert len(tokens) == len(types) == model.vocab_size == len(set(tokens))
    assert [by_id.get(i, tokens[i]) for i in range(len(tokens))] == tokens
    assert {i for i in range(len(tokens)) if i not in by_id} == set(np.flatnonzero(types == 5).tolist())
    assert {added["id"] for added in document["added_tokens"]} == set(
        np.flatnonzero(np.isin(types, (2, 3, 4))).tolist()
    )
    if vocabulary == "bpe":
        assert [" ".join(merge) for merge in document["model"]["merges"]] == metadata["tokenizer.ggml.merges"]
    else:
        assert len(metadata["tokenizer.ggml.scores"]) == len(tokens)
        assert metadata["tokenizer.ggml.model"] == "llama"


@pytest.mark.parametrize(("architecture", "text"), [("qwen2", "a<tool_call>b"), ("gemma3", "a\n\nb\n\n\nc")])
def test_user_defined_tokens_are_text_of_one_token(tmp_path: Path, architecture: Any, text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = TinyModel(architecture=architecture)
    folder = write_tiny_model(tmp_path / "hf", model, format="safetensors")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    metadata = gguf(tmp_path, model).metadata
    user_defined = set(np.flatnonzero(metadata["tokenizer.ggml.token_type"] == 4).tolist())
    ids = tokenizer.encode(text).ids
    assert user_defined & set(ids)
    assert tokenizer.decode(ids) == text


def test_chat_template_can_be_left_out(tmp_path: Path) -> None:
    assert "im_start" in gguf(tmp_path, TinyModel()).metadata["tokenizer.chat_template"]
    assert "tokenizer.chat_template" not in gguf(tmp_path, TinyModel(chat_template=False)).metadata
    folder = write_tiny_model(tmp_path / "hf", TinyModel(chat_template=False), format="safetensors")
    assert "chat_template" not in json.loads((folder / "tokenizer_config.json").read_text())


# --- oracles -----------------------------------------------------------------------------------------------------


OTHERS = [("granite", "bpe"), ("phi3", "spm"), ("olmo2", "bpe"), ("gemma2", "spm")]


@pytest.mark.parametrize(("architecture", "vocabulary"), [*VOCABULARIES, *OTHERS])
def test_transformers_runs_the_folder(tmp_path: Path, architecture: Any, vocabulary: Any) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = TinyModel(architecture=architecture, vocabulary=vocabulary, layers=2, head_dim=32)
    folder = write_tiny_model(tmp_path / "hf", model, format="safetensors")
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = loaded(ids).logits
    assert logits.shape == (1, ids.shape[1], model.vocab_size)
    assert 1.5 < logits.std().item() < 6
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat.count("Hi") == 1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_have_the_ids_of_the_file_whoever_reads_it(architecture: Any, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    folder = write_tiny_model(tmp_path / "hf", TinyModel(architecture=architecture), format="safetensors")
    document = json.loads((folder / "tokenizer.json").read_text())
    ids = document["model"]["vocab"] | {token["content"]: token["id"] for token in document["added_tokens"]}
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert {token: tokenizer.token_to_id(token) for token in ids} == ids
    assert sorted(ids.values()) == sorted(set(ids.values()))


def test_public_package_reads_the_gguf(tmp_path: Path) -> None:
    gguf_package = pytest.importorskip("gguf")
    path = write_tiny_model(tmp_path / "m.gguf", TinyModel(tensor_type=TensorType.Q4_0))
    reader = gguf_package.GGUFReader(path)
    ours = open_checkpoint([path])
    assert {
        t.name: (t.tensor_type.name, tuple(int(d) for d in reversed(t.shape)), int(t.data_offset))
        for t in reader.tensors
    } == {info.name: (info.type.name, info.shape, info.offset) for info in ours.tensors.values()}
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ours.metadata["tokenizer.ggml.tokens"]
