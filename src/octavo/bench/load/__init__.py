"""Putting load on a server that speaks OpenAI's protocol, and counting what comes of it.

Pure parts: `arrivals` (when), `datasets` (what), `http_response`, `event_stream` and `reception` (bytes to events),
`window`, `latencies`, `goodput` and `figures` (events to figures). With a loop: `client` and `generator`. Between them
goes plain data: `Dialogue`, `Answer`, `Exchange`. The only clock is the event loop's.
"""
