"""The MQTT proxy: listeners, protocol, sessions and policy over a message store.

In a test or a notebook: `async with mqtt_proxy.serve(mqtt_proxy.Settings(listen="mqtt://127.0.0.1:0")) as server: …`
"""

from typing import TYPE_CHECKING, Any

import lmq_store as _lmq_store  # noqa: F401 - decides first whether hot modules load compiled (LMQ_PURE)

if TYPE_CHECKING:
    from mqtt_proxy.server import serve
    from mqtt_proxy.settings import Settings

__all__ = ["Settings", "serve"]


def __getattr__(name: str) -> Any:
    """The names above, imported when first used, so that `lmq pub` does not load a server."""
    if name == "Settings":
        from mqtt_proxy.settings import Settings

        return Settings
    if name == "serve":
        from mqtt_proxy.server import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
