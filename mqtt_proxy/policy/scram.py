"""SCRAM-SHA-256 as a state machine without I/O: the server side of MQTT 5 enhanced authentication, and a client side.

Messages are RFC 5802's with SHA-256 (RFC 7677): client-first `n,,n=<user>,r=<nonce>`, server-first `r=…,s=…,i=…`,
client-final `c=…,r=…,p=<proof>`, server-final `v=<signature>`. No channel binding (that would be SCRAM-SHA-256-PLUS).
The password never crosses the wire, and the server keeps no password but two keys made from it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

METHOD: Final = b"SCRAM-SHA-256"
"""The Authentication Method's name in CONNECT and AUTH."""

ITERATIONS: Final = 20_000
"""PBKDF2 rounds of new keys: the device pays them at each login, so they are what a small one can bear (RFC 7677: ≥ 4,096)."""

MESSAGE_MAX: Final = 4_096
NONCE_BYTES: Final = 18


class ScramError(Exception):
    """The exchange failed: bad proof, unknown user or malformed message. The text is for the log, not for the peer."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What the server keeps of a user: enough to check a proof, not enough to make one."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def verify(self, password: bytes) -> bool:
        """Whether the keys were made from the password (slow, thread safe): for clients that send it in CONNECT."""
        try:
            made = make_keys(password, self.salt, self.iterations)
        except ScramError:
            return False
        return hmac.compare_digest(made.stored_key, self.stored_key)


def make_keys(password: bytes, salt: bytes | None = None, iterations: int = ITERATIONS) -> ScramKeys:
    """Keys of a new password (RFC 5802 §3). Raises ScramError for one that SASLprep forbids."""
    salt = salt or os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(password), salt, iterations)
    return ScramKeys(iterations, salt, hashlib.sha256(_hmac(salted, b"Client Key")).digest(), _hmac(salted, b"Server Key"))


class ScramServer:
    """One login. Feed `client_first`, send its answer, feed `client_final`, send its answer: then `user` is proven.

    `keys_of(user)` gives a user's keys or None. A user who is not known gets an answer too, with a salt that stays the
    same for the name, so that the exchange doesn't tell who exists; it fails at the proof. `claimed` is the name of
    client-first, `user` the same name once it is proven.
    """

    __slots__ = ("_auth_message", "_decoy_secret", "_gs2", "_keys", "_keys_of", "_known", "_nonce", "_server_nonce", "claimed", "user")

    def __init__(self, keys_of: Callable[[bytes], ScramKeys | None], decoy_secret: bytes, nonce: bytes | None = None) -> None:
        self._keys_of = keys_of
        self._decoy_secret = decoy_secret
        self._server_nonce = nonce or b64encode(os.urandom(NONCE_BYTES))
        self._nonce = b""
        self._gs2 = b""
        self._auth_message = b""
        self._keys: ScramKeys | None = None
        self._known = False
        self.claimed = b""
        self.user: bytes | None = None

    def client_first(self, message: bytes) -> bytes:
        """The answer to client-first-message. Raises ScramError."""
        if len(message) > MESSAGE_MAX:
            raise ScramError("message too long")
        parts = message.split(b",", 2)
        if len(parts) != 3 or parts[0] not in (b"n", b"y"):
            raise ScramError("channel binding asked for, or no gs2 header")
        self._gs2 = b64encode(parts[0] + b"," + parts[1] + b",")
        bare = parts[2]
        attributes = bare.split(b",")
        if len(attributes) < 2:
            raise ScramError("client-first has no user name or nonce")
        user = _unescape(_value(attributes[0], b"n"))
        client_nonce = _value(attributes[1], b"r")
        if not user or not _is_printable(client_nonce):
            raise ScramError("empty user name or bad nonce")
        user = saslprep(user)
        if parts[1] and _unescape(_value(parts[1], b"a")) != user:
            raise ScramError("another authorization identity than the user")
        keys = self._keys_of(user)
        self._known = keys is not None
        if keys is None:
            salt = hmac.digest(self._decoy_secret, user, "sha256")[:16]
            keys = ScramKeys(ITERATIONS, salt, bytes(32), bytes(32))
        self._keys = keys
        self._nonce = client_nonce + self._server_nonce
        server_first = b"r=%s,s=%s,i=%d" % (self._nonce, b64encode(keys.salt), keys.iterations)
        self._auth_message = bare + b"," + server_first
        self.claimed = user
        return server_first

    def client_final(self, message: bytes) -> bytes:
        """The answer to client-final-message; `user` is proven then. Raises ScramError (a wrong proof is one)."""
        keys = self._keys
        self._keys = None  # one try: an exchange cannot be used to guess again
        if keys is None:
            raise ScramError("client-final before client-first")
        if len(message) > MESSAGE_MAX:
            raise ScramError("message too long")
        without_proof, found, proof_text = message.rpartition(b",p=")
        attributes = without_proof.split(b",")
        if not found or len(attributes) < 2:
            raise ScramError("client-final is malformed")
        if _value(attributes[0], b"c") != self._gs2:
            raise ScramError("channel binding data differs")
        if not hmac.compare_digest(_value(attributes[1], b"r"), self._nonce):
            raise ScramError("nonce differs")
        proof = _decode(proof_text)
        auth_message = self._auth_message + b"," + without_proof
        signature = hmac.digest(keys.stored_key, auth_message, "sha256")
        if len(proof) != len(signature):
            raise ScramError("proof has a wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        right = hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)
        if not right or not self._known:
            raise ScramError("wrong proof")
        self.user = self.claimed
        return b"v=" + b64encode(hmac.digest(keys.server_key, auth_message, "sha256"))


class ScramClient:
    """The client's side of one login: `first()`, `final(server_first)`, then `check(server_final)`."""

    __slots__ = ("_auth_message", "_bare", "_nonce", "_password", "_server_key")

    def __init__(self, user: bytes, password: bytes, nonce: bytes | None = None) -> None:
        self._password = password
        self._nonce = nonce or b64encode(os.urandom(NONCE_BYTES))
        self._bare = b"n=%s,r=%s" % (_escape(saslprep(user)), self._nonce)
        self._auth_message = b""
        self._server_key = b""

    def first(self) -> bytes:
        return b"n,," + self._bare

    def final(self, server_first: bytes) -> bytes:
        """client-final-message. Raises ScramError for an answer that is not to our nonce, or asks too much or too little."""
        attributes = server_first.split(b",")
        if len(attributes) < 3:
            raise ScramError("server-first is malformed")
        nonce, salt, rounds = _value(attributes[0], b"r"), _decode(_value(attributes[1], b"s")), _value(attributes[2], b"i")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the server's nonce does not begin with ours")
        if not rounds.isdigit() or len(rounds) > 8 or int(rounds) < 4_096:
            raise ScramError("iteration count out of bounds")
        salted = hashlib.pbkdf2_hmac("sha256", saslprep(self._password), salt, int(rounds))
        client_key = _hmac(salted, b"Client Key")
        self._server_key = _hmac(salted, b"Server Key")
        without_proof = b"c=%s,r=%s" % (b64encode(b"n,,"), nonce)
        self._auth_message = self._bare + b"," + server_first + b"," + without_proof
        signature = hmac.digest(hashlib.sha256(client_key).digest(), self._auth_message, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return without_proof + b",p=" + b64encode(proof)

    def check(self, server_final: bytes) -> None:
        """Raises ScramError unless the server knows the user's keys too."""
        expected = b"v=" + b64encode(hmac.digest(self._server_key, self._auth_message, "sha256"))
        if not self._auth_message or not hmac.compare_digest(server_final, expected):
            raise ScramError("the server's signature is wrong")


def saslprep(text: bytes) -> bytes:
    """The prepared form of a user name or password (RFC 4013), UTF-8. Raises ScramError for what it prohibits."""
    if text.isascii() and text.decode("ascii").isprintable():
        return text
    import stringprep
    import unicodedata

    try:
        mapped = "".join(
            " " if stringprep.in_table_c12(char) else char for char in text.decode("utf-8") if not stringprep.in_table_b1(char)
        )
    except UnicodeDecodeError:
        raise ScramError("not UTF-8") from None
    prepared = unicodedata.normalize("NFKC", mapped)
    prohibited = (
        stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4, stringprep.in_table_c5,
        stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8, stringprep.in_table_c9, stringprep.in_table_a1,
    )
    if any(table(char) for char in prepared for table in prohibited):
        raise ScramError("a character that SASLprep prohibits")
    if any(stringprep.in_table_d1(char) for char in prepared):  # right-to-left text holds no left-to-right letter (RFC 3454 §6)
        if any(stringprep.in_table_d2(char) for char in prepared):
            raise ScramError("mixed writing directions")
        if not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])):
            raise ScramError("mixed writing directions")
    return prepared.encode()


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _value(attribute: bytes, name: bytes) -> bytes:
    if not attribute.startswith(name + b"="):
        raise ScramError(f"attribute {name.decode()} is missing")
    return attribute[2:]


def _decode(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise ScramError("bad base64") from None


def _is_printable(nonce: bytes) -> bool:
    return bool(nonce) and all(0x21 <= byte <= 0x7E and byte != 0x2C for byte in nonce)


def _escape(name: bytes) -> bytes:
    return name.replace(b"=", b"=3D").replace(b",", b"=2C")


def _unescape(name: bytes) -> bytes:
    if name.count(b"=") != name.count(b"=2C") + name.count(b"=3D"):
        raise ScramError("a `=` that is no escape")
    return name.replace(b"=2C", b",").replace(b"=3D", b"=")
