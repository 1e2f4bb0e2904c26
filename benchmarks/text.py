"""What the text room costs: loading a tokenizer, encoding, streaming, rendering. Thread CPU time, best of
five.

    python benchmarks/text.py [--models smollm2-135m gemma3-270m qwen2.5-coder-0.5b]

Models come from the cache (`octavo pull`). Prints, per model: seconds to build the tokenizer from metadata
already read; characters per second of encoding 100,000 characters of prose and code; microseconds per token
of a stream with four stop strings; milliseconds to render 100 messages, and to turn them into prompt ids.
"""

import argparse
import time
from collections.abc import Callable

from octavo.execution.loader.gguf import open_gguf
from octavo.hub import find_cached
from octavo.text.chat import ChatEncoder
from octavo.text.stream import TextStream
from octavo.text.template import ChatTemplate
from octavo.text.template_source import template_from_gguf
from octavo.text.tokenizer import Tokenizer, from_gguf

TEXT = ("The quick brown fox jumps over 12 lazy dogs; naïve façade.\ndef f(x):\n    return x + 1\n" * 2000)[:100_000]
STOPS = ["\n\nUser:", "<|end|>", "```", "The end"]
MESSAGES = [{"role": ("user", "assistant")[i % 2], "content": TEXT[i * 90 : i * 90 + 400]} for i in range(100)]


def cpu_seconds(run: Callable[[], object]) -> float:
    """Thread CPU time of one call, the best of five."""
    times = []
    for _ in range(5):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times)


def stream(tokenizer: Tokenizer, ids: list[int]) -> None:
    """Streams ids one at a time, as an engine does."""
    stream = TextStream(tokenizer, stops=STOPS)
    for token_id in ids:
        stream.push((token_id,))
    stream.flush()


def report(alias: str) -> None:
    """Prints one model's figures."""
    path = find_cached(alias)
    if path is None:
        print(f"{alias}: not in the cache; octavo pull {alias}")
        return
    metadata = open_gguf([path]).metadata
    tokenizer = from_gguf(metadata)
    ids = tokenizer.encode(TEXT)
    print(f"{alias}: {tokenizer.vocab_size} tokens")
    print(f"  load               {cpu_seconds(lambda: from_gguf(metadata)):8.3f} s")
    encoding_s = cpu_seconds(lambda: tokenizer.encode(TEXT))
    print(f"  encode             {len(TEXT) / encoding_s / 1e6:8.2f} M characters/s ({len(ids)} tokens)")
    print(f"  stream, 4 stops    {cpu_seconds(lambda: stream(tokenizer, ids)) / len(ids) * 1e6:8.2f} us/token")
    source = template_from_gguf(metadata)
    if source is not None:
        template = ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
        encoder = ChatEncoder(tokenizer, template)
        print(f"  render             {cpu_seconds(lambda: template.render(MESSAGES)) * 1e3:8.2f} ms/100 messages")
        print(f"  render and encode  {cpu_seconds(lambda: encoder.encode(MESSAGES)) * 1e3:8.2f} ms/100 messages")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"])
    for alias in parser.parse_args().models:
        report(alias)


if __name__ == "__main__":
    main()
