"""A program: opens many streams at one time with the stock `openai` client, and says what came.

    python many_streams.py URL COUNT TOKENS

One JSON line: per stream its token ids, its text, its finish reason.
"""

import asyncio
import json
import sys

import httpx
import openai


async def stream(client: openai.AsyncOpenAI, number: int, num_tokens: int) -> dict[str, object]:
    """One stream; its prompt is one token that no other has."""
    ids: list[int] = []
    text, reason = "", None
    async with await client.completions.create(
        model="scripted",
        prompt=[16 + number],
        max_tokens=num_tokens,
        temperature=0,
        stream=True,
        extra_body={"return_token_ids": True},
    ) as chunks:
        async for chunk in chunks:
            (choice,) = chunk.choices
            ids += choice.token_ids  # type: ignore[attr-defined]
            text += choice.text
            reason = choice.finish_reason
    return {"number": number, "ids": ids, "text": text, "reason": reason}


async def main(url: str, count: int, num_tokens: int) -> None:
    """All streams at once."""
    limits = httpx.Limits(max_connections=count)
    async with (
        httpx.AsyncClient(limits=limits, timeout=120) as http,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http) as client,
    ):
        print(json.dumps(await asyncio.gather(*(stream(client, number, num_tokens) for number in range(count)))))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
