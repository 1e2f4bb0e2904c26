"""GET /v1/models."""

from typing import Any

from octavo.server.context import ServerContext


class Models:
    """The list of served names. One model may answer to several."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._since = int(server.wall_clock())

    async def list(self) -> dict[str, Any]:
        """All of them."""
        return {"object": "list", "data": [self._entry(name) for name in self._server.engine.info.served_model_names]}

    async def retrieve(self, model: str) -> dict[str, Any]:
        """One of them; 404 for a name that is not served."""
        return self._entry(self._server.model_name(model))

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
        }
