from __future__ import annotations

from pathlib import Path

import pytest

from mqtt_proxy.policy.acl import OPEN_ACL, Acl
from mqtt_proxy.policy.acl_file import AclError, load_acl, parse_acl
from mqtt_proxy.policy.identity import Identity

FLEET = b"""
# anonymous clients
topic read public/#

user alice
topic alice/#
topic write log
topic read $SYS/#
topic deny alice/private/#

user gateway one
topic read a b/c d

pattern readwrite dev/%c/#
pattern write user/%u/in
pattern deny dev/+/secret

clientid probe
topic read probes/#

role operators
member alice
member bob
topic read #
topic read $events/#
topic write $p2p/#
"""

ANYBODY = Identity(None, b"c1")
ALICE = Identity(b"alice", b"d7")
BOB = Identity(b"bob", b"d8")
CAROL = Identity(b"carol", b"d9")


@pytest.fixture(scope="module")
def acl() -> Acl:
    return parse_acl(FLEET)


@pytest.mark.parametrize(
    ("identity", "topic", "allowed"),
    [
        (ANYBODY, b"public/x", False),
        (ANYBODY, b"dev/c1/t", True),
        (ANYBODY, b"dev/c2/t", False),
        (ANYBODY, b"dev/c1/secret", False),
        (ANYBODY, b"user//in", False),
        (ALICE, b"alice", True),
        (ALICE, b"alice/a/b", True),
        (ALICE, b"alice/private", False),
        (ALICE, b"alice/private/a", False),
        (ALICE, b"alicex", False),
        (ALICE, b"log", True),
        (ALICE, b"user/alice/in", True),
        (ALICE, b"user/bob/in", False),
        (ALICE, b"$p2p/d1", True),
        (CAROL, b"$p2p/d1", False),
        (CAROL, b"dev/d9/x", True),
        (CAROL, b"dev/d7/x", False),
    ],
)
def test_publish(acl: Acl, identity: Identity, topic: bytes, allowed: bool) -> None:
    assert acl.may_publish(identity, topic) is allowed
    assert acl.rights(identity).may_publish(topic) is allowed
    assert acl.rights(identity).may_publish(topic) is allowed  # the remembered answer too


@pytest.mark.parametrize(
    ("identity", "topic_filter", "allowed"),
    [
        (ANYBODY, b"public/#", True),
        (ANYBODY, b"public", True),
        (ANYBODY, b"public/+/x", True),
        (ANYBODY, b"#", False),
        (ANYBODY, b"+/x", False),
        (ANYBODY, b"$share/g/public/#", True),
        (ANYBODY, b"$share/g/other", False),
        (ANYBODY, b"$share/g", False),
        (ANYBODY, b"$replay/earliest/public/a", True),
        (ANYBODY, b"$replay/earliest/other", False),
        (ANYBODY, b"$SYS/#", False),
        (ALICE, b"$SYS/#", True),
        (ALICE, b"$SYS/broker/uptime", True),
        (ALICE, b"log", True),  # as an operator
        (ALICE, b"#", True),
        (ALICE, b"alice/private/#", False),
        (ALICE, b"alice/private/a", False),
        (ALICE, b"dev/+/secret", False),
        (ALICE, b"$events/client/#", True),
        (CAROL, b"$events/client/#", False),
        (ALICE, b"$p2p/d7", False),
        (ALICE, b"$p2p/#", False),
        (BOB, b"$p2p", False),
        (Identity(b"gateway one", b"x"), b"a b/c d", True),
        (Identity(None, b"probe"), b"probes/1", True),
        (Identity(None, b"prob"), b"probes/1", False),
        (Identity(b"carol", b"x", roles=frozenset({b"operators"})), b"any/thing", True),
        (Identity(b"carol", b"x", roles=frozenset({b"unknown"})), b"any/thing", False),
    ],
)
def test_subscribe(acl: Acl, identity: Identity, topic_filter: bytes, allowed: bool) -> None:
    assert acl.may_subscribe(identity, topic_filter) is allowed


