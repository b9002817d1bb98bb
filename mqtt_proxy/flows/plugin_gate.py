"""What plugins say about one connection's topics: their answers may take a while, and what depends on one waits in order.

A PUBLISH or SUBSCRIBE whose answer is not known holds back everything that the client sent behind it (phase HELD). A
message that is to be delivered pauses its session (ASKING). What plugins do not grant is treated as what the ACL denies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from lmq_store.api.model import Message
from mqtt_proxy.connection import Connection
from mqtt_proxy.flows import dispatch
from mqtt_proxy.flows.publish import P2P
from mqtt_proxy.packets.reason_codes import ReasonCode
from mqtt_proxy.packets.types import Subscribe
from mqtt_proxy.policy.acl import asked_filter
from mqtt_proxy.session.session import Session

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker
    from mqtt_proxy.policy.amqtt_plugins import PluginRights

TopicCheck = Callable[[bytes], bool]


class PluginGate:
    """One connection's questions to the plugins."""

    __slots__ = ("awaited", "broker", "conn", "filters", "rights")

    def __init__(self, broker: Broker, conn: Connection, rights: PluginRights) -> None:
        self.broker = broker
        self.conn = conn
        self.rights = rights
        self.awaited: set[bytes] = set()
        """Topics of messages to be delivered whose answer is under way."""
        self.filters: dict[bytes, bool] = {}
        """Answers about the filters of the SUBSCRIBE at hand."""

    # --- what the client sends ----------------------------------------------------------------------------------------------

    def admit(self, message: Message) -> bool:
        """A PUBLISH. False: refused and answered, or held until the answer is there."""
        answer = self.rights.may_publish(message.topic, self._go_on)
        if answer:
            return True
        conn = self.conn
        if answer is None:
            if message.qos:
                conn.unacked_in -= 1  # counted again when it is taken again
            message.topic_alias = 0
            self._hold(message)
        else:
            self.broker.publishing.refuse(conn, message, ReasonCode.NOT_AUTHORIZED, "not authorized")
        return False

    def will_allowed(self, topic: bytes, done: Callable[[bool], None]) -> bool | None:
        """Whether a will may be published; None: `done` is told later."""
        return self.rights.may_publish(topic, done)

    def knows_filters(self, packet: Subscribe) -> bool:
        """True when the answers for all filters of a SUBSCRIBE are in `filters`; else the packet is held until they are."""
        waiting = 0

        def answered(topic_filter: bytes, answer: bool) -> None:
            nonlocal waiting
            self.filters[topic_filter] = answer
            waiting -= 1
            if waiting == 0:
                self._go_on(answer)

        for request in packet.filters[: self.broker.limits.max_filters_per_packet]:
            asked = asked_filter(request.filter)
            if asked is None or asked in self.filters:
                continue
            answer = self.rights.may_subscribe(asked, partial(answered, asked))
            if answer is None:
                waiting += 1
            else:
                self.filters[asked] = answer
        if waiting:
            self._hold(packet)
        return not waiting

    def may_subscribe(self, topic_filter: bytes) -> bool:
        """The answer that `knows_filters` has waited for."""
        asked = asked_filter(topic_filter)
        return asked is not None and self.filters.get(asked, False)

    def _hold(self, packet: Any) -> None:
        """This packet, and all behind it, wait."""
        dispatch.hold(self.conn, [packet])

    def _go_on(self, _answer: bool) -> None:
        """The answer is there: take what waited, in order (which may hold again)."""
        dispatch.let_go(self.broker, self.conn)

    # --- what the client is sent --------------------------------------------------------------------------------------------

    def knows(self, session: Session, topic: bytes) -> bool:
        """True when it is known whether a message of the topic may be delivered; else the session is woken when it is."""
        if topic in self.awaited:
            return False
        if topic.startswith(P2P):
            return True

        def answered(_answer: bool) -> None:
            self.awaited.discard(topic)
            self.broker.deliverer.wake(session)
            if session.groups is not None:
                self.broker.deliverer.wake_groups(session)

        if self.rights.may_receive(topic, answered) is None:
            self.awaited.add(topic)
            return False
        return True

    def receivable(self, by_acl: TopicCheck | None) -> TopicCheck:
        """The check of a subscription: the ACL's and the plugins' answer, which is known by then."""
        if by_acl is None:
            return self._granted
        return lambda topic: by_acl(topic) and self._granted(topic)

    def _granted(self, topic: bytes) -> bool:
        return bool(self.rights.known_receive(topic))
