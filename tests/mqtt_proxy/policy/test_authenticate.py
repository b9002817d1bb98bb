from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from mqtt_proxy.packets.reason_codes import ReasonCode
from mqtt_proxy.policy.authenticate import Admitted, Authenticator, Challenge, Credentials, Decision, Denied, Exchange
from mqtt_proxy.policy.identity import Identity
from mqtt_proxy.policy.limits import Limits
from mqtt_proxy.policy.password_hash import encode_scram_keys, hash_scrypt
from mqtt_proxy.policy.scram import METHOD, ScramClient, make_keys
from mqtt_proxy.policy.users import User, Users, parse_users

USERS = parse_users(f"u:{hash_scrypt(b'right', ln=10)}:{encode_scram_keys(make_keys(b'right', iterations=4_096))}".encode())


class Loop:
    """Stands for the event loop: calls from threads wait here until the test runs them."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.calls: list[Callable[[], None]] = []
        self.called = threading.Condition()

    def call_soon(self, call: Callable[[], None]) -> None:
        with self.called:
            self.calls.append(call)
            self.called.notify()

    def run_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            with self.called:
                assert self.called.wait_for(lambda: self.calls, timeout=10), "no answer"
                call = self.calls.pop(0)
            call()


class GatedHash:
    """A hash whose checks wait until the test lets them through, and are counted."""

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self.started = threading.Event()
        self.checks = 0

    def verify(self, password: bytes) -> bool:
        self.checks += 1
        self.started.set()
        assert self.gate.acquire(timeout=10)
        return password == b"right"


class Desk:
    """An authenticator with a loop, and logins as one line."""

    def __init__(self, limits: Limits | None = None, users: Users | None = USERS, **settings: Any) -> None:
        self.loop = Loop()
        self.authenticator = Authenticator(limits or Limits(), self.loop.call_soon, lambda: self.loop.now_ms, users=users, **settings)

    def ask(self, user: bytes | None = b"u", password: bytes | None = b"right", **more: Any) -> list[Decision]:
        answers: list[Decision] = []
        more.setdefault("address", "192.0.2.1")
        decision = self.authenticator.authenticate(Credentials(b"c", user, password, **more), answers.append)
        if decision is not None:
            answers.append(decision)
        return answers

    def login(self, user: bytes | None = b"u", password: bytes | None = b"right", **more: Any) -> Decision:
        answers = self.ask(user, password, **more)
        self.loop.run_until(lambda: bool(answers))
        assert len(answers) == 1
        return answers[0]


def reason_of(decision: Decision) -> int:
    return 0 if isinstance(decision, Admitted) else int(decision.reason)


@pytest.fixture
def desks() -> Any:
    made: list[Desk] = []

    def make(*args: Any, **settings: Any) -> Desk:
        made.append(Desk(*args, **settings))
        return made[-1]

    yield make
    for desk in made:
        desk.authenticator.close()


def test_right_and_wrong_passwords(desks: Callable[..., Desk]) -> None:
    desk = desks()
    admitted = desk.login(address="192.0.2.7", tls_subject="CN=x")
    assert admitted == Admitted(Identity(b"u", b"c", "192.0.2.7", "CN=x"))
    for user, password in ((b"u", b"wrong"), (b"u", None), (b"u", b""), (b"v", b"right"), (b"", b"right")):
        assert reason_of(desk.login(user, password)) == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_a_password_found_right_is_taken_at_once_for_a_while_and_until_a_reload(desks: Callable[..., Desk]) -> None:
    desk = desks()
    desk.login()
    assert [reason_of(d) for d in desk.ask()] == [0]
    assert desk.ask(b"u", b"wrong") == []
    desk.loop.now_ms += 301_000
    assert desk.ask() == []
    desk = desks()
    desk.login()
    desk.authenticator.reload(Limits(), USERS, None, False)
    assert desk.ask() == []


def test_remembered_passwords_are_bounded_and_kept_as_digests(desks: Callable[..., Desk]) -> None:
    class Anything:
        def verify(self, password: bytes) -> bool:
            return True

    users = Users({b"%d" % n: User(Anything(), None) for n in range(20)})
    desk = desks(Limits(auth_cache_max=10), users)
    for n in range(20):
        desk.login(b"%d" % n, b"password")
    remembered = desk.authenticator._known_right
    assert len(remembered) == 10
    assert all(len(digest) == 16 for digest in remembered)
    assert desk.ask(b"0", b"password") == []


def test_logins_with_the_same_password_wait_for_one_check(desks: Callable[..., Desk]) -> None:
    slow = GatedHash()
    desk = desks(users=Users({b"u": User(slow, None)}))
    answers = [desk.ask(address=f"192.0.2.{n}") for n in range(100)]
    slow.gate.release(100)
    desk.loop.run_until(lambda: all(answers))
    assert all(isinstance(answer[0], Admitted) for answer in answers)
    assert slow.checks == 1


def test_the_queue_is_bounded(desks: Callable[..., Desk]) -> None:
    slow = GatedHash()
    desk = desks(Limits(auth_queue_max=2), Users({b"u": User(slow, None)}))
    answers = [desk.ask(password=b"0")]
    assert slow.started.wait(10)
    answers += [desk.ask(password=b"%d" % n) for n in range(1, 6)]
    assert [reason_of(answer[0]) for answer in answers if answer] == [ReasonCode.SERVER_BUSY] * 3
    slow.gate.release(100)
    desk.loop.run_until(lambda: all(answers))


def test_a_login_that_waited_too_long_costs_no_hash(desks: Callable[..., Desk]) -> None:
    slow = GatedHash()
    desk = desks(Limits(auth_timeout_s=5), Users({b"u": User(slow, None)}))
    first, second = desk.ask(password=b"1"), desk.ask(password=b"2")
    assert slow.started.wait(10)
    desk.loop.now_ms += 6_000
    joined = desk.ask(password=b"2", address="192.0.2.9")
    slow.gate.release(100)
    desk.loop.run_until(lambda: bool(first and second and joined))
    assert reason_of(second[0]) == ReasonCode.SERVER_BUSY
    assert reason_of(joined[0]) == ReasonCode.BAD_USER_NAME_OR_PASSWORD  # in time, so it got a check of its own
    assert slow.checks == 2


def test_guessing_a_user_s_password_bans_the_user_at_that_address_alone(desks: Callable[..., Desk]) -> None:
    desk = desks(Limits(auth_failures_max=3, auth_ban_s=30))
    assert [reason_of(desk.login(password=b"%d" % n)) for n in range(3)] == [ReasonCode.BAD_USER_NAME_OR_PASSWORD] * 3
    assert reason_of(desk.login()) == ReasonCode.BANNED
    assert reason_of(desk.login(b"v")) == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert reason_of(desk.login(address="192.0.2.2")) == 0
    assert reason_of(desk.login()) == ReasonCode.BANNED  # also where the password is known to be right
    desk.loop.now_ms += 31_000
    assert reason_of(desk.login()) == 0


def test_guessing_many_users_bans_the_address(desks: Callable[..., Desk], caplog: pytest.LogCaptureFixture) -> None:
    desk = desks(Limits(auth_failures_per_address_max=4))
    for n in range(4):
        desk.login(b"user%d" % n)
    assert reason_of(desk.login()) == ReasonCode.BANNED
    assert reason_of(desk.login(tls_user=b"dn")) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "auth_failures_per_address_max=4" in caplog.text


def test_guesses_that_wait_when_the_ban_comes_cost_no_hash(desks: Callable[..., Desk]) -> None:
    slow = GatedHash()
    desk = desks(Limits(auth_failures_max=2), Users({b"u": User(slow, None)}))
    answers = [desk.ask(password=b"0")]
    assert slow.started.wait(10)
    answers += [desk.ask(password=b"%d" % n) for n in range(1, 50)]
    slow.gate.release(2)
    desk.loop.run_until(lambda: all(answers[:2]))
    slow.gate.release(100)
    desk.loop.run_until(lambda: all(answers))
    assert slow.checks <= 3  # one more may have begun before the second answer came
    assert [reason_of(a[0]) for a in answers].count(ReasonCode.BAD_USER_NAME_OR_PASSWORD) == 2


def test_a_reload_in_the_middle_checks_again_under_the_new_file(desks: Callable[..., Desk]) -> None:
    slow = GatedHash()
    desk = desks(users=Users({b"u": User(slow, None)}))
    answers = desk.ask()
    assert slow.started.wait(10)
    desk.authenticator.reload(Limits(), parse_users(f"u:{hash_scrypt(b'new', ln=10)}".encode()), None, False)
    slow.gate.release(100)
    desk.loop.run_until(lambda: bool(answers))
    assert reason_of(answers[0]) == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_a_check_that_breaks_lets_nobody_in_and_the_next_one_runs(desks: Callable[..., Desk]) -> None:
    class Broken:
        def verify(self, password: bytes) -> bool:
            raise MemoryError

    desk = desks(users=Users({b"u": User(Broken(), None)}))
    assert reason_of(desk.login()) == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert reason_of(desk.login()) == ReasonCode.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize(
    ("users", "takes_anonymous", "user", "reason"),
    [
        (None, True, None, 0),
        (None, True, b"claimed", 0),
        (None, False, None, ReasonCode.NOT_AUTHORIZED),
        (USERS, False, None, ReasonCode.NOT_AUTHORIZED),
        (USERS, True, None, 0),
        (USERS, True, b"v", ReasonCode.BAD_USER_NAME_OR_PASSWORD),
    ],
)
def test_anonymous_clients(desks: Callable[..., Desk], users: Users | None, takes_anonymous: bool, user: bytes | None, reason: int) -> None:
    desk = desks(users=users, takes_anonymous=takes_anonymous)
    decision = desk.login(user)
    assert reason_of(decision) == reason
    if isinstance(decision, Admitted):
        assert decision.identity.user == user
    assert desk.authenticator.checks_names is (users is not None)


def test_the_name_of_a_verified_certificate_is_taken_without_a_password(desks: Callable[..., Desk]) -> None:
    desk = desks()
    decision = desk.login(None, None, tls_user=b"device", tls_subject="CN=device")
    assert decision == Admitted(Identity(b"device", b"c", "192.0.2.1", "CN=device"))
    assert reason_of(desk.login(None, None, tls_user=b"")) == ReasonCode.NOT_AUTHORIZED


class Plugins:
    def __init__(self, answer: bool | None) -> None:
        self.answer = answer
        self.asked: list[bytes | None] = []

    def authenticate(self, credentials: Credentials, done: Callable[[bool | None], None]) -> None:
        self.asked.append(credentials.user)
        done(self.answer)


@pytest.mark.parametrize(("answer", "reason"), [(True, 0), (False, 0x86), (None, 0x86)])
def test_plugins_are_asked_for_names_that_the_file_does_not_hold(desks: Callable[..., Desk], answer: bool | None, reason: int) -> None:
    plugins = Plugins(answer)
    desk = desks(plugins=plugins)
    assert reason_of(desk.login(b"u")) == 0
    assert reason_of(desk.login(b"v")) == reason
    assert reason_of(desk.login(None)) == (ReasonCode.NOT_AUTHORIZED if reason else 0)
    assert plugins.asked == [b"v", None]


def test_who_is_still_known_after_a_reload(desks: Callable[..., Desk]) -> None:
    authenticator = desks().authenticator
    assert authenticator.still_known(Identity(b"u", b"c"))
    assert not authenticator.still_known(Identity(b"gone", b"c"))
    assert authenticator.still_known(Identity(b"gone", b"c", tls_subject="CN=gone"))
    assert not authenticator.still_known(Identity(None, b"c"))
    authenticator.reload(Limits(), None, None, True)
    assert authenticator.still_known(Identity(b"gone", b"c"))
    assert authenticator.still_known(Identity(None, b"c"))


# --- enhanced authentication -------------------------------------------------------------------------------------------------


def exchange_of(desk: Desk, again: Identity | None = None) -> Exchange:
    exchange = desk.authenticator.enhanced(METHOD, Credentials(b"c", address="192.0.2.1"), again)
    assert isinstance(exchange, Exchange)
    return exchange


def scram_login(desk: Desk, password: bytes = b"right", again: Identity | None = None) -> Admitted | Denied:
    exchange, client = exchange_of(desk, again), ScramClient(b"u", password)
    challenge = exchange.take(client.first())
    assert isinstance(challenge, Challenge)
    decision = exchange.take(client.final(challenge.data))
    assert not isinstance(decision, Challenge)
    if isinstance(decision, Admitted):
        client.check(decision.data)
    return decision


def test_scram_logs_in_and_again(desks: Callable[..., Desk]) -> None:
    desk = desks()
    decision = scram_login(desk)
    assert isinstance(decision, Admitted)
    assert decision.identity == Identity(b"u", b"c", "192.0.2.1")
    assert isinstance(scram_login(desk, again=decision.identity), Admitted)
    assert reason_of(scram_login(desk, again=Identity(b"other", b"c"))) == ReasonCode.NOT_AUTHORIZED
    assert reason_of(scram_login(desk, b"wrong")) == ReasonCode.NOT_AUTHORIZED


def test_the_first_message_may_come_after_an_empty_challenge(desks: Callable[..., Desk]) -> None:
    for nothing in (None, b""):
        exchange, client = exchange_of(desks()), ScramClient(b"u", b"right")
        assert exchange.take(nothing) == Challenge(b"")
        challenge = exchange.take(client.first())
        assert isinstance(challenge, Challenge)
        assert isinstance(exchange.take(client.final(challenge.data)), Admitted)


def test_scram_guessing_is_banned_too(desks: Callable[..., Desk]) -> None:
    desk = desks(Limits(auth_failures_max=2))
    for _ in range(2):
        assert reason_of(scram_login(desk, b"wrong")) == ReasonCode.NOT_AUTHORIZED
    exchange, client = exchange_of(desk), ScramClient(b"u", b"right")
    challenge = exchange.take(client.first())
    assert isinstance(challenge, Challenge)
    assert exchange.take(client.final(challenge.data)) == Denied(ReasonCode.BANNED, "banned for another 60000 ms after failed logins")


@pytest.mark.parametrize("method", [b"", b"PLAIN", b"scram-sha-256", b"SCRAM-SHA-256-PLUS"])
def test_other_methods_are_refused(desks: Callable[..., Desk], method: bytes) -> None:
    denied = desks().authenticator.enhanced(method, Credentials(b"c"))
    assert isinstance(denied, Denied)
    assert denied.reason == ReasonCode.BAD_AUTHENTICATION_METHOD
    assert isinstance(desks(users=None).authenticator.enhanced(METHOD, Credentials(b"c")), Denied)


@pytest.mark.parametrize("data", [b"rubbish", b"n,,n=u", b"\xff"])
def test_rubbish_is_denied(desks: Callable[..., Desk], data: bytes) -> None:
    decision = exchange_of(desks()).take(data)
    assert isinstance(decision, Denied)
    assert decision.reason == ReasonCode.NOT_AUTHORIZED
