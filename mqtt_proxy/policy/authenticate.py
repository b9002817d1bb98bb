"""Who a client is: one door for anonymous clients, passwords, certificates, SCRAM and amqtt's plugins.

The answer is `Admitted` or `Denied` at once where it is at hand (anonymous, certificate, a password found right a
moment ago), else None, and `done` is called on the loop later. What counts, in this order:

1. a name from a verified client certificate (a listener with `subject_as_user=true`) is taken;
2. an address, or a user from an address, that is banned for guessing is denied;
3. without `--users` and plugins nobody is checked: the user name is what the client claims, as in mosquitto;
4. a client without a user name is anonymous: taken if anonymous clients are, else the plugins are asked, else denied;
5. a user of the users file is checked against it; other names are the plugins' business, where there are some.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from mqtt_proxy.packets.reason_codes import ReasonCode
from mqtt_proxy.policy import scram
from mqtt_proxy.policy.identity import Identity
from mqtt_proxy.policy.limits import Limits
from mqtt_proxy.policy.password_checks import PasswordChecks
from mqtt_proxy.policy.rates import FailureBan, address_key
from mqtt_proxy.policy.scram import ScramError, ScramServer
from mqtt_proxy.policy.users import Users

log = logging.getLogger("lmq.authenticate")

DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a CONNECT and its link say of a client. `tls_user` is the name that the listener takes from the certificate."""

    client_id: bytes
    user: bytes | None = None
    password: bytes | None = None
    address: str = ""
    port: int = 0
    tls_subject: str = ""
    tls_user: bytes | None = None
    clean_start: bool = True
    keep_alive_s: int = 0
    ssl_object: Any = field(default=None, repr=False)

    def identity(self, user: bytes | None) -> Identity:
        return Identity(user, self.client_id, self.address, self.tls_subject)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The client is who it says. `data` is the Authentication Data for CONNACK or AUTH 0x00 (enhanced authentication)."""

    identity: Identity
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Denied:
    """The client is not taken. `why` is for the log; it tells no secret, so an MQTT 5 client may see it too."""

    reason: ReasonCode
    why: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """Send AUTH 0x18 (Continue authentication) with this data, and give the client's next AUTH to the exchange."""

    data: bytes


Decision = Admitted | Denied
Done = Callable[[Decision], None]


class LoginPlugins(Protocol):
    """Other judges of a login (amqtt_plugins.py): True, False, or None where they have no opinion."""

    def authenticate(self, credentials: Credentials, done: Callable[[bool | None], None]) -> None: ...


