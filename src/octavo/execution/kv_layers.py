"""The layers of a KV layout as executors run them."""

from octavo.kv.spec import AttentionSpec, KVLayout
from octavo.model.program import Program


def attention_specs(layout: KVLayout) -> list[AttentionSpec]:
    """[layer] what each keeps.

    Raises:
        ValueError: a layer is neither of full attention nor of attention with a window, which is what executors run.
    """
    specs: list[AttentionSpec] = []
    for layer in range(len(layout.placement)):
        spec = layout.layer_spec(layer)
        if not isinstance(spec, AttentionSpec) or spec.chunk is not None:
            raise ValueError(f"cache layer {layer}: the executor runs full and sliding-window attention, not {spec}")
        specs.append(spec)
    return specs


def check_layers(program: Program, layout: KVLayout, first_layer: int) -> None:
    """
    Raises:
        ValueError: the cache layers of a program, counted from `first_layer` on, are not those of the layout.
    """
    wanted = [
        AttentionSpec(num_kv_heads=layer.kv_heads, head_dim=layer.head_dim, window=layer.window)
        for layer in program.cache_layers
    ]
    placed = attention_specs(layout)
    if placed[first_layer : first_layer + len(wanted)] != wanted:
        raise ValueError(
            f"program {program.name} has {len(wanted)} cache layers from {first_layer} on that the layout's "
            f"{len(placed)} layers do not hold"
        )
