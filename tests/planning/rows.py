"""Each row of `tests/data/ledger/rows.json` as a call of public ledger functions, in base units.

Inputs are shipped configs, a hardware profile and the scenario that a row names (prompt, batch, block size). `rounded`
marks where the printed figure went on from a rounded one.
"""

from collections.abc import Callable

from octavo.kv.spec import LatentSpec
from octavo.planning import (
    adapters,
    communication,
    durations,
    handoff,
    images,
    kv,
    logits,
    parameters,
    roofline,
    speculation,
    steps,
)
from octavo.planning.cited import cited
from octavo.planning.hardware import hardware_named
from octavo.planning.kv import FORMATS, PLAIN_FP8
from octavo.planning.models import shipped_model

from .conventions import as_kib_thousands, as_mib_called_mb, rounded, whole_billions

GB, MB, MS = 1e9, 1e6, 1e-3
BF16 = FORMATS["bf16"]
BIG = shipped_model("llama-3-70b").shape
SMALL = shipped_model("llama-3-8b").shape
DRAFT = shipped_model("llama-3.2-1b").shape
LATENT = shipped_model("deepseek-v3").shape
OLD = shipped_model("llama-2-7b").shape
H100 = hardware_named("h100x8")
A100 = hardware_named("a100")

PROMPT, OUTPUT, TP, BLOCK = 2050, 300, H100.num_devices, 16
TOTAL = durations.total_tokens(PROMPT, OUTPUT)
PEAK, BANDWIDTH = H100.device.peak("bf16"), H100.device.memory_bytes_per_s
assert H100.network is not None
assert H100.host_link is not None
LINK = H100.network.bytes_per_s
P = parameters.num_parameters(BIG)
WEIGHTS = parameters.weight_bytes(P, 16)
WEIGHTS_ON_DEVICE = parameters.even_share(WEIGHTS, TP)
TOKEN = kv.kv_bytes_per_token(BIG, BF16)
TOKEN_ON_DEVICE = kv.kv_bytes_per_token_per_device(BIG, BF16, TP)
REQUEST = kv.kv_bytes(BIG, TOTAL, BF16)
REQUEST_ON_DEVICE = TOTAL * TOKEN_ON_DEVICE
MIXED_REQUEST_ON_DEVICE = as_kib_thousands(REQUEST_ON_DEVICE)
RIDGE = roofline.ridge_flops_per_byte(PEAK, BANDWIDTH)
PRINTED_RIDGE = rounded(RIDGE, 1)
PREFILL_BOUND = roofline.compute_bound_s(roofline.dense_flops(P, PROMPT), PEAK, TP)
STEP = cited("measured_decode_step_s")
MFU = cited("prefill_share_of_peak")
PREFILL = rounded(roofline.time_at_share(rounded(PREFILL_BOUND, 0, MS), MFU), 0, MS)
DECODE = durations.steps_s(OUTPUT, STEP)
PRINTED_WEIGHTS = rounded(WEIGHTS_ON_DEVICE, 1, GB)
STRICT_WEIGHTS = rounded(WEIGHTS_ON_DEVICE, 3, GB)
SLOW_STEP = roofline.scaled_step_s(STEP, speculation.step_tokens(128, 3), rounded(RIDGE, -2))
SPECULATIVE_STEPS = speculation.num_steps(OUTPUT, 2.5)
SPECULATIVE_DECODE = cited("measured_speculative_decode_s")
LLAVA_TOKENS = images.image_tokens(336, 14)
QWEN_TOKENS = images.image_tokens(1036, 14, 2)
MEMORY = H100.device.memory_bytes


def mixed_decode_bound(num_requests: int) -> float:
    return roofline.decode_bound_s(
        PRINTED_WEIGHTS, BANDWIDTH, num_requests=num_requests, kv_bytes=MIXED_REQUEST_ON_DEVICE
    )


def strict_decode_bound(num_requests: int) -> float:
    return roofline.decode_bound_s(STRICT_WEIGHTS, BANDWIDTH, num_requests=num_requests, kv_bytes=REQUEST_ON_DEVICE)


