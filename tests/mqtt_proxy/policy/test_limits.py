from __future__ import annotations

import dataclasses

import pytest

from mqtt_proxy.policy.limits import LIMITS, NEVER_EXPIRES, LimitError, Limits


def test_every_limit_has_a_unit_a_range_and_a_text_and_its_default_is_allowed() -> None:
    assert {row.name for row in LIMITS} == {f.name for f in dataclasses.fields(Limits)}
    for row in LIMITS:
        assert row.unit
        assert row.about.endswith(".")
        assert row.check(row.default) == row.default


def test_defaults_hold_what_was_decided() -> None:
    limits = Limits()
    assert limits.max_connections >= 50_000
    assert limits.max_subscriptions_per_client >= 10_000
    assert limits.max_queues >= 2_000_000
    assert min(limits.max_sessions, limits.max_retained) >= 1_000_000
    assert limits.max_packet_bytes == 1 << 20
    assert limits.max_topic_levels - 1 >= 200
    assert (limits.inflight_in_max, limits.inflight_out_max) == (100, 1_024)
    assert limits.message_rate_per_client == limits.connection_rate_per_address == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_connections", 0), ("max_connections", -1), ("auth_ban_s", 0), ("inflight_in_max", 65_536), ("max_keepalive_s", 65_536)],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(LimitError, match=rf"{name} = {value}: allowed are \d+ to \d+"):
        Limits(**{name: value})


@pytest.mark.parametrize("value", ["10", 1.5, True, None])
def test_a_value_of_another_kind_is_refused(value: object) -> None:
    with pytest.raises(LimitError, match=r"max_sessions = .*whole number"):
        Limits(max_sessions=value)  # type: ignore[arg-type]


def test_keep_alive_is_bounded_also_for_those_that_ask_for_none() -> None:
    assert Limits().keepalive_s(0) == 0
    bounded = Limits(max_keepalive_s=60)
    assert [bounded.keepalive_s(s) for s in (0, 10, 60, 61, 65_535)] == [60, 10, 60, 60, 60]


def test_session_expiry_and_windows_are_bounded() -> None:
    assert Limits().session_expiry_s(NEVER_EXPIRES) == NEVER_EXPIRES
    assert Limits(session_expiry_max_s=3_600).session_expiry_s(NEVER_EXPIRES) == 3_600
    assert Limits(will_delay_max_s=5).will_delay_s(100) == 5
    assert Limits().inflight_out(65_535) == 1_024
    assert Limits().inflight_out(3) == 3
