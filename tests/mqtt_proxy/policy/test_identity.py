from __future__ import annotations

import pytest

from mqtt_proxy.policy.identity import Identity, split_peer


@pytest.mark.parametrize(
    ("peer", "parts"),
    [
        ("192.0.2.1:1883", ("192.0.2.1", 1883)),
        ("[2001:db8::1]:80", ("2001:db8::1", 80)),
        ("unix", ("unix", 0)),
        ("", ("", 0)),
        ("2001:db8::x", ("2001:db8::x", 0)),
    ],
)
def test_a_peer_s_address_and_port(peer: str, parts: tuple[str, int]) -> None:
    assert split_peer(peer) == parts


def test_an_identity_reads_well_in_a_log_line() -> None:
    assert str(Identity(b"alice", b"c\xff", "192.0.2.1")) == "c\\xff (alice, 192.0.2.1)"
    assert str(Identity(None, b"c", "unix")) == "c (anonymous, unix)"