def slots(num_slots: int) -> float:
    return adapters.slot_bytes(BIG, num_slots=num_slots, rank=16, value_bytes=2, tp=TP)


def pool(num_devices: int) -> float:
    return kv.kv_pool_bytes(num_devices, 0.9 * MEMORY, rounded(WEIGHTS, 3, GB))


def capture(num_tokens: int) -> int:
    bucket = steps.capture_bucket(num_tokens, steps.capture_limit_tokens(256))
    assert bucket is not None
    return bucket


def gap_over_tpot() -> float:
    times = (0.3, 0.32, 0.36, 0.39)
    return durations.mean_token_gap_s(times) / durations.tpot_s(times[-1], times[0], len(times))


def latent_token() -> float:
    cache = LATENT.layers[0].cache
    assert isinstance(cache, LatentSpec)
    return kv.kv_bytes_per_token_per_layer(cache, BF16)


def layer_token() -> float:
    return kv.kv_bytes_per_token_per_layer(BIG.layers[0].cache, BF16)


MODEL_ROWS: dict[str, Callable[[], float]] = {
    "p1.params": lambda: P,
    "p1.kv_layer": layer_token,
    "p1.kv_token": lambda: TOKEN,
    "p1.req_tokens": lambda: TOTAL,
    "p1.req_kv": lambda: REQUEST,
    "p1.req_kv_MB": lambda: REQUEST,
    "p1.w_gpu": lambda: WEIGHTS_ON_DEVICE,
    "p1.kv_gpu_req": lambda: REQUEST_ON_DEVICE,
    "p1.kv_gpu_req_SI": lambda: REQUEST_ON_DEVICE,
    "p1.kv_read_256": lambda: 256 * MIXED_REQUEST_ON_DEVICE,
    "p5.kv_util": lambda: cited("kv_use_before_paging"),
    "p5.kv_gpu_token": lambda: TOKEN_ON_DEVICE,
    "p5.block": lambda: kv.block_bytes(BLOCK, TOKEN_ON_DEVICE),
    "p5.blocks_2050": lambda: kv.num_blocks(PROMPT, BLOCK),
    "p5.blocks_2000": lambda: kv.num_full_blocks(2000, BLOCK),
    "p5.rem_2005": lambda: kv.num_tokens_beyond_full_blocks(2005, BLOCK),
    "p5.blocks_2350": lambda: kv.num_blocks(TOTAL, BLOCK),
    "p5.second_prefill": lambda: kv.num_tokens_to_prefill(PROMPT, kv.num_full_blocks(2000, BLOCK) * BLOCK),
    "p5.mha": lambda: kv.kv_bytes_per_token(kv.as_multi_head(BIG), BF16),
    "p5.fp8": lambda: kv.kv_bytes_per_token(BIG, PLAIN_FP8),
    "p5.shrink": lambda: kv.kv_bytes_per_token(kv.as_multi_head(BIG), BF16) / kv.kv_bytes_per_token(BIG, PLAIN_FP8),
    "p5.mla": latent_token,
    "p5.mla_ratio": lambda: layer_token() / latent_token(),
    "p5.ratio70": lambda: kv.kv_head_share(BIG),
    "p5.ratio8": lambda: kv.kv_head_share(SMALL),
    "p5.ratio_dsv3": lambda: kv.latent_share(LATENT, key_dim=128),
    "p6.w_fp16": lambda: parameters.weight_bytes(whole_billions(P), 16),
    "p14.w7b": lambda: parameters.weight_bytes(rounded(parameters.num_parameters(OLD), -6), 16),
    "A1.kv": lambda: kv.kv_bytes_per_token(SMALL, BF16),
    "A1.req": lambda: kv.kv_bytes(SMALL, 8192, BF16),
    "A2.blocks": lambda: kv.num_blocks(4096, BLOCK),
    "A2.kv": lambda: 4096 * TOKEN_ON_DEVICE,
    "B4.fit": lambda: kv.num_requests_that_fit(MEMORY - STRICT_WEIGHTS, REQUEST_ON_DEVICE),
    "B4.fit_util": lambda: kv.num_requests_that_fit(0.9 * MEMORY - STRICT_WEIGHTS, REQUEST_ON_DEVICE),
    "B4.fit_printed": lambda: kv.in_requests(MEMORY - PRINTED_WEIGHTS, rounded(as_mib_called_mb(REQUEST), 0, MB)),
    "p7.logits": lambda: logits.logits_row_bytes(BIG.vocab_size),
    "p7.bitmask_words": lambda: logits.bitmask_words(BIG.vocab_size),
    "p7.bitmask": lambda: logits.bitmask_row_bytes(BIG.vocab_size),
    "p7.bitmask_alloc": lambda: logits.bitmask_rows(256, 3),
    "p7.penalty": lambda: logits.penalty_bytes(256, BIG.vocab_size),
}

