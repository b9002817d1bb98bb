"""Which flow a packet belongs to, and which packets each phase of a connection allows (MQTT 5.0 §4.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqtt_proxy.connection import AUTHENTICATING, AWAIT_CONNECT, CONNECTED, HELD, Connection
from mqtt_proxy.packets.reason_codes import ProtocolViolation
from mqtt_proxy.packets.types import Auth, Connect, Disconnect, PacketType, Puback, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker


def handle(broker: Broker, conn: Connection, packet: Any) -> None:
    """Act on a packet that the hot path (flows/inbound.py) does not take."""
    kind = type(packet)
    if conn.phase == CONNECTED:
        if kind is Subscribe:
            broker.subscribing.subscribe(conn, packet)
        elif kind is Unsubscribe:
            broker.subscribing.unsubscribe(conn, packet)
        elif kind is Puback:
            _acknowledgement(broker, conn, packet)
        elif kind is Disconnect:
            broker.disconnecting.asked(conn, packet)
        elif kind is Auth:
            broker.authenticating.again(conn, packet)
        else:  # [MQTT-3.1.0-2]: a second CONNECT
            broker.refuse(conn, ProtocolViolation(f"unexpected {_name(packet)}"))
    elif conn.phase == HELD:
        _wait(conn, packet)
    elif conn.phase == AWAIT_CONNECT:
        if kind is Connect:  # [MQTT-3.1.0-1]
            broker.connecting.connect(conn, packet)
        else:
            broker.refuse(conn, ProtocolViolation(f"{_name(packet)} before CONNECT"))
    elif conn.phase == AUTHENTICATING:
        if kind is Auth and conn.exchange is not None:
            broker.authenticating.go_on(conn, packet)
        elif kind is Disconnect:
            broker.disconnecting.asked(conn, packet)
        elif kind is Connect or (conn.exchange is not None and conn.exchange.exchange is not None):  # [MQTT-3.1.2-30]
            broker.refuse(conn, ProtocolViolation(f"{_name(packet)} before CONNACK"))
        else:
            _wait(conn, packet)


def hold(conn: Connection, packets: list[Any]) -> None:
    """These packets, and all that the client sends behind them, wait for `let_go`."""
    conn.phase = HELD
    conn.waiting = packets
    conn.pause_reading()


def let_go(broker: Broker, conn: Connection) -> None:
    """Take what waited, in order (which may hold again), and read on."""
    if conn.phase != HELD:
        return
    waiting, conn.waiting = conn.waiting, None
    conn.phase = CONNECTED
    broker.inbound.take(conn, waiting or [])
    if conn.phase != CONNECTED:
        return
    if conn.session is not None and conn.session.groups is not None:
        broker.deliverer.wake_groups(conn.session)
    if not conn.waiting_window and conn.paused_until_ms <= broker.now_ms:
        conn.resume_reading()


def _wait(conn: Connection, packet: Any) -> None:
    """What came in the same read as the packet that has to be waited for (which bounds it) is taken right after that."""
    if conn.waiting is None:
        conn.waiting = []
        conn.pause_reading()
    conn.waiting.append(packet)


def _acknowledgement(broker: Broker, conn: Connection, packet: Puback) -> None:
    """PUBACK and its kin with a reason code; from 0x80 on the exchange is over (MQTT 5.0 §4.3)."""
    session = conn.session
    if packet.reason >= 0x80 and packet.kind in (PacketType.PUBACK, PacketType.PUBREC) and session is not None:
        broker.acknowledgements.refused(session, conn, packet.kind, packet.packet_id)
    else:
        broker.inbound.take(conn, [packet.kind << 16 | packet.packet_id])


def _name(packet: Any) -> str:
    if isinstance(packet, int):
        return PacketType(packet >> 16).name
    name = type(packet).__name__
    return "PUBLISH" if name == "Message" else name.upper()
