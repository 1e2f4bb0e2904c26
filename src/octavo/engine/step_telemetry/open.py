"""The recorder that a configuration asks for."""

import time
import uuid
from dataclasses import dataclass

from octavo.config import StepMetricsConfig
from octavo.engine.output import StepStreamInfo
from octavo.engine.step_telemetry.file import StepFile
from octavo.engine.step_telemetry.recorder import StepRecorder
from octavo.engine.step_telemetry.sink import StepSink
from octavo.engine.step_telemetry.stream import StepStream


@dataclass(frozen=True)
class OpenRecorder:
    """A recorder, and where to follow it."""

    recorder: StepRecorder
    info: StepStreamInfo | None
    """None: it publishes nothing."""


def open_recorder(config: StepMetricsConfig) -> OpenRecorder:
    """Opens what is followed, before a model is loaded in vain.

    Raises:
        ConfigError: an address cannot be listened on, or a file cannot be written.
    """
    sinks: list[StepSink] = []
    info, worker_id = None, uuid.uuid4().hex
    try:
        if config.step_metrics_endpoint is not None:
            stream = StepStream(config, config.step_metrics_endpoint)
            sinks.append(stream)
            info = StepStreamInfo(endpoint=stream.endpoint, topic=config.step_metrics_topic, worker_id=worker_id)
        if config.step_metrics_file is not None:
            sinks.append(StepFile(config, config.step_metrics_file))
    except BaseException:
        for sink in sinks:
            sink.close()
        raise
    return OpenRecorder(StepRecorder(sinks, worker_id=worker_id, wall_clock=time.time), info)