TIME_ROWS: dict[str, Callable[[], float]] = {
    "p1.ridge": lambda: RIDGE,
    "p1.prefill_flops": lambda: roofline.dense_flops(P, PROMPT),
    "p1.prefill_lb": lambda: PREFILL_BOUND,
    "p1.prefill_lb_attn": lambda: roofline.compute_bound_s(
        roofline.dense_flops(P, PROMPT) + roofline.causal_attention_flops(BIG, PROMPT), PEAK, TP
    ),
    "p1.ai_prefill": lambda: roofline.arithmetic_intensity(PROMPT, 2),
    "p1.ai_decode": lambda: roofline.arithmetic_intensity(1, 2),
    "p1.ai_ratio": lambda: roofline.flops_per_weight(PROMPT) / PRINTED_RIDGE,
    "p1.decode_lb_1": lambda: roofline.decode_bound_s(PRINTED_WEIGHTS, BANDWIDTH),
    "p1.decode_lb_64": lambda: mixed_decode_bound(64),
    "p1.decode_lb_256": lambda: mixed_decode_bound(256),
    "p1.decode_lb_64_SI": lambda: strict_decode_bound(64),
    "p1.decode_lb_256_SI": lambda: strict_decode_bound(256),
    "p1.static_batch": lambda: durations.static_batch_slot_use((12, 7, 5, 3), 4),
    "p2.tpot_def": lambda: durations.tpot_s(9.27, 0.3, OUTPUT),
    "p2.e2e": lambda: durations.e2e_s(0.3, 0.03, OUTPUT),
    "p2.e2e_share": lambda: durations.decode_share(0.3, 0.03, OUTPUT),
    "p2.itl_samples": lambda: durations.num_token_gaps(OUTPUT),
    "p2.decode_mfu": lambda: roofline.model_flops_share(roofline.dense_flops(P, 1), STEP, PEAK, TP),
    "p4.chunks": lambda: len(steps.chunk_sizes(PROMPT, 512)),
    "p4.last_chunk": lambda: steps.chunk_sizes(PROMPT, 512)[-1],
    "p4.mixed": lambda: steps.step_tokens(200, 1800),
    "p4.budget_share": lambda: steps.budget_share(256, 2048),
    "p5.pcie5": lambda: H100.host_link.bytes_per_s,  # type: ignore[union-attr]
    "p6.prefill": lambda: roofline.time_at_share(rounded(PREFILL_BOUND, 2, MS), MFU),
    "p6.decode_total": lambda: DECODE,
    "p6.prefill_share": lambda: durations.share(PREFILL, DECODE),
    "p6.decode_share": lambda: durations.share(DECODE, PREFILL),
    "p6.step": lambda: STEP,
    "p6.bw_eff": lambda: roofline.share_of_bound(
        rounded(roofline.decode_bound_s(PRINTED_WEIGHTS, BANDWIDTH), 3, MS), STEP
    ),
    "p6.capture": lambda: len(steps.capture_sizes(512)),
    "p6.segments": lambda: steps.num_graph_segments(BIG.num_layers),
    "p6.graph_gain": lambda: steps.launch_share(
        int(cited("kernels_per_layer")) * BIG.num_layers, cited("kernel_launch_s"), STEP
    ),
    "p6.fp8_ratio": lambda: H100.device.speed_up("fp8", "bf16"),
    "p14.py_ms": lambda: durations.control_plane_s(cited("schedule_s"), cited("prepare_s")),
    "p14.py_share": lambda: durations.overhead_share(
        durations.control_plane_s(cited("schedule_s"), cited("prepare_s")), 0.015
    ),
    "p14.a100": lambda: roofline.memory_bound_s(
        rounded(parameters.weight_bytes(parameters.num_parameters(OLD), 16), 1, GB),
        rounded(A100.device.memory_bytes_per_s, 1, 1e12),
    ),
    "p14.tput1": lambda: roofline.output_tokens_per_s(1, STEP),
    "p14.tput32": lambda: roofline.output_tokens_per_s(32, 0.016),
    "p14.itl": gap_over_tpot,
    "A3.lb": lambda: roofline.decode_bound_s(
        rounded(parameters.even_share(parameters.weight_bytes(P, 8), TP), 1, GB), BANDWIDTH
    ),
    "A4.e2e": lambda: durations.e2e_s(0.5, 0.04, 200),
    "A4.dec": lambda: durations.decode_s(0.04, 200),
    "A4.share": lambda: durations.decode_share(0.5, 0.04, 200),
    "A5.rps": lambda: durations.requests_per_s(10, 10),
    "A5.goodput": lambda: durations.goodput_per_s(10, ({0, 1, 2}, {3, 4}), 10),
    "A6.s1": lambda: steps.chunk_sizes(6000, 4096, 100)[0],
    "A6.s2": lambda: steps.chunk_sizes(6000, 4096, 100)[1],
    "A6.s3": lambda: steps.num_decodes_after(100),
    "A7.max": lambda: steps.capture_limit_tokens(256),
    "A7.b13": lambda: capture(13),
    "A7.b300": lambda: capture(300),
    "B4.step512": lambda: strict_decode_bound(512),
}

