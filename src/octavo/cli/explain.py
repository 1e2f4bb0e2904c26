"""`octavo explain`: the story of one request."""

import json
import time
from typing import Annotated, Any

import typer

from octavo.cli.flags import SECRETS, Settings, with_settings
from octavo.cli.terminal import load_model, typed_text
from octavo.cli.usage_errors import UsageError
from octavo.config import CacheConfig, ExecutionConfig, ModelConfig, SchedulerConfig, SpeculationConfig
from octavo.errors import ConfigError, EngineDeadError, InvalidRequestError

TIMEOUT_S = 30.0


@with_settings(
    ModelConfig,
    ExecutionConfig,
    SchedulerConfig,
    CacheConfig,
    SpeculationConfig,
    leave_out=frozenset({"served_model_name", "skip_tokenizer_init", "chat_template"}),
)
def explain(
    settings: Settings,
    request_id: Annotated[
        str | None,
        typer.Argument(help="Of a running server: the id of an answer, or its X-Request-Id.", show_default=False),
    ] = None,
    url: Annotated[str, typer.Option(help="Of that server.")] = "http://127.0.0.1:8000",
    api_key: Annotated[
        str,
        typer.Option(
            help="The key that made the request; better in the variable.", envvar=SECRETS["api_key"], show_default=False
        ),
    ] = "",
    prompt: Annotated[
        str | None, typer.Option(help="Instead: run this text here, and explain that.", show_default=False)
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of the answer to that.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="The ledger as one JSON object.")] = False,
) -> None:
    """Tell where the time of one request went: what it waited for, which steps ran it, what they cost.

    \b
    Examples:
      octavo explain cmpl-3f2c91 --url http://127.0.0.1:8000
      octavo explain --prompt "Once upon a time" --max-tokens 100 --json
    """
    from octavo.cli.explanation import explain as lines

    if request_id is None and prompt is None:
        raise UsageError("REQUEST_ID is missing: name a request of a server, or give a --prompt to run here")
    if request_id is not None and prompt is not None:
        problem = "names a request of a server; without it --prompt runs here, and never both"
        raise ConfigError("REQUEST_ID", request_id, problem)
    if prompt is not None:
        form = _run(settings, typed_text(prompt), max_tokens)
    elif settings:
        name = next(iter(settings))
        raise ConfigError(name, settings[name], "is for a --prompt that runs here; the server has its own settings")
    else:
        form = _fetch(url, request_id or "", api_key)
    print(json.dumps(form) if as_json else "\n".join(lines(form)))


def _run(settings: Settings, prompt: str, max_tokens: int) -> dict[str, Any]:
    from octavo.request.ledger_form import request_form
    from octavo.request.params import SamplingParams

    with load_model(settings) as llm:
        (output,) = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=max_tokens))
        return request_form(output.request_ledger, time.time())


def _fetch(url: str, request_id: str, api_key: str) -> dict[str, Any]:
    """
    Raises:
        InvalidRequestError: the server knows no such request of this key.
        EngineDeadError: there is no server.
    """
    from urllib.error import HTTPError, URLError
    from urllib.parse import quote
    from urllib.request import Request, urlopen

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    if not url.startswith(("http://", "https://")):
        raise ConfigError("url", url, "must begin with http:// or https://")
    asked = Request(f"{url.rstrip('/').removesuffix('/v1')}/v1/requests/{quote(request_id, safe='')}", headers=headers)
    try:
        with urlopen(asked, timeout=TIMEOUT_S) as answer:
            form: dict[str, Any] = json.load(answer)
            return form
    except HTTPError as error:
        raise InvalidRequestError("REQUEST_ID", request_id, _problem(error.code, error.read())) from None
    except (URLError, TimeoutError) as error:
        reason = error.reason if isinstance(error, URLError) else f"none within {TIMEOUT_S:g} s"
        raise EngineDeadError(f"no server answers at {url}: {reason}; give its address with --url") from None


def _problem(status: int, answer: bytes) -> str:
    """What a server says, with the fix where it does not."""
    try:
        message = str(json.loads(answer)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = "this is no Octavo server"
    fix = f"; give the key that made the request, in ${SECRETS['api_key']}" if status == 401 else ""
    return f"the server answers {status}: {message}{fix}"