def test_topics_that_a_deny_rule_takes_out_are_held_back_and_only_then_is_there_a_check(acl: Acl) -> None:
    receivable = acl.receivable(ALICE, b"alice/#")
    assert receivable is not None
    assert not receivable(b"alice/private/x")
    assert receivable(b"alice/public/x")
    assert acl.receivable(ALICE, b"public/#") is None
    assert acl.receivable(ALICE, b"dev/d7/+/x") is None
    assert acl.receivable(ALICE, b"$share/g/dev/#") is not None


def test_a_standing_subscription_without_a_full_right_gets_what_is_still_granted() -> None:
    receivable = parse_acl(b"topic read a/b").receivable(ANYBODY, b"a/#")
    assert receivable is not None
    assert receivable(b"a/b")
    assert not receivable(b"a/c")


@pytest.mark.parametrize("name", [b"+", b"#", b"a/b", b"a+", b"+/+", b""])
def test_a_name_with_wildcards_or_levels_matches_no_pattern(name: bytes) -> None:
    acl = parse_acl(b"pattern readwrite dev/%c/#\npattern readwrite own/%u/#\npattern read open/#")
    by_client, by_user = Identity(None, name), Identity(name, b"c")
    for topic in (b"dev/" + name, b"dev/" + name + b"/x", b"dev/a/b", b"dev/other/x"):
        assert not acl.may_publish(by_client, topic)
        assert not acl.may_subscribe(by_client, topic)
    for topic in (b"own/" + name, b"own/a/b"):
        assert not acl.may_publish(by_user, topic)
    assert acl.may_subscribe(by_client, b"open/x")


def test_a_user_named_like_a_dollar_topic_gains_nothing() -> None:
    acl = parse_acl(b"pattern readwrite %u/#\npattern readwrite %c/#")
    for name in (b"$SYS", b"$p2p", b"$events"):
        identity = Identity(name, name)
        assert not acl.may_publish(identity, name + b"/x")
        assert not acl.may_subscribe(identity, name + b"/x")
        assert not acl.may_receive(identity, name + b"/x")


def test_rules_cover_a_filter_together() -> None:
    acl = parse_acl(b"topic read a\ntopic read a/+\ntopic read a/+/+/#")
    assert acl.may_subscribe(ANYBODY, b"a/#")
    assert not parse_acl(b"topic read a\ntopic read a/+/#\ntopic deny a/#").may_subscribe(ANYBODY, b"a/#")
    assert not parse_acl(b"topic read a/+\ntopic read a/+/+/#").may_subscribe(ANYBODY, b"a/#")
    assert parse_acl(b"topic read +/#").may_subscribe(ANYBODY, b"#")


@pytest.mark.parametrize("topic", [b"$SYS", b"$SYS/x", b"$events/client/a/connected", b"$share/g/x", b"$replay/earliest/x"])
def test_what_the_proxy_publishes_itself_nobody_else_does(topic: bytes) -> None:
    assert not OPEN_ACL.may_publish(ALICE, topic)
    assert not parse_acl(b"user alice\ntopic write #\ntopic write $SYS/#\ntopic write $events/#").may_publish(ALICE, topic)


def test_without_a_file_everything_else_is_open() -> None:
    rights = OPEN_ACL.rights(ANYBODY)
    assert not rights.restricted
    assert rights.may_publish(b"a/b")
    assert rights.may_publish(b"$p2p/x")
    assert rights.may_publish(b"$other/x")
    assert rights.may_receive(b"a")
    assert rights.may_subscribe(b"#")
    assert rights.may_subscribe(b"$SYS/#")
    assert not rights.may_subscribe(b"$p2p/x")
    assert rights.receivable(b"#") is None


def test_an_empty_file_closes_everything() -> None:
    acl = parse_acl(b"")
    assert not acl.may_publish(ANYBODY, b"a")
    assert not acl.may_subscribe(ALICE, b"a")


def test_rights_are_shared_where_the_client_id_does_not_matter() -> None:
    by_user = parse_acl(b"topic a\npattern read own/%u/#\nclientid probe\ntopic b")
    assert by_user.rights(Identity(b"u", b"1")) is by_user.rights(Identity(b"u", b"2"))
    assert by_user.rights(Identity(b"u", b"1")) is not by_user.rights(Identity(b"v", b"1"))
    assert by_user.rights(Identity(b"u", b"1")) is not by_user.rights(Identity(b"u", b"1", roles=frozenset({b"r"})))
    assert by_user.may_publish(Identity(None, b"probe"), b"b")
    assert not by_user.may_publish(Identity(None, b"other"), b"b")
    by_client = parse_acl(b"pattern write +/%c")
    assert by_client.rights(Identity(None, b"1")) is not by_client.rights(Identity(None, b"2"))