class Authenticator:
    """Decides logins under the users, plugins and limits in force; `reload` changes those."""

    def __init__(
        self,
        limits: Limits,
        call_soon: Callable[[Callable[[], None]], object],
        now_ms: Callable[[], int],
        *,
        users: Users | None = None,
        plugins: LoginPlugins | None = None,
        takes_anonymous: bool = False,
    ) -> None:
        self._now_ms = now_ms
        self._secret = os.urandom(32)
        self._known_right: dict[bytes, int] = {}
        self._waiting: dict[bytes, list[tuple[Credentials, Done]]] = {}
        self._ban_limits: tuple[int, ...] = ()
        self._plugin_logins = 0
        self._checks = PasswordChecks(call_soon, limits.auth_threads, limits.auth_queue_max)
        self.reload(limits, users, plugins, takes_anonymous)

    def reload(self, limits: Limits, users: Users | None, plugins: LoginPlugins | None, takes_anonymous: bool) -> None:
        """Take new settings. Passwords known to be right are forgotten; bans start afresh only if their limits changed."""
        ban_limits = (
            limits.auth_failures_max,
            limits.auth_failures_per_address_max,
            limits.auth_failure_window_s,
            limits.auth_ban_s,
            limits.max_tracked_addresses,
        )
        if self._ban_limits != ban_limits:
            window_ms, ban_ms = limits.auth_failure_window_s * 1_000, limits.auth_ban_s * 1_000
            self._user_bans = FailureBan(limits.auth_failures_max, window_ms, ban_ms, limits.max_tracked_addresses)
            self._address_bans = FailureBan(limits.auth_failures_per_address_max, window_ms, ban_ms, limits.max_tracked_addresses)
            self._ban_limits = ban_limits
        self._checks.bound(limits.auth_threads, limits.auth_queue_max)
        self._limits = limits
        self._users = users
        self._plugins = plugins
        self._takes_anonymous = takes_anonymous
        self._known_right.clear()

    def close(self) -> None:
        """End the threads; logins that wait are not answered any more."""
        self._checks.close()

    @property
    def checks_names(self) -> bool:
        """False while user names are only what clients claim."""
        return self._users is not None or self._plugins is not None

    def still_known(self, identity: Identity) -> bool:
        """Whether the identity would still be somebody after a reload: its user has not been taken out of the file."""
        if identity.user is None:
            return self._takes_anonymous or self._plugins is not None
        return self._users is None or self._plugins is not None or bool(identity.tls_subject) or identity.user in self._users

    def authenticate(self, credentials: Credentials, done: Done) -> Decision | None:
        """The decision where it is at hand; else None, and `done(decision)` on the loop later."""
        user = credentials.user
        if credentials.tls_user is not None:
            if not credentials.tls_user:
                return Denied(ReasonCode.NOT_AUTHORIZED, "the client certificate names no user")
            return Admitted(credentials.identity(credentials.tls_user))
        banned = self._banned(credentials.address, user or b"")
        if banned is not None:
            return banned
        if not self.checks_names:
            if user is None and not self._takes_anonymous:
                return Denied(ReasonCode.NOT_AUTHORIZED, "anonymous clients are not taken")
            return Admitted(credentials.identity(user))
        if user is None:
            if self._takes_anonymous:
                return Admitted(credentials.identity(None))
            if self._plugins is None:
                return Denied(ReasonCode.NOT_AUTHORIZED, "anonymous clients are not taken")
            return self._ask_plugins(self._plugins, credentials, done)
        if self._plugins is not None and (self._users is None or user not in self._users):
            return self._ask_plugins(self._plugins, credentials, done)
        return self._check_password(credentials, done)

    def enhanced(self, method: bytes, credentials: Credentials, again: Identity | None = None) -> Exchange | Denied:
        """Begin enhanced authentication, or do it again for `again`; Denied with 0x8C for an unknown method [MQTT-4.12.0-1]."""
        if method != scram.METHOD or self._users is None:
            return Denied(ReasonCode.BAD_AUTHENTICATION_METHOD, f"authentication method {method[:40]!r} is not known")
        return Exchange(self, self._users, credentials, again)

    # --- bans -------------------------------------------------------------------------------------------------------------

    def _banned(self, address: str, user: bytes) -> Denied | None:
        now_ms = self._now_ms()
        if not (self._address_bans or self._user_bans):
            return None
        left_ms = max(
            self._address_bans.banned_ms(address_key(address), now_ms), self._user_bans.banned_ms(_user_at(address, user), now_ms)
        )
        return Denied(ReasonCode.BANNED, f"banned for another {left_ms} ms after failed logins") if left_ms else None

    def _failed(self, address: str, user: bytes) -> None:
        now_ms = self._now_ms()
        ban_s = self._limits.auth_ban_s
        if self._user_bans.failed(_user_at(address, user), now_ms):
            log.warning("user %r at %s is banned for %d s: auth_failures_max=%d", user[:64], address, ban_s, self._limits.auth_failures_max)
        if self._address_bans.failed(address_key(address), now_ms):
            most = self._limits.auth_failures_per_address_max
            log.warning("address %s is banned for %d s: auth_failures_per_address_max=%d", address, ban_s, most)

    # --- passwords --------------------------------------------------------------------------------------------------------

    def _check_password(self, credentials: Credentials, done: Done) -> Decision | None:
        """From memory where the very password was right a moment ago, else by the slow hash, once for all who wait for it."""
        users, user, password = self._users, credentials.user or b"", credentials.password or b""
        if users is None:  # a reload took the file away meanwhile
            return self.authenticate(credentials, done)
        now_ms = self._now_ms()
        digest = self._digest(user, password)
        until_ms = self._known_right.get(digest)
        if until_ms is not None and until_ms > now_ms:
            return Admitted(credentials.identity(user))
        waiting = self._waiting.get(digest)
        if waiting is not None:
            if len(waiting) >= self._limits.auth_queue_max:
                return Denied(ReasonCode.SERVER_BUSY, "auth_queue_max logins wait already")
            waiting.append((credentials, done))
            return None
        deadline_ms = now_ms + self._limits.auth_timeout_s * 1_000
        if not self._checks.submit(
            lambda: users.verify(user, password) if self._worth_it(credentials, deadline_ms) else None,
            lambda right: self._checked(digest, users, right),
        ):
            return Denied(ReasonCode.SERVER_BUSY, "auth_queue_max logins wait already")
        self._waiting[digest] = [(credentials, done)]
        return None

    def _worth_it(self, credentials: Credentials, deadline_ms: int) -> bool:
        """In the thread, before the slow part: nobody waits any more, or the guesser has been banned meanwhile."""
        return self._now_ms() < deadline_ms and self._banned(credentials.address, credentials.user or b"") is None

    def _checked(self, digest: bytes, users: Users, right: bool | None) -> None:
        """On the loop, with the result of one check, for all who waited for it."""
        waiting = self._waiting.pop(digest, [])
        if users is not self._users:  # reloaded meanwhile: the answer is about a file of yesterday
            right = None
        elif right:
            self._remember(digest, self._now_ms())
        for position, (credentials, done) in enumerate(waiting):
            user = credentials.user or b""
            if right:
                done(Admitted(credentials.identity(user)))
            elif right is False:
                banned = self._banned(credentials.address, user)
                if banned is None:
                    self._failed(credentials.address, user)
                done(banned or Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "wrong user name or password"))
            else:
                self._not_checked(credentials, done, first=position == 0 and users is self._users)

    def _not_checked(self, credentials: Credentials, done: Done, first: bool) -> None:
        """A check was skipped: its `first` login was banned or came too late; others joined it and get their own."""
        decision = self.authenticate(credentials, done) if not first else self._banned(credentials.address, credentials.user or b"")
        if first and decision is None:
            decision = Denied(ReasonCode.SERVER_BUSY, "the password check did not come to its turn within auth_timeout_s")
        if decision is not None:
            done(decision)

    def _digest(self, user: bytes, password: bytes) -> bytes:
        """Stands for user and password in memory: keyed with this process's secret, so it tells nothing of either."""
        return hmac.digest(self._secret, b"%d:%b%b" % (len(user), user, password), "sha256")[:DIGEST_BYTES]

    def _remember(self, digest: bytes, now_ms: int) -> None:
        if not self._limits.auth_cache_s:
            return
        self._known_right.pop(digest, None)
        self._known_right[digest] = now_ms + self._limits.auth_cache_s * 1_000
        if len(self._known_right) > self._limits.auth_cache_max:
            del self._known_right[next(iter(self._known_right))]

    # --- plugins ----------------------------------------------------------------------------------------------------------

    def _ask_plugins(self, plugins: LoginPlugins, credentials: Credentials, done: Done) -> Decision | None:
        if self._plugin_logins >= self._limits.auth_queue_max:
            return Denied(ReasonCode.SERVER_BUSY, "auth_queue_max logins wait already")
        self._plugin_logins += 1

        def answered(right: bool | None) -> None:
            self._plugin_logins -= 1
            if right:
                done(Admitted(credentials.identity(credentials.user)))
                return
            self._failed(credentials.address, credentials.user or b"")
            reason = ReasonCode.NOT_AUTHORIZED if credentials.user is None else ReasonCode.BAD_USER_NAME_OR_PASSWORD
            done(Denied(reason, "no plugin takes the client" if right is None else "a plugin refuses the client"))

        plugins.authenticate(credentials, answered)
        return None


