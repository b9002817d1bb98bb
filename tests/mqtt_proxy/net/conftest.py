from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from tests.mqtt_proxy.net.echo import Served


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[Served], Awaitable[Any]]], Any]:
    """Runs an async test against a reactor, on both loops."""

    def runner(scenario: Callable[[Served], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            served = Served()
            try:
                return await asyncio.wait_for(scenario(served), 30)
            finally:
                served.close()

        if request.param == "uvloop":
            return uvloop.run(main())
        return asyncio.run(main())

    return runner