@pytest.mark.parametrize(
    ("text", "names"),
    [(b"topic a\npattern b/%c", False), (b"user u", True), (b"pattern a/%c/+/%u", True), (b"role r\nmember u", True)],
)
def test_whether_rules_depend_on_user_names(text: bytes, names: bool) -> None:
    assert parse_acl(text).names_users is names
    assert not OPEN_ACL.names_users


def test_each_load_is_a_later_generation(tmp_path: Path) -> None:
    path = tmp_path / "acl"
    path.write_bytes(FLEET)
    first, second = load_acl(path), load_acl(path)
    assert second.generation > first.generation > OPEN_ACL.generation
    assert second.rights(ALICE).generation == second.generation


def test_remembered_answers_are_bounded() -> None:
    rights = parse_acl(b"pattern write dev/%c/#").rights(ANYBODY)
    for n in range(1_000):
        assert rights.may_publish(b"dev/c1/%d" % n)
    assert len(rights._may_publish) <= 256


def test_windows_line_ends_and_indents_are_fine() -> None:
    acl = parse_acl(b"  topic   read   a/b  \r\n\t# comment\r\n\r\nuser  u v \r\n topic a\r\n")
    assert acl.may_subscribe(ANYBODY, b"a/b")
    assert acl.may_publish(Identity(b"u v", b""), b"a")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"topics a", r"'topics' is not one of: topic, pattern"),
        (b"topic", "topic filter is missing"),
        (b"topic reads a", "access 'reads' is not one of"),
        (b"topic read a#", "# must be the last level"),
        (b"topic read #/a", "# must be the last level"),
        (b"topic a/b+", r"\+ must be alone"),
        (b"pattern dev-%c/#", "%u and %c must be alone"),
        (b"user", "user needs a name"),
        (b"role  ", "role needs a name"),
        (b"member x", "stands in no role section"),
        (b"role r\nmember", "member needs a user"),
        (b"topic \xff", "not UTF-8"),
        (b"topic a\x00b", "NUL"),
        (b"topic " + b"a" * 65_536, "longer than"),
    ],
)
def test_a_line_that_is_not_understood_is_an_error_with_its_place(line: bytes, says: str) -> None:
    with pytest.raises(AclError, match=rf"^my.acl:{2 + line.count(10)}: .*{says}"):
        parse_acl(b"topic read fine\n" + line, "my.acl")


def test_all_errors_are_told_at_once_up_to_a_bound() -> None:
    with pytest.raises(AclError) as raised:
        parse_acl(b"x\n" * 100, "acl")
    assert str(raised.value).splitlines()[-1] == "acl: 95 more errors"
    assert len(str(raised.value).splitlines()) == 6


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(AclError, match="none: No such file"):
        load_acl(tmp_path / "none")


def test_a_check_stays_quick_with_many_rules_and_deep_topics() -> None:
    lines = [b"topic read " + b"/".join([b"+"] * depth) for depth in range(1, 200)]
    lines += [b"topic read a%d/+/#" % n for n in range(2_000)]
    rights = parse_acl(b"\n".join(lines)).rights(ANYBODY)
    assert not rights.may_receive(b"/" * 60_000)
    assert not rights.may_subscribe(b"+/" * 30_000 + b"#")
    assert rights.receivable(b"#") is not None


def test_the_example_of_the_document_does_what_it_says() -> None:
    text = (Path(__file__).parents[3] / "docs" / "access.md").read_text()
    example = text[text.index("# A comment has its own line") :].partition("```")[0]
    acl = parse_acl(example.encode())
    assert acl.may_subscribe(ANYBODY, b"public/#")
    assert acl.may_publish(ANYBODY, b"dev/c1/up/t")
    assert acl.may_subscribe(ALICE, b"$SYS/#")
    assert not acl.may_receive(ALICE, b"alice/private/x")
    assert acl.may_publish(Identity(None, b"probe-7"), b"probes/7")
