"""One figure per HTTP answer, named as prometheus-fastapi-instrumentator names them, which vLLM uses."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary

from octavo.server.metric_buckets import HTTP_BUCKETS, LATENCY_BUCKETS


class HttpMetrics:
    """Of all answers but those to probes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("http_requests", "Answers.", ["handler", "method", "status"], registry=registry)
        self._seconds = Histogram(
            "http_request_duration_seconds",
            "Time to the last byte.",
            ["handler", "method"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self._fine_seconds = Histogram(
            "http_request_duration_highr_seconds",
            "The same of all answers together, in more buckets.",
            buckets=HTTP_BUCKETS,
            registry=registry,
        )
        self._asked = Summary("http_request_size_bytes", "Bytes of bodies received.", ["handler"], registry=registry)
        self._told = Summary("http_response_size_bytes", "Bytes of bodies sent.", ["handler"], registry=registry)
        self.in_flight = Gauge("octavo:http_requests_in_flight", "Requests being answered.", registry=registry)

    def observe(
        self, handler: str, method: str, status: int | None, seconds: float, sizes: tuple[int, int] = (0, 0)
    ) -> None:
        """Counts one answer.

        Args:
            status: None: the client went away before it (nginx writes 499 for that).
            sizes: bytes of the bodies that came and went.
        """
        family = f"{status // 100}xx" if status is not None else "499"
        self._requests.labels(handler=handler, method=method, status=family).inc()
        self._seconds.labels(handler=handler, method=method).observe(seconds)
        self._fine_seconds.observe(seconds)
        self._asked.labels(handler=handler).observe(sizes[0])
        self._told.labels(handler=handler).observe(sizes[1])
