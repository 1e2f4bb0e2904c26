"""`octavo complete`: the raw continuation of a text."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.chat import Temperature
from octavo.cli.flags import Settings, with_settings
from octavo.cli.terminal import load_model, show, typed_text
from octavo.config import ExecutionConfig, ModelConfig

if TYPE_CHECKING:
    from octavo.engine.output import GenerationOutput


@with_settings(
    ModelConfig, ExecutionConfig, leave_out=frozenset({"served_model_name", "skip_tokenizer_init", "chat_template"})
)
def complete(
    settings: Settings,
    prompt: Annotated[str, typer.Argument(help="The text to continue.", show_default=False)],
    max_tokens: Annotated[int, typer.Option(help="Most tokens of the continuation.")] = 128,
    temperature: Temperature = 0.0,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT (repeatable)", help="Ends the answer where this appears.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of streamed text.")] = False,
) -> None:
    """Continue a text, without any chat template.

    \b
    Examples:
      octavo complete "The three primary colours are" --max-tokens 16
      octavo complete "def fibonacci(n):" -m qwen2.5-coder-0.5b --stop $'\\n\\n' --json
    """
    from octavo.errors import RequestFailedError
    from octavo.request.outputs import FinishReason
    from octavo.request.params import SamplingParams

    prompt, stops = typed_text(prompt), tuple(typed_text(each) for each in stop or ())
    params = SamplingParams(temperature=temperature, max_tokens=max_tokens, stop=stops)
    with load_model(settings) as llm:
        if as_json:
            (output,) = llm.generate(prompt, params)
            print(json.dumps(_as_json(output), ensure_ascii=False))
            return
        for delta in llm.stream(prompt, params):
            if delta.choice.finish_reason is FinishReason.ERROR:
                raise RequestFailedError(delta.choice.error or "generation failed")
            show(delta.choice.text)
        show("\n")


def _as_json(output: "GenerationOutput") -> dict[str, object]:
    (choice,) = output.outputs
    return {
        "text": choice.text,
        "token_ids": choice.token_ids,
        "finish_reason": str(choice.finish_reason),
        "stop_reason": choice.stop_reason,
        "error": choice.error,
        "prompt_tokens": len(output.prompt_token_ids),
        "completion_tokens": len(choice.token_ids),
        "cached_tokens": output.num_cached_tokens,
    }
