"""`octavo bench`: throughput and latency of the engine in this process."""

from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.cli.flags import Settings, with_settings
from octavo.cli.terminal import load_model
from octavo.config import CacheConfig, ExecutionConfig, ModelConfig, SchedulerConfig, SpeculationConfig

app = typer.Typer(help="Measure the engine.", no_args_is_help=True, rich_markup_mode=None)

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="OUT.json", help="Write all figures there.", show_default=False)
]
InputLen = Annotated[int, typer.Option(help="Prompt tokens.", min=1)]
OutputLen = Annotated[int, typer.Option(help="Tokens generated per prompt (end tokens are ignored).", min=1)]
DataSeed = Annotated[int, typer.Option(help="Of the random prompts.")]
ENGINE = (ModelConfig, CacheConfig, SchedulerConfig, SpeculationConfig, ExecutionConfig)


@app.command()
@with_settings(*ENGINE, leave_out=frozenset({"seed", "max_num_seqs", "chat_template", "served_model_name"}))
def throughput(
    settings: Settings,
    input_len: InputLen = 128,
    output_len: OutputLen = 128,
    num_prompts: Annotated[int, typer.Option(help="Requests in all.", min=1)] = 32,
    max_concurrency: Annotated[int, typer.Option(help="Requests running at one time.", min=1)] = 16,
    dataset: Annotated[str, typer.Option(help="`random`: random token ids.")] = "random",
    seed: DataSeed = 0,
    json_file: JsonFile = None,
) -> None:
    """All requests at once: tokens per second.

    \b
    Examples:
      octavo bench throughput --input-len 128 --output-len 128 --num-prompts 32 --max-concurrency 16
      octavo bench throughput -m ./model.gguf --threads 2 --json out.json
    """
    from octavo.bench.datasets import make_prompts
    from octavo.bench.report import complete_figures
    from octavo.bench.throughput import measure_throughput

    with load_model(settings | {"max_num_seqs": max_concurrency}) as llm:
        prompts = make_prompts(dataset, num_prompts, input_len, llm.info.vocab_size, seed)
        figures = complete_figures(measure_throughput(llm, prompts, output_len), llm.info, settings)
    _report(figures, json_file)


@app.command()
@with_settings(*ENGINE, leave_out=frozenset({"seed", "max_num_seqs", "chat_template", "served_model_name"}))
def latency(
    settings: Settings,
    batch_size: Annotated[int, typer.Option(help="Requests side by side.", min=1)] = 1,
    input_len: InputLen = 512,
    output_len: OutputLen = 128,
    repeats: Annotated[int, typer.Option(help="Measured runs, after one that is not.", min=1)] = 5,
    seed: DataSeed = 0,
    json_file: JsonFile = None,
) -> None:
    """One batch alone: seconds of prefill, seconds per decoding step.

    \b
    Examples:
      octavo bench latency --batch-size 1 --input-len 512 --output-len 128
      octavo bench latency --batch-size 16 --json out.json
    """
    from octavo.bench.datasets import make_prompts
    from octavo.bench.latency import measure_latency
    from octavo.bench.report import complete_figures

    with load_model(settings | {"max_num_seqs": batch_size}) as llm:
        prompts = make_prompts("random", batch_size * (repeats + 1), input_len, llm.info.vocab_size, seed)
        figures = complete_figures(measure_latency(llm, prompts, batch_size, output_len), llm.info, settings)
    _report(figures, json_file)


def _report(figures: dict[str, Any], json_file: Path | None) -> None:
    from octavo.bench.report import as_lines, write_json

    print(as_lines(figures))
    if json_file is not None:
        write_json(figures, json_file)
