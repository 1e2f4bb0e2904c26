"""`octavo ledger` as users type it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from octavo.bench import this_machine
from octavo.cli.main import app
from octavo.errors import ConfigError, ModelFileError, ModelNotFoundError
from octavo.platform.peaks import Peaks
from tests.cli.test_main import octavo

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"


def ledger(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["ledger", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def figures(*arguments: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(ledger(*arguments, "--json"))
    return content


def test_flags_reach_what_they_name() -> None:
    base = ("-m", "llama-3-70b", "--hardware", "h100x8")
    plain = figures(*base)
    assert plain["parallel"] == {"tp": 8, "pp": 1}
    assert (plain["workload"]["prompt_tokens"], plain["workload"]["output_tokens"]) == (2050, 300)
    changed = figures(*base, "--tp", "4", "--pp", "2", "--prompt", "1000", "--output", "10", "--batch", "7")
    assert changed["parallel"] == {"tp": 4, "pp": 2}
    assert changed["request_tokens"] == 1010
    assert changed["verify_tokens_per_step"] == 28
    assert changed["stage_handoffs_per_step"] == 1
    other = figures(
        *base, "--weights", "fp8", "--kv-cache-dtype", "int8", "--block-size", "32", "--chunk-tokens", "100"
    )
    assert other["weight_bytes"] * 2 == plain["weight_bytes"]
    assert other["kv_bytes_per_token"] == 80 * 2 * 8 * (128 + 4)
    assert other["prompt_blocks"] == 65
    assert other["prefill_chunks"] == 21
    more = figures(*base, "--drafts", "0", "--adapter-slots", "16", "--image-px", "28", "--max-num-seqs", "8")
    assert more["verify_step_ratio"] == 1
    assert more["adapter_slot_bytes_per_device"] == 2 * plain["adapter_slot_bytes_per_device"]
    assert more["image_tokens"] == 4
    assert more["bitmask_rows"] == 8
    assert figures(*base, "--memory-share", "1")["kv_pool_requests"] > plain["kv_pool_requests"]
    assert figures(*base, "--adapter-rank", "32")["adapter_flops_share"] == 2 * plain["adapter_flops_share"]
    assert figures(*base, "--image-patch-px", "28")["image_tokens"] == 144


def test_a_draft_model_must_earn_its_steps() -> None:
    base = ("-m", "llama-3-70b", "--hardware", "h100x8", "--batch", "1")
    free, paid = figures(*base), figures(*base, "--draft-model", "llama-3.2-1b")
    assert paid["draft_kv_share"] == pytest.approx(0.1)
    share = paid["drafting_s"] / paid["decode_bound_s"]
    assert 0.03 < share < 0.1
    assert paid["break_even_tokens_per_step"] == pytest.approx(free["break_even_tokens_per_step"] + share)
    assert "drafting_s" not in free


def test_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    monkeypatch.setattr(
        this_machine, "measure_peaks", lambda threads, seconds: Peaks(threads, "portable", 2e10, 4e11, 1e11)
    )
    first = CliRunner().invoke(app, ["ledger", "--json"])
    assert "measuring this machine" in first.stderr
    assert json.loads(first.stdout)["memory_bytes_per_s"] == 2e10
    second = CliRunner().invoke(app, ["ledger", "--hardware", "cpu", "--json"])
    assert second.stderr == ""
    assert json.loads(second.stdout) == json.loads(first.stdout)


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        (("-m", "no-such"), ModelNotFoundError, "the ledger knows deepseek-v3, .*any config.json or .gguf file"),
        (("--hardware", "no-such"), ConfigError, "--hardware='no-such': is not known; choose one of cpu"),
        (("--hardware", "h100x8", "--tp", "4"), ConfigError, "--tp=4: 9 attention heads"),
        (("--hardware", "h100", "--prompt", "9000"), ConfigError, "--prompt.*=9000.*ask for at most"),
        (("--hardware", "h100", "--weights", "fp7"), ConfigError, "--weights='fp7': is no number format"),
        (("-m", __file__), ModelFileError, "neither GGUF nor safetensors"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments: tuple[str, ...], kind: type, told: str) -> None:
    error = CliRunner().invoke(app, ["ledger", *arguments]).exception
    assert isinstance(error, kind)
    assert re.search(told, str(error))
    assert "\n" not in str(error)


def test_as_users_start_it() -> None:
    done = octavo("ledger", "-m", "qwen3-8b", "--hardware", "h100", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["kv_bytes_per_token"] == 147_456
    assert octavo("ledger", "--hardware", "h100", "--batch", "0").stderr == "octavo: --batch=0: must be positive\n"


def test_the_page_shows_what_the_command_prints() -> None:
    blocks = re.findall(r"```\n\$ octavo (ledger[^\n]*)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    for command, shown in blocks:
        assert shown == ledger(*command.split()[1:])