class Exchange:
    """One enhanced authentication by SCRAM-SHA-256 (MQTT 5.0 §4.12), at CONNECT or again on a running connection.

    `take` the Authentication Data of CONNECT (None or b"" where it has none) and then of each AUTH.
    """

    __slots__ = ("_again", "_authenticator", "_credentials", "_scram", "_step", "method")

    def __init__(self, authenticator: Authenticator, users: Users, credentials: Credentials, again: Identity | None) -> None:
        self.method = scram.METHOD
        self._authenticator = authenticator
        self._credentials = credentials
        self._again = again
        self._scram = ScramServer(users.scram_keys, authenticator._secret)
        self._step = 0

    def take(self, data: bytes | None) -> Challenge | Admitted | Denied:
        """The next move. After Admitted or Denied the exchange is over."""
        credentials = self._credentials
        user = self._scram.claimed
        banned = self._authenticator._banned(credentials.address, user)
        if banned is not None:
            return banned
        self._step += 1
        try:
            if self._step == 1 and not data:
                return Challenge(b"")  # the client's first message comes with AUTH then
            if not user:
                return Challenge(self._scram.client_first(data or b""))
            answer = self._scram.client_final(data or b"")
        except ScramError as error:
            self._authenticator._failed(credentials.address, self._scram.claimed)
            return Denied(ReasonCode.NOT_AUTHORIZED, f"SCRAM-SHA-256: {error}")
        if self._again is not None and self._scram.user != self._again.user:
            return Denied(ReasonCode.NOT_AUTHORIZED, "another user than the connection's may not authenticate again on it")
        return Admitted(credentials.identity(self._scram.user), answer)


def _user_at(address: str, user: bytes) -> str:
    """The key of a user at an address, of bounded length whatever the name's."""
    return address_key(address) + " " + hashlib.blake2b(user, digest_size=8).hexdigest()
