"""The sections of a machine's ledger, one function each: public ledger functions, called for one deployment."""

from octavo.model.cost import StepShape
from octavo.planning import communication, handoff, images, kv, logits, parameters, roofline, speculation, steps
from octavo.planning.adapters import elements_per_rank, flops_share, num_launches, slot_bytes
from octavo.planning.deployment import Deployment
from octavo.planning.durations import decode_share, e2e_s
from octavo.planning.figures import Figure, Section
from octavo.planning.step_work import StepWork, decode_step, prefill_step, step_bound_s, step_work

_ADAPTER_VALUE_BYTES = 2
_ACTIVATION_BYTES = 2


def weights_section(d: Deployment) -> Section:
    """Parameters, and what they weigh."""
    fits = "" if d.pool_bytes_per_device > 0 else "more than the device may take: choose more devices or fewer bits"
    return Section(
        "weights",
        (
            Figure("parameters", d.num_parameters, "parameters"),
            Figure("active_parameters", parameters.num_active_parameters(d.shape), "parameters", "met by one token"),
            Figure("bits_per_weight", d.model.weights.bits_per_weight, "bits", d.model.weights.name),
            Figure("weight_bytes", d.weight_bytes, "GB"),
            Figure("weight_bytes_per_device", d.weight_bytes_per_device, "GB", fits or "on the fullest device"),
        ),
    )


