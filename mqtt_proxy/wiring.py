"""The one place that picks engines and ties them to the broker, by the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmq_store.embedded.consumer_groups import ConsumerGroups
from lmq_store.embedded.store import EmbeddedStore, StoreOptions
from mqtt_proxy.broker import Broker
from mqtt_proxy.policy.acl import Acl
from mqtt_proxy.policy.acl_file import load_acl
from mqtt_proxy.policy.authenticate import Authenticator
from mqtt_proxy.policy.users import Users, load_users
from mqtt_proxy.settings import Settings, SettingsError
from notify.in_process import InProcessNotify

if TYPE_CHECKING:
    from mqtt_proxy.policy.amqtt_plugins import AmqttPlugins

CallSoon = Callable[[Callable[[], None]], object]


def open_store(settings: Settings) -> EmbeddedStore:
    """Open (and where needed recover) the embedded store. Raises StoreError with one readable line."""
    return EmbeddedStore.open(
        settings.data,
        StoreOptions(
            flush=settings.flush,
            flush_interval_ms=settings.flush_interval_ms,
            segment_bytes=settings.segment_bytes,
            min_free_bytes=settings.min_free_bytes,
            cache_bytes=settings.cache_bytes,
            repair=settings.repair,
            retention_ms=int(settings.retention_hours * 3_600_000),
            retention_bytes=settings.retention_bytes,
            max_deliveries=settings.max_deliveries,
            offset_commit_ms=settings.offset_commit_ms,
        ),
    )


@dataclass(slots=True)
class Policy:
    """Who may come in and do what, as read from the files that the settings name, and the plugins that judge beside them."""

    users: Users | None
    acl: Acl
    plugins: AmqttPlugins | None = None

    def take(self, users: tuple[Users | None] | None, acl: Acl | None) -> None:
        """What a reload has read; None where the file was bad, and the old one stays."""
        if users is not None:
            self.users = users[0]
        if acl is not None:
            self.acl = acl


def read_users(settings: Settings) -> Users | None:
    """None without a users file. Raises UsersError with file and line."""
    return load_users(settings.users) if settings.users else None


def read_acl(settings: Settings) -> Acl:
    """Raises AclError with file and line."""
    return load_acl(settings.acl) if settings.acl else Acl(None)


def read_policy(settings: Settings, call_soon: CallSoon) -> Policy:
    """Read the users and the ACL, load the plugins. Raises UsersError, AclError or SettingsError."""
    policy = Policy(read_users(settings), read_acl(settings))
    if settings.amqtt_plugins:
        policy.plugins = _load_plugins(settings, call_soon)
    return policy


def _load_plugins(settings: Settings, call_soon: CallSoon) -> AmqttPlugins:
    """Imported only here: it takes a third of a second, and is an extra that need not be there."""
    try:
        from mqtt_proxy.policy.amqtt_plugins import AmqttPlugins, PluginsError
    except ImportError as error:
        raise SettingsError(f"amqtt_plugins is set, but amqtt cannot be imported ({error}): pip install 'lmq-proxy[amqtt]'") from None
    try:
        return AmqttPlugins(settings.amqtt_plugins, call_soon, settings.limits.auth_timeout_s)
    except PluginsError as error:
        raise SettingsError(str(error)) from None


def login_plugins(policy: Policy) -> AmqttPlugins | None:
    """The plugins, where one of them judges logins."""
    return policy.plugins if policy.plugins is not None and policy.plugins.judges_logins else None


def wire_broker(
    settings: Settings, store: Any, policy: Policy, call_soon: CallSoon, clock: Callable[[], int] | None = None
) -> Broker:
    """A broker on the store, loaded and ready for connections. `call_soon` runs a call on the loop, from any thread.

    `clock` tells the time in ms since the Unix epoch, if not the machine's.
    """
    broker = Broker(settings, store, getattr(store, "meta", store), clock)
    broker.shared.groups = ConsumerGroups(store, broker.meta, broker.shared.dead_letter, settings.max_deliveries, settings.offset_commit_ms)
    broker.acl = policy.acl
    broker.authenticating.authenticator = Authenticator(
        settings.limits,
        call_soon,
        lambda: broker.now_ms,
        users=policy.users,
        plugins=login_plugins(policy),
        takes_anonymous=settings.takes_anonymous,
    )
    broker.rights.plugins = policy.plugins
    if not store.bounds.hands_over:
        broker.hints.begin(InProcessNotify(call_soon))
    broker.start()
    return broker
