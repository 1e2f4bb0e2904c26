"""GET /v1/models."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.context import ServerContext
from octavo.server.endpoints import json_response


class Models:
    """The list of served names. One model may answer to several."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._since = int(server.wall_clock())

    async def list(self, _: Request) -> Response:
        """All models that are served."""
        served = self._server.engine.info.served_model_names
        return json_response({"object": "list", "data": [self._entry(name) for name in served]})

    async def retrieve(self, request: Request) -> Response:
        """One model; 404 for a name that is not served."""
        return json_response(self._entry(self._server.model_name(request.path_params["model"])))

    def _entry(self, name: str) -> dict[str, Any]:
        info = self._server.engine.info
        return {
            "id": name,
            "object": "model",
            "created": self._since,
            "owned_by": "octavo",
            "root": info.model,
            "parent": None,
            "max_model_len": info.max_model_len,
            "quantization": info.quantization or None,
        }