def kv_section(d: Deployment) -> Section:
    """KV memory of a token, a request, a block, and how much of it there is."""
    w = d.workload
    layout = kv.kv_layout(d.shape, w.block_size, w.kv_cache_dtype)
    pool = max(0.0, d.pool_bytes_per_device)
    per_layer = kv.kv_bytes_per_token_per_layer(d.shape.layers[0].cache, d.kv_format)
    share = d.token_bytes_per_device / d.token_bytes
    groups = f"{len(layout.groups)} groups of layers share a pool" if len(layout.groups) > 1 else ""
    return Section(
        "KV memory",
        (
            Figure("kv_bytes_per_token_per_layer", per_layer, "bytes", d.kv_format.name),
            Figure("kv_bytes_per_token", d.token_bytes, "KiB"),
            Figure("kv_bytes_per_token_per_device", d.token_bytes_per_device, "KiB"),
            Figure("kv_bytes_per_block", layout.bytes_per_block, "KiB", f"{w.block_size} tokens of a group of layers"),
            Figure("kv_bytes_per_block_per_device", layout.bytes_per_block * share, "KiB"),
            Figure("request_tokens", w.total_tokens, "tokens", "prompt and answer"),
            Figure("prompt_blocks", kv.num_blocks(w.prompt_tokens, w.block_size), "blocks", "of one group"),
            Figure("reusable_prompt_blocks", kv.num_full_blocks(w.prompt_tokens, w.block_size), "blocks"),
            Figure("request_blocks", layout.blocks_per_request(w.total_tokens, w.chunk_tokens), "blocks", groups),
            Figure("kv_bytes_per_request", d.request_bytes, "MiB"),
            Figure("kv_bytes_per_request_per_device", d.request_bytes_per_device, "MiB"),
            Figure("kv_pool_bytes_per_device", pool, "GB", f"{w.memory_share:.0%} of the memory less the weights"),
            Figure("kv_pool_blocks", pool // (layout.bytes_per_block * share), "blocks"),
            Figure("kv_pool_tokens", pool // d.token_bytes_per_device, "tokens"),
            Figure("kv_pool_requests", kv.num_requests_that_fit(pool, d.request_bytes_per_device), "requests"),
        ),
    )


def roofline_section(d: Deployment) -> Section:
    """The machine's limits."""
    return Section(
        "roofline of one device",
        (
            Figure("peak_flops_per_s", d.linear_flops_per_s, "TFLOP/s", f"operands {d.operands}"),
            Figure("memory_bytes_per_s", d.bytes_per_s, "GB/s"),
            Figure("ridge_flops_per_byte", d.ridge, "FLOP/B"),
            Figure(
                "boundary_tokens_per_step", d.boundary_tokens, "tokens", "more, and linears are bound by arithmetic"
            ),
        ),
    )


def prefill_section(d: Deployment) -> Section:
    """One prompt."""
    w, step = d.workload, prefill_step(d.workload.prompt_tokens)
    rule = roofline.dense_flops(parameters.num_active_parameters(d.shape), w.prompt_tokens)
    rule_s = roofline.compute_bound_s(rule, d.linear_flops_per_s, d.num_devices)
    intensity = roofline.arithmetic_intensity(w.prompt_tokens, d.bytes_per_active_weight)
    return Section(
        f"prefill of {w.prompt_tokens:,} tokens",
        (
            Figure("prefill_flops", _work(d, step).flops, "TFLOP", f"counted by {d.shape.priced_by}"),
            Figure("prefill_dense_flops", rule, "TFLOP", "rule of thumb: 2 per parameter and token"),
            Figure(
                "prefill_attention_flops",
                roofline.causal_attention_flops(d.shape, w.prompt_tokens),
                "TFLOP",
                "no windows",
            ),
            Figure("prefill_flops_per_byte", intensity, "FLOP/B", "per byte of weights"),
            Figure("prefill_bound_s", step_bound_s(d, step), "ms", "of what is counted"),
            Figure("prefill_dense_bound_s", rule_s, "ms", "of the rule of thumb, all devices busy"),
        ),
    )


def decode_section(d: Deployment) -> Section:
    """Decoding at the end of the answer, where it is slowest, and a whole request at its best."""
    w = d.workload
    one, many = decode_step(1, w.total_tokens), decode_step(w.batch, w.total_tokens)
    one_s, many_s = step_bound_s(d, one), step_bound_s(d, many)
    prefill_s = step_bound_s(d, prefill_step(w.prompt_tokens))
    middle_s = step_bound_s(d, decode_step(1, w.prompt_tokens + (w.output_tokens + 1) // 2))
    return Section(
        f"decode at {w.total_tokens:,} tokens of context",
        (
            Figure("decode_bound_s", one_s, "ms", "one request"),
            Figure("decode_weight_bytes", _work(d, one).weight_bytes, "GB", "read per step, all devices"),
            Figure(
                "decode_flops_share",
                roofline.model_flops_share(_work(d, one).flops, one_s, d.linear_flops_per_s, d.num_devices),
                "%",
                "of the peak, at the bound",
            ),
            Figure("decode_batch_bound_s", many_s, "ms", f"{w.batch} requests"),
            Figure("decode_batch_kv_bytes", _work(d, many).kv_bytes, "GB", "read and written per step, all devices"),
            Figure("decode_batch_tokens_per_s", roofline.output_tokens_per_s(w.batch, many_s), "tok/s", "at most"),
            Figure(
                "request_bound_s",
                e2e_s(prefill_s, middle_s, w.output_tokens),
                "ms",
                "one request alone, first to last token",
            ),
            Figure("request_decode_share", decode_share(prefill_s, middle_s, w.output_tokens), "%"),
        ),
    )


def steps_section(d: Deployment) -> Section:
    """Chunks and graphs."""
    w = d.workload
    chunks, limit = steps.chunk_sizes(w.prompt_tokens, w.chunk_tokens), steps.capture_limit_tokens(w.max_num_seqs)
    bucket = steps.capture_bucket(w.batch, limit)
    return Section(
        "steps",
        (
            Figure("prefill_chunks", len(chunks), "chunks", f"of at most {w.chunk_tokens} tokens"),
            Figure("last_chunk_tokens", chunks[-1], "tokens"),
            Figure("graph_sizes", len(steps.capture_sizes(limit)), "sizes", f"up to {limit} tokens"),
            Figure(
                "graph_bucket_tokens", bucket or 0, "tokens", f"for {w.batch} requests" if bucket else "none: too large"
            ),
            Figure("graph_segments", steps.num_graph_segments(d.shape.num_layers), "segments", "if cut at attention"),
        ),
    )


def speculation_section(d: Deployment) -> Section:
    """What drafts cost a step, and what they must bring."""
    w = d.workload
    plain_s = step_bound_s(d, decode_step(w.batch, w.total_tokens))
    drafted_s = step_bound_s(d, decode_step(w.batch, w.total_tokens + w.drafts, w.drafts))
    ratio = speculation.step_ratio(drafted_s, plain_s)
    drafting = _drafting(d)
    draft_share = sum(figure.value for figure in drafting if figure.key == "drafting_s") / plain_s
    break_even = speculation.break_even_tokens_per_step(ratio, draft_share)
    remark = "tokens a request must get per step" + ("" if drafting else ", drafting free")
    return Section(
        f"{w.drafts} drafts for each of {w.batch} requests",
        (
            Figure("verify_tokens_per_step", speculation.step_tokens(w.batch, w.drafts), "tokens"),
            Figure(
                "free_drafts", speculation.num_free_drafts(w.batch, d.boundary_tokens), "drafts", "below the boundary"
            ),
            Figure("verify_bound_s", drafted_s, "ms"),
            Figure("verify_step_ratio", ratio, "x", "over a step without drafts"),
            *drafting,
            Figure("break_even_tokens_per_step", break_even, "x", remark),
        ),
    )


def communication_section(d: Deployment) -> Section | None:
    """What the devices tell each other; None for one device."""
    if d.num_devices == 1:
        return None
    payload = communication.all_reduce_bytes(1, d.shape.hidden_size, _ACTIVATION_BYTES)
    count = communication.num_all_reduces(d.shape, d.tp)
    figures = [
        Figure("all_reduces_per_step", count, "collectives"),
        Figure("all_reduce_bytes", payload, "bytes", "one, one token"),
        Figure("all_reduce_bytes_per_step", count * payload, "MiB", "all, one token"),
        Figure(
            "all_reduce_batch_bytes_per_step", count * payload * d.workload.batch, "MiB", f"{d.workload.batch} tokens"
        ),
        *_all_reduce_times(d, count, payload),
        Figure("layers_per_stage", communication.layers_per_stage(d.shape.num_layers, d.pp), "layers"),
        Figure("stage_handoffs_per_step", communication.num_stage_handoffs(d.pp), "transfers"),
    ]
    return Section(f"tensor parallel {d.tp}, pipeline {d.pp}", tuple(figures))


def handoff_section(d: Deployment) -> Section | None:
    """A prompt's KV on its way to a decode instance; None for a machine without network."""
    network = d.hardware.network
    if network is None:
        return None
    moved = kv.kv_bytes(d.shape, d.workload.prompt_tokens, d.kv_format)
    one_s = handoff.transfer_s(moved, network.bytes_per_s)
    step_s = step_bound_s(d, decode_step(1, d.workload.prompt_tokens))
    tokens_per_s = d.workload.prompt_tokens / step_bound_s(d, prefill_step(d.workload.prompt_tokens))
    pending = handoff.pending_kv_bytes(tokens_per_s, one_s, d.token_bytes)
    return Section(
        "prefill here, decode elsewhere",
        (
            Figure("handoff_bytes", moved, "MiB", "KV of the prompt"),
            Figure("handoff_one_link_s", one_s, "ms", f"{network.bits_per_s / 1e9:g} Gb/s"),
            Figure(
                "handoff_all_links_s",
                handoff.transfer_s(moved, network.bytes_per_s, network.num_links),
                "ms",
                f"{network.num_links} links",
            ),
            Figure(
                "handoff_decode_steps", handoff.num_steps_covered(one_s, step_s), "steps", "at their bound, one link"
            ),
            Figure("handoff_pending_bytes", pending, "MiB", "held meanwhile, if prompts come at their bound"),
        ),
    )


def adapters_section(d: Deployment) -> Section:
    """Low-rank adapters on all linears."""
    w = d.workload
    slots = slot_bytes(
        d.shape, num_slots=w.adapter_slots, rank=w.adapter_rank, value_bytes=_ADAPTER_VALUE_BYTES, tp=d.tp
    )
    return Section(
        f"{w.adapter_slots} adapter slots of rank {w.adapter_rank}",
        (
            Figure(
                "adapter_elements_per_rank_per_device",
                elements_per_rank(d.shape.layers[0], d.tp),
                "elements",
                "layer 0",
            ),
            Figure("adapter_slot_bytes_per_device", slots, "GB", "16-bit, taken whether filled or not"),
            Figure("adapter_slots_in_requests", kv.in_requests(slots, d.request_bytes_per_device), "requests"),
            Figure("adapter_launches_per_step", num_launches(d.shape), "launches", "q, k, v, gate and up not packed"),
            Figure("adapter_flops_share", flops_share(d.shape, w.adapter_rank, d.num_parameters), "%"),
        ),
    )


def images_section(d: Deployment) -> Section:
    """One square image in a prompt."""
    w = d.workload
    tokens = images.image_tokens(w.image_px, w.image_patch_px)
    encoded = images.encoder_output_bytes(1, d.shape.hidden_size, _ACTIVATION_BYTES)
    return Section(
        f"an image of {w.image_px} x {w.image_px} pixels",
        (
            Figure("image_tokens", tokens, "tokens", f"patches of {w.image_patch_px} pixels"),
            Figure("image_kv_bytes", kv.kv_bytes(d.shape, tokens, d.kv_format), "MiB"),
            Figure("image_encoder_bytes", tokens * encoded, "MB", "16-bit rows of the model's width"),
            Figure("image_kv_per_encoder_byte", images.kv_per_encoder_byte(d.token_bytes, encoded), "x"),
            Figure("image_encoder_budget_tokens", images.encoder_budget_tokens(w.chunk_tokens, tokens), "tokens"),
        ),
    )


def logits_section(d: Deployment) -> Section:
    """What stands behind the last layer."""
    w, vocab = d.workload, d.shape.vocab_size
    rows = logits.bitmask_rows(w.max_num_seqs, w.drafts)
    return Section(
        "logits and masks",
        (
            Figure("logits_row_bytes", logits.logits_row_bytes(vocab), "kB", "float32"),
            Figure("bitmask_row_words", logits.bitmask_words(vocab), "words"),
            Figure("bitmask_row_bytes", logits.bitmask_row_bytes(vocab), "kB"),
            Figure("bitmask_rows", rows, "rows", f"{w.max_num_seqs} requests, {w.drafts} drafts"),
            Figure("bitmask_bytes", rows * logits.bitmask_row_bytes(vocab), "MB"),
            Figure("penalty_bytes", logits.penalty_bytes(w.max_num_seqs, vocab), "MB", "if counts were kept densely"),
        ),
    )


def _work(d: Deployment, step: StepShape) -> StepWork:
    return step_work(d.shape, step, d.bytes_per_weight, d.kv_format)


def _all_reduce_times(d: Deployment, count: int, payload: int) -> list[Figure]:
    """Only where the machine's links are known."""
    link, w = d.hardware.interconnect, d.workload
    if link is None or count == 0:
        return []
    ring = communication.ring_bytes_per_device(payload, d.tp)
    one_s = communication.all_reduces_s(count, payload, d.tp, link)
    many_s = communication.all_reduces_s(count, payload * w.batch, d.tp, link)
    bound_s = step_bound_s(d, decode_step(1, w.total_tokens))
    return [
        Figure("all_reduce_ring_bytes_per_device", ring, "bytes", "sent for one, one token"),
        Figure("all_reduces_s", one_s, "ms", f"{link.all_reduce_latency_s * 1e6:g} us each and the bytes, one token"),
        Figure("all_reduces_batch_s", many_s, "ms", f"{w.batch} tokens"),
        Figure("decode_with_all_reduces_s", bound_s + one_s, "ms", "one request; the bound and what it waits for"),
    ]


def _drafting(d: Deployment) -> list[Figure]:
    """By a model: its steps one after the other, and its KV beside that of the model it drafts for."""
    draft, w = d.draft, d.workload
    if draft is None:
        return []
    one_s = step_bound_s(draft, decode_step(w.batch, w.total_tokens))
    share = speculation.draft_kv_share(draft.token_bytes, d.token_bytes)
    return [
        Figure("draft_weight_bytes", draft.weight_bytes, "GB", draft.shape.name),
        Figure("draft_kv_share", share, "%", "of this model's KV"),
        Figure("drafting_s", w.drafts * one_s, "ms", f"{w.drafts} steps of the draft model"),
    ]
