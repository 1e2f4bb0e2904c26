"""`octavo chat`: one answer, or a conversation."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.flags import Settings, with_settings
from octavo.cli.terminal import load_model, piped_text, show, typed_text
from octavo.config import ExecutionConfig, ModelConfig

if TYPE_CHECKING:
    from octavo.cli.conversation import Conversation

MaxTokens = Annotated[
    int | None, typer.Option(help="Most tokens of an answer [default: 1024, or what is left].", show_default=False)
]
Temperature = Annotated[float, typer.Option(help="0 always takes the most probable token.")]

SYSTEM = "You are Octavo, a helpful assistant. Answer clearly and briefly."
"""Small models answer a bare question with whatever their training text suggests; a word about the role steadies them.
Templates without a system role go without it."""
HELP = "/reset forgets the conversation, /stats tells about the last answer, /quit ends."


@with_settings(
    ModelConfig, ExecutionConfig, leave_out=frozenset({"served_model_name", "skip_tokenizer_init", "max_logprobs"})
)
def chat(
    settings: Settings,
    prompt: Annotated[
        str | None, typer.Argument(help="The question; without one a conversation begins.", show_default=False)
    ] = None,
    system: Annotated[str, typer.Option(help='The system message; "" leaves it to the model\'s template.')] = SYSTEM,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.0,
) -> None:
    """Ask a question, or hold a conversation in the terminal.

    \b
    Examples:
      octavo chat "What is the capital of France?"
      octavo chat -m qwen2.5-coder-0.5b --temperature 0.7 --seed 1
      git diff | octavo chat --system "Write a commit message for this diff."
    """
    from octavo.cli.conversation import Conversation
    from octavo.errors import InvalidRequestError
    from octavo.request.params import SamplingParams

    if prompt is None and not sys.stdin.isatty():
        prompt = piped_text()
    elif prompt is not None:
        prompt = typed_text(prompt)
    if prompt is not None and not prompt.strip():
        raise InvalidRequestError("prompt", prompt, "is empty; ask something, or leave it out to begin a conversation")
    params = SamplingParams(temperature=temperature, max_tokens=max_tokens)
    with load_model(settings) as llm:
        conversation = Conversation(llm, params, system if llm.takes_system_message or system != SYSTEM else "")
        if prompt is not None:
            _answer(conversation, prompt)
        else:
            _converse(conversation)


def _answer(conversation: "Conversation", question: str) -> None:
    for piece in conversation.ask(question):
        show(piece)
    show("\n")
    if conversation.was_cut:
        print("(cut at its longest; --max-tokens allows more)", file=sys.stderr)


def _converse(conversation: "Conversation") -> None:
    """Reads questions until /quit or the end of input."""
    import readline  # noqa: F401  line editing for input()

    from octavo.errors import InvalidRequestError

    print(f"{conversation.model}. {HELP}", file=sys.stderr)
    commands: dict[str, Any] = {
        "/reset": conversation.reset,
        "/stats": lambda: print(conversation.stats()),
        "/help": lambda: print(HELP),
    }
    while (line := _read_line()) not in (None, "/quit"):
        if not line:
            continue
        if line.startswith("/"):
            commands.get(line, lambda: print(f"unknown command. {HELP}"))()
            continue
        try:
            _answer(conversation, line)
        except KeyboardInterrupt:
            print(" (stopped)")
        except InvalidRequestError as error:
            print(f"{error} (/reset starts over)", file=sys.stderr)


def _read_line() -> str | None:
    """The next line without blanks around it; None at the end of input."""
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None
