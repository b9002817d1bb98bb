"""The names of the report: what the JSON holds, what `--require` knows, what the documentation lists."""

SCHEMA_VERSION = 1

COUNTS = {
    "sent": "messages whose first PUBLISH went out",
    "acked": "messages acknowledged (PUBACK, PUBCOMP)",
    "rejected": "messages refused with a reason of 0x80 or above: neither acknowledged nor owed",
    "delivered": "different messages received, summed over the subscriptions",
    "expected": "acknowledged messages (QoS 0: sent ones) times matching subscriptions; a shared group is one",
    "lost": "expected and never seen at effective QoS 1 or 2",
    "lost_qos0": "sent and never seen at effective QoS 0",
    "duplicate": "repeats without DUP of messages that were sent once; at QoS 2 every repeat",
    "redelivered": "repeats with DUP, or of a message that its publisher itself sent again",
    "reordered": "first deliveries whose number lies below one already seen, per (subscription, publisher, topic, QoS)",
    "corrupt": "payloads of this run whose checksum does not match",
    "foreign": "payloads without a ledger of this run",
    "phantom": "valid payloads that nobody sent",
    "misrouted": "messages that came to a subscription which does not match",
    "unsent": "messages that were due and never sent",
    "unacked": "messages sent and neither acknowledged nor rejected",
    "delivered_unacked": "messages delivered although never acknowledged",
    "sessions_lost": "reconnects that found no session where one was promised",
    "connect_failed": "attempts to connect that came to nothing",
    "subscribe_refused": "filters refused in SUBACK",
    "disconnects": "established connections that ended without our DISCONNECT",
    "protocol_errors": "packets that break the specification, or acknowledge nothing",
}
RATES = {
    "sent_per_s": "in the measured time",
    "acked_per_s": "in the measured time",
    "delivered_per_s": "in the measured time",
    "processed_per_s": "QoS 0: all messages over the time from the first send to the last PINGRESP after the last message",
    "drain_per_s": "offline and retained: messages over the time from the return to the last of them",
    "connects_per_s": "connections over the time from the first attempt to the last CONNACK of the ramp",
}
_LATENCY = ("n", "min", "mean", "p50", "p90", "p95", "p99", "p999", "p9999", "max")
FIGURES = {
    "e2e": _LATENCY,
    "ack": _LATENCY,
    "send_to_ack": _LATENCY,
    "send_late": _LATENCY,
    "bare_late": _LATENCY,
    "connect": _LATENCY,
    "subscribe": _LATENCY,
}
LATENCY_HELP = {
    "e2e": "due instant to delivery",
    "ack": "due instant to acknowledgement",
    "send_to_ack": "sending to acknowledgement, the plain time",
    "send_late": "open loop: how long after its due instant a message was sent",
    "bare_late": "open loop: the same of a loop that only keeps time, on this machine just before the run",
    "connect": "start of the attempt (its due instant with --connect-rate) to CONNACK",
    "subscribe": "first SUBSCRIBE to last SUBACK",
}
GROUPS = {
    "server": ("cpu_pct", "cpu_us_per_message", "messages_per_cpu_s", "rss_mb", "rss_per_connection"),
    "harness": ("cpu_pct", "rss_mb", "rss_per_connection", "workers", "saturated"),
}
