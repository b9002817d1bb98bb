"""Who a connection is, as far as the proxy has checked it: what every rule of the ACL looks at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """One connection's checked name and origin.

    `user` is None for an anonymous client. `client_id` is what the client calls itself: no proof stands behind it
    unless the ACL or the authentication ties it to the user. `address` is the peer's address without a port (the real
    one behind a PROXY protocol header, `unix` for a Unix socket), `tls_subject` the verified client certificate's
    subject ("" without one), `roles` what the authentication added to the roles that the ACL file names.
    """

    user: bytes | None
    client_id: bytes
    address: str = ""
    tls_subject: str = ""
    roles: frozenset[bytes] = frozenset()

    @property
    def anonymous(self) -> bool:
        return self.user is None

    def __str__(self) -> str:
        name = self.client_id.decode("utf-8", "backslashreplace")
        who = "anonymous" if self.user is None else self.user.decode("utf-8", "backslashreplace")
        return f"{name} ({who}, {self.address})"


def split_peer(peer: str) -> tuple[str, int]:
    """Address and port of a link's peer text: `192.0.2.1:1883`, `[2001:db8::1]:1883`, or `unix` (port 0)."""
    address, colon, port = peer.rpartition(":")
    if not colon or not port.isdigit():
        return peer, 0
    return address.removeprefix("[").removesuffix("]"), int(port)
