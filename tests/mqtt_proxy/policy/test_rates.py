from __future__ import annotations

import resource

from hypothesis import given
from hypothesis import strategies as st

from mqtt_proxy.policy.file_limit import OTHER_FILES, connections_that_fit, raise_file_limit
from mqtt_proxy.policy.rates import AddressCount, AddressRate, FailureBan, TokenBucket, address_key


def test_a_bucket_lets_the_burst_pass_and_then_says_how_long_to_wait() -> None:
    bucket = TokenBucket(rate=100, burst=10, now_ms=0)
    assert bucket.take(10, 0) == 0
    assert bucket.take(1, 0) == 10
    assert bucket.take(1, 20) == 0
    assert bucket.take(5, 1_000_000) == 0  # never more than the burst is saved up
    assert bucket.take(6, 1_000_000) == 10


@given(st.integers(1, 5_000), st.integers(0, 500), st.lists(st.tuples(st.integers(0, 50), st.integers(1, 100)), max_size=60))
def test_a_reader_that_obeys_the_pauses_keeps_the_rate(rate: int, burst: int, arrivals: list[tuple[int, int]]) -> None:
    bucket = TokenBucket(rate, burst, 0)
    now_ms = taken = 0
    for gap_ms, units in arrivals:
        now_ms += gap_ms
        taken += units
        now_ms += bucket.take(units, now_ms)
        assert taken <= (burst or rate) + rate * now_ms / 1_000 + 1e-6


def test_one_customer_is_one_address() -> None:
    assert address_key("192.0.2.7") == "192.0.2.7"
    assert address_key("::ffff:192.0.2.7") == "192.0.2.7"
    assert address_key("2001:db8::1") == address_key("2001:db8::2:3%eth0") == "2001:db8::/64"
    assert address_key("2001:db8:0:1::1") != address_key("2001:db8::1")
    assert address_key("unix") == "unix"
    assert address_key("no:address") == "no:address"


def test_connections_of_an_address_are_paced_and_others_are_not() -> None:
    rate = AddressRate(rate=5, max_addresses=100)
    assert [rate.admit("192.0.2.1", 0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert rate.admit("192.0.2.2", 0)
    assert rate.admit("192.0.2.1", 200)
    assert not rate.admit("192.0.2.1", 200)
    assert [rate.admit("192.0.2.1", 60_000) for _ in range(6)] == [True] * 5 + [False]


def test_refused_tries_do_not_push_the_next_admission_away() -> None:
    rate = AddressRate(rate=1, max_addresses=10)
    assert rate.admit("192.0.2.1", 0)
    assert not any(rate.admit("192.0.2.1", ms) for ms in range(1, 1_000))
    assert rate.admit("192.0.2.1", 1_000)


def test_a_rate_of_zero_is_off_and_remembers_nobody() -> None:
    rate = AddressRate(rate=0, max_addresses=10)
    assert all(rate.admit("192.0.2.1", 0) for _ in range(1_000))
    assert len(rate) == 0


def test_remembered_addresses_are_bounded() -> None:
    rate = AddressRate(rate=1, max_addresses=16)
    ban = FailureBan(3, 1_000, 1_000, max_keys=16)
    for n in range(1_000):
        rate.admit(f"192.0.{n >> 8}.{n & 255}", n)
        ban.failed(f"192.0.{n >> 8}.{n & 255}", n)
    assert len(rate) == len(ban) == 16


def test_open_connections_of_an_address_are_counted() -> None:
    count = AddressCount(max_each=2)
    assert count.enter("2001:db8::1")
    assert count.enter("2001:db8::2")
    assert not count.enter("2001:db8::3")
    count.leave("2001:db8::2")
    assert count.enter("2001:db8::3")
    for _ in range(5):
        count.leave("2001:db8::1")
    assert len(count) == 0
    assert all(AddressCount(0).enter("192.0.2.1") for _ in range(10))


def test_guessing_bans_the_address_for_a_while() -> None:
    ban = FailureBan(failures_max=3, window_ms=1_000, ban_ms=5_000, max_keys=100)
    assert [ban.failed("192.0.2.1", ms) for ms in (0, 1, 2)] == [False, False, True]
    assert ban.banned_ms("192.0.2.1", 2) == 5_000
    assert ban.banned_ms("192.0.2.2", 2) == 0
    assert not ban.failed("192.0.2.1", 3)  # a ban is told once
    assert ban.banned_ms("192.0.2.1", 5_002) == 0


def test_failures_far_apart_ban_nobody() -> None:
    ban = FailureBan(failures_max=3, window_ms=1_000, ban_ms=5_000, max_keys=100)
    assert not any(ban.failed("192.0.2.1", ms) for ms in range(0, 60_000, 600))
    assert not any(FailureBan(0, 1, 1, 1).failed("192.0.2.1", 0) for _ in range(100))


def test_the_file_limit_is_raised_and_never_lowered() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2_000) if hard != resource.RLIM_INFINITY else 2_000, hard))
        before = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert raise_file_limit(10) == before
        raised = raise_file_limit(2_100)
        assert raised >= before
        assert connections_that_fit(raised) >= 1
        if hard == resource.RLIM_INFINITY or hard >= 2_100 + OTHER_FILES:
            assert raised == 2_100 + OTHER_FILES
            assert connections_that_fit(raised) == 2_100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
