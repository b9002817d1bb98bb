from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt_proxy.policy.scram import ScramClient, ScramError, ScramKeys, ScramServer, make_keys, saslprep

# RFC 7677 §3
CLIENT_NONCE = b"rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
KEYS = make_keys(b"pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4_096)


def keys_of(user: bytes) -> ScramKeys | None:
    return KEYS if user == b"user" else None


def a_server() -> ScramServer:
    return ScramServer(keys_of, b"decoy", SERVER_NONCE)


def test_server_and_client_speak_the_vector_of_rfc_7677() -> None:
    server, client = a_server(), ScramClient(b"user", b"pencil", CLIENT_NONCE)
    assert client.first() == CLIENT_FIRST
    assert server.client_first(CLIENT_FIRST) == SERVER_FIRST
    assert client.final(SERVER_FIRST) == CLIENT_FINAL
    assert server.client_final(CLIENT_FINAL) == SERVER_FINAL
    assert server.user == b"user"
    client.check(SERVER_FINAL)


@settings(max_examples=30, deadline=None)
@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_any_name_and_password_that_saslprep_takes_logs_in(user: str, password: str) -> None:
    try:
        prepared, _ = saslprep(user.encode()), saslprep(password.encode())
        keys = make_keys(password.encode(), iterations=4_096)
    except ScramError:
        return
    if not prepared:
        return
    server = ScramServer(lambda name: keys if name == prepared else None, b"decoy")
    client = ScramClient(user.encode(), password.encode())
    client.check(server.client_final(client.final(server.client_first(client.first()))))
    assert server.user == prepared


def test_a_wrong_password_fails_at_the_proof() -> None:
    server, client = a_server(), ScramClient(b"user", b"pencils", CLIENT_NONCE)
    with pytest.raises(ScramError, match="wrong proof"):
        server.client_final(client.final(server.client_first(client.first())))
    assert server.user is None


def test_an_exchange_is_one_guess() -> None:
    server, client = a_server(), ScramClient(b"user", b"wrong", CLIENT_NONCE)
    with pytest.raises(ScramError):
        server.client_final(client.final(server.client_first(client.first())))
    with pytest.raises(ScramError, match="before client-first"):
        server.client_final(CLIENT_FINAL)


def test_an_unknown_user_gets_an_answer_like_a_known_one_and_fails() -> None:
    firsts = [ScramServer(keys_of, b"decoy", SERVER_NONCE).client_first(b"n,,n=nobody,r=abc") for _ in range(2)]
    assert firsts[0] == firsts[1]
    assert firsts[0] != ScramServer(keys_of, b"other", SERVER_NONCE).client_first(b"n,,n=nobody,r=abc")
    server, client = a_server(), ScramClient(b"nobody", b"pencil")
    with pytest.raises(ScramError, match="wrong proof"):
        server.client_final(client.final(server.client_first(client.first())))


def test_an_unknown_user_cannot_log_in_with_the_zero_keys_of_the_decoy() -> None:
    """A client that finds a key whose hash is the decoy's stored key would still not be taken."""
    server = a_server()
    server.client_first(b"n,,n=nobody,r=abc")
    server._keys = KEYS  # even with keys that fit
    client = ScramClient(b"nobody", b"pencil", b"abc")
    first = b"r=abc" + SERVER_NONCE + b",s=" + b64encode(KEYS.salt) + b",i=4096"
    server._auth_message = b"n=nobody,r=abc," + first
    with pytest.raises(ScramError, match="wrong proof"):
        server.client_final(client.final(first))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=us=er,r=abc",
        b"n,,n=\xff,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=user,r=" + b"a" * 5_000,
    ],
)
def test_malformed_client_first(message: bytes) -> None:
    with pytest.raises(ScramError):
        a_server().client_first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"p=",
        CLIENT_FINAL[:-1],
        CLIENT_FINAL.replace(b"biws", b"eSws"),
        CLIENT_FINAL.replace(b"hNlF", b"hNlG"),
        CLIENT_FINAL.replace(b"c=biws,", b""),
        CLIENT_FINAL.replace(b"dHzb", b"****"),
        CLIENT_FINAL.partition(b",p=")[0] + b",p=AAAA",
        CLIENT_FINAL + b"a" * 5_000,
    ],
)
def test_malformed_client_final(message: bytes) -> None:
    server = a_server()
    server.client_first(CLIENT_FIRST)
    with pytest.raises(ScramError):
        server.client_final(message)


def test_authorization_identity_of_the_user_itself_is_fine() -> None:
    assert ScramServer(keys_of, b"", SERVER_NONCE).client_first(b"y,a=user,n=user,r=abc").startswith(b"r=abc")


def test_escaped_names() -> None:
    seen: list[bytes] = []
    ScramServer(lambda user: seen.append(user), b"").client_first(b"n,,n=a=2Cb=3Dc,r=abc")
    assert seen == [b"a,b=c"]
    assert ScramClient(b"a,b=c", b"").first().startswith(b"n,,n=a=2Cb=3Dc,r=")


@pytest.mark.parametrize(
    "server_first", [b"", b"r=x,s=AAAA,i=4096", SERVER_FIRST.replace(b"4096", b"1"), SERVER_FIRST.replace(b"4096", b"9" * 9)]
)
def test_the_client_refuses_a_server_that_cheats(server_first: bytes) -> None:
    client = ScramClient(b"user", b"pencil", CLIENT_NONCE)
    with pytest.raises(ScramError):
        client.final(server_first)
    client.final(SERVER_FIRST)
    with pytest.raises(ScramError, match="signature"):
        client.check(b"v=AAAA")


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0", "a "), ("\u06271\u0627",) * 2],
)
def test_saslprep_of_rfc_4013(text: str, prepared: str) -> None:
    assert saslprep(text.encode()) == prepared.encode()


@pytest.mark.parametrize("text", [b"\x07", "\u06271".encode(), b"\xff", "\ue000".encode(), "\u0627a\u0627".encode()])
def test_saslprep_prohibits(text: bytes) -> None:
    with pytest.raises(ScramError):
        saslprep(text)
