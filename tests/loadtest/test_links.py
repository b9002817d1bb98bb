"""TLS and WebSocket: the same ledger over other links, and a certificate that nobody vouches for is exit 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loadtest import Plan, UsageError, run
from loadtest.bench import command_for
from loadtest.peers import peer_of
from loadtest.versus import free_port
from tests.loadtest.conftest import MOSQUITTO

LMQ = Path(sys.executable).with_name("lmq")


@pytest.mark.parametrize("scheme", ["mqtts", "ws"])
@pytest.mark.parametrize("peer", ["ours", "mosquitto"])
def test_nothing_is_lost_over_tls_and_websocket(peer: str, scheme: str, tmp_path: Path) -> None:
    if peer == "mosquitto" and MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    if peer == "ours" and not LMQ.exists():
        pytest.skip("lmq is not installed")
    port = free_port()
    command = command_for(peer_of(peer), scheme, tmp_path, port)
    secure = scheme == "mqtts"
    plan = Plan(scenario="pairs", url=f"{scheme}://127.0.0.1:{port}", publishers=5, qos=1, count=300, server_cmd=command, insecure=secure,
                size=(100, 40_000))  # fmt: skip
    report = run(plan)
    assert report.exit == 0, report.problems
    assert report["delivered"] == report["acked"] == 1500
    assert report["lost"] == report["duplicate"] == report["corrupt"] == 0
    if secure:
        plan.insecure = False
        with pytest.raises(UsageError, match="certificate: self"):
            run(plan)
        plan.ca = str(tmp_path / "cert.pem")
        assert run(plan).exit == 0