SPECULATION_ROWS: dict[str, Callable[[], float]] = {
    "p7.boundary": lambda: roofline.boundary_tokens(PRINTED_RIDGE, 2),
    "p7.spec_steps": lambda: SPECULATIVE_STEPS,
    "p7.spec_step_time": lambda: speculation.implied_step_s(SPECULATIVE_DECODE, SPECULATIVE_STEPS),
    "p7.spec_speedup": lambda: speculation.speed_up(DECODE, SPECULATIVE_DECODE),
    "p7.spec_b128_tokens": lambda: speculation.step_tokens(128, 3),
    "p7.spec_b128_step": lambda: SLOW_STEP,
    "p7.spec_slow": lambda: speculation.step_ratio(rounded(SLOW_STEP, 2, MS), mixed_decode_bound(128)),
    "p7.spec_throughput": lambda: speculation.throughput_factor(
        2.5, rounded(speculation.step_ratio(SLOW_STEP, mixed_decode_bound(128)), 1)
    ),
    "p7.b1_tpot": lambda: speculation.tpot_s(rounded(SLOW_STEP, 0, MS), 2.5),
    "p7.ngram": lambda: speculation.throughput_factor(3.5, 1),
    "p7.draft1b": lambda: speculation.draft_kv_share(kv.kv_bytes_per_token(DRAFT, BF16), TOKEN),
    "A8.a": lambda: speculation.step_tokens(48, 5),
    "A8.b": lambda: speculation.step_tokens(96, 3),
}

MANY_DEVICES_ROWS: dict[str, Callable[[], float]] = {
    "p8.allreduce": lambda: communication.num_all_reduces(BIG, TP),
    "p8.ar_bytes": lambda: communication.all_reduce_bytes(1, BIG.hidden_size),
    "p8.ar_step": lambda: communication.step_all_reduce_bytes(BIG, TP, 1),
    "p8.pp_layers": lambda: communication.layers_per_stage(BIG.num_layers, 8),
    "p8.pp_p2p": lambda: communication.num_stage_handoffs(8),
    "p8.tp_ep": lambda: communication.num_devices_of_experts(8, 8),
    "p8.dp_pool": lambda: pool(4) / pool(8),
    "p15.attn_tp": lambda: communication.attention_tp_size(8, 8, 1),
    "p9.kv2048": lambda: kv.kv_bytes(BIG, 2048, BF16),
    "p9.kv2048_rank": lambda: 2048 * TOKEN_ON_DEVICE,
    "p9.link": lambda: LINK,
    "p9.t_shared": lambda: handoff.transfer_s(kv.kv_bytes(BIG, 2048, BF16), LINK),
    "p9.t_8way": lambda: handoff.transfer_s(kv.kv_bytes(BIG, 2048, BF16), LINK, num_links=8),
    "p9.kv4096": lambda: kv.kv_bytes(BIG, 4096, BF16),
    "p9.kv4096_rank": lambda: 4096 * TOKEN_ON_DEVICE,
    "p9.t4096_rank": lambda: handoff.transfer_s(4096 * TOKEN_ON_DEVICE, LINK),
    "p9.pending": lambda: handoff.pending_kv_bytes(20_000, 0.2, TOKEN),
    "p9.kv2050": lambda: kv.kv_bytes(BIG, PROMPT, BF16),
    "p9.t2050": lambda: handoff.transfer_s(kv.kv_bytes(BIG, PROMPT, BF16), LINK),
    "A9.kv": lambda: kv.kv_bytes(BIG, 8192, BF16),
    "A9.rank": lambda: 8192 * TOKEN_ON_DEVICE,
    "A9.shared": lambda: handoff.transfer_s(kv.kv_bytes(BIG, 8192, BF16), LINK),
    "A9.par": lambda: handoff.transfer_s(8192 * TOKEN_ON_DEVICE, LINK),
    "A9.steps": lambda: handoff.num_steps_covered(
        rounded(handoff.transfer_s(kv.kv_bytes(BIG, 8192, BF16), LINK), 1, MS), STEP
    ),
}

ADAPTER_AND_IMAGE_ROWS: dict[str, Callable[[], float]] = {
    "p11.lora_layer": lambda: adapters.elements_per_rank(BIG.layers[0], TP),
    "p11.lora_slots": lambda: slots(8),
    "p11.lora_reqs": lambda: kv.in_requests(rounded(slots(8), 1, MB), MIXED_REQUEST_ON_DEVICE),
    "p11.launches": lambda: adapters.num_launches(BIG),
    "p11.lora_flops": lambda: adapters.flops_share(BIG, 16, P),
    "A10.slots": lambda: slots(16),
    "A10.reqs": lambda: kv.in_requests(rounded(slots(16), 1, MB), MIXED_REQUEST_ON_DEVICE),
    "A10.loaded3": lambda: slots(16),
    "p11.img_llava": lambda: LLAVA_TOKENS,
    "p11.img_qwen": lambda: QWEN_TOKENS,
    "p11.img_kv_lo": lambda: kv.kv_bytes(BIG, LLAVA_TOKENS, BF16),
    "p11.img_kv_hi": lambda: kv.kv_bytes(BIG, QWEN_TOKENS, BF16),
    "p11.img_enc_lo": lambda: images.encoder_output_bytes(LLAVA_TOKENS, BIG.hidden_size),
    "p11.img_enc_hi": lambda: images.encoder_output_bytes(QWEN_TOKENS, BIG.hidden_size),
    "p11.img_ratio": lambda: images.kv_per_encoder_byte(TOKEN, images.encoder_output_bytes(1, BIG.hidden_size)),
    "p11.enc_budget": lambda: images.encoder_budget_tokens(2048),
    "p3.sched_loc": lambda: cited("scheduler_source_lines"),
    "p15.defaults": lambda: cited("default_budget_tokens"),
    "p15.vars": lambda: len(durations.BENCHMARK_VARIABLES),
}

ROWS = MODEL_ROWS | TIME_ROWS | SPECULATION_ROWS | MANY_DEVICES_ROWS | ADAPTER_AND_IMAGE_ROWS
