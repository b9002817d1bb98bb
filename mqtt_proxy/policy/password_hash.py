"""Password hashes of the users file: scrypt and argon2id (ours), mosquitto's `$6$` and `$7$`, and SCRAM keys.

```
$scrypt$ln=14,r=8,p=1$<salt>$<hash>             base64 without padding; N = 2**ln   (RFC 7914)
$argon2id$v=19$m=65536,t=3,p=4$<salt>$<hash>    as argon2 itself writes it          (RFC 9106)
$scram-sha-256$<iterations>$<salt>$<stored key>$<server key>        base64          (RFC 5802, RFC 7677)
$6$<salt>$<hash>                base64; SHA-512 of password and salt, one round: mosquitto_passwd -H sha512
$7$<iterations>$<salt>$<hash>   base64; PBKDF2-HMAC-SHA-512: mosquitto_passwd
```

Checking is slow on purpose (tens of milliseconds) and lets other threads run meanwhile. A hash whose cost is beyond the
bounds below is refused when the file is read, not when somebody logs in.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final, Protocol

from mqtt_proxy.policy.scram import ScramKeys

SCRYPT_LN: Final = 14
"""16 MiB and some 40 ms: a fleet logs in with these, so the cost is one that a reconnect storm can pay."""
SCRYPT_LN_RANGE: Final = range(10, 21)
ITERATIONS_MAX: Final = 10_000_000
MEMORY_MAX: Final = 1 << 30
SALT_BYTES: Final = 16


class HashError(ValueError):
    """The text is no hash that can be checked; the text says why and never quotes the hash."""


class PasswordHash(Protocol):
    """Checks a password against one stored hash. Thread safe."""

    def verify(self, password: bytes) -> bool: ...


class ScryptHash:
    __slots__ = ("_digest", "_ln", "_p", "_r", "_salt")

    def __init__(self, ln: int, r: int, p: int, salt: bytes, digest: bytes) -> None:
        if ln not in SCRYPT_LN_RANGE or not 1 <= r <= 32 or not 1 <= p <= 16 or (128 * r) << ln > MEMORY_MAX:
            raise HashError(f"scrypt cost ln={ln},r={r},p={p} is out of bounds")
        if not salt or not 16 <= len(digest) <= 64:
            raise HashError("scrypt salt or hash has a wrong length")
        self._ln, self._r, self._p, self._salt, self._digest = ln, r, p, salt, digest

    def verify(self, password: bytes) -> bool:
        return hmac.compare_digest(_scrypt(password, self._salt, self._ln, self._r, self._p, len(self._digest)), self._digest)


class Argon2Hash:
    __slots__ = ("_encoded",)

    def __init__(self, encoded: str) -> None:
        from argon2 import extract_parameters  # 20 ms to import: only where such a hash is used
        from argon2.exceptions import InvalidHashError

        try:
            cost = extract_parameters(encoded)
        except InvalidHashError:
            raise HashError("not an argon2 hash") from None
        if cost.memory_cost << 10 > MEMORY_MAX or cost.time_cost > 100 or cost.parallelism > 64:
            raise HashError(f"argon2 cost m={cost.memory_cost},t={cost.time_cost},p={cost.parallelism} is out of bounds")
        self._encoded = encoded.encode()

    def verify(self, password: bytes) -> bool:
        from argon2.exceptions import Argon2Error
        from argon2.low_level import Type, verify_secret

        try:
            return verify_secret(self._encoded, password, Type.ID)
        except Argon2Error:
            return False


class MosquittoSha512Hash:
    """mosquitto's `$6$` (not crypt(3)'s): one salted round, kept for old files only."""

    __slots__ = ("_digest", "_salt")

    def __init__(self, salt: bytes, digest: bytes) -> None:
        if len(digest) != 64:
            raise HashError("not mosquitto's $6$ hash (crypt's is another format)")
        self._salt, self._digest = salt, digest

    def verify(self, password: bytes) -> bool:
        return hmac.compare_digest(hashlib.sha512(password + self._salt).digest(), self._digest)


class MosquittoPbkdf2Hash:
    """mosquitto's `$7$`."""

    __slots__ = ("_digest", "_iterations", "_salt")

    def __init__(self, iterations: int, salt: bytes, digest: bytes) -> None:
        if not 1 <= iterations <= ITERATIONS_MAX:
            raise HashError(f"{iterations} iterations are out of bounds")
        if not salt or len(digest) != 64:
            raise HashError("salt or hash of $7$ has a wrong length")
        self._iterations, self._salt, self._digest = iterations, salt, digest

    def verify(self, password: bytes) -> bool:
        return hmac.compare_digest(hashlib.pbkdf2_hmac("sha512", password, self._salt, self._iterations), self._digest)


def parse_hash(text: str) -> PasswordHash | ScramKeys:
    """The hash of one field of the users file. Raises HashError."""
    fields = text.split("$")
    try:
        match fields:
            case ["", "scrypt", cost, salt, digest]:
                named = dict(part.split("=") for part in cost.split(","))
                return ScryptHash(int(named["ln"]), int(named["r"]), int(named["p"]), _unpadded(salt), _unpadded(digest))
            case ["", "argon2id", *_]:
                return Argon2Hash(text)
            case ["", "6", salt, digest]:
                return MosquittoSha512Hash(b64decode(salt, validate=True), b64decode(digest, validate=True))
            case ["", "7", iterations, salt, digest]:
                return MosquittoPbkdf2Hash(int(iterations), b64decode(salt, validate=True), b64decode(digest, validate=True))
            case ["", "scram-sha-256", iterations, salt, stored_key, server_key]:
                return scram_keys(int(iterations), b64decode(salt, validate=True), b64decode(stored_key), b64decode(server_key))
    except HashError:
        raise
    except (ValueError, KeyError, Base64Error):
        raise HashError("a field of the hash is malformed") from None
    if not text.startswith("$"):
        raise HashError("the password is not hashed (lmq passwd -U FILE hashes it)")
    raise HashError("unknown kind of hash: known are $scrypt$, $argon2id$, $scram-sha-256$, $6$ and $7$ (mosquitto's)")


def scram_keys(iterations: int, salt: bytes, stored_key: bytes, server_key: bytes) -> ScramKeys:
    """Checked keys. Raises HashError."""
    if not 1 <= iterations <= ITERATIONS_MAX or not salt or len(stored_key) != 32 or len(server_key) != 32:
        raise HashError("iterations, salt or keys of $scram-sha-256$ are out of bounds")
    return ScramKeys(iterations, salt, stored_key, server_key)


def hash_scrypt(password: bytes, ln: int = SCRYPT_LN, salt: bytes | None = None) -> str:
    """A new scrypt hash of the password."""
    salt = salt or os.urandom(SALT_BYTES)
    return f"$scrypt$ln={ln},r=8,p=1${_without_padding(salt)}${_without_padding(_scrypt(password, salt, ln, 8, 1, 32))}"


def hash_argon2(password: bytes) -> str:
    """A new argon2id hash of the password, at the argon2 package's own recommended cost."""
    from argon2 import PasswordHasher

    return PasswordHasher().hash(password)


def encode_scram_keys(keys: ScramKeys) -> str:
    """The field that `parse_hash` reads."""
    salt, stored_key, server_key = (b64encode(part).decode() for part in (keys.salt, keys.stored_key, keys.server_key))
    return f"$scram-sha-256${keys.iterations}${salt}${stored_key}${server_key}"


def _scrypt(password: bytes, salt: bytes, ln: int, r: int, p: int, length: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << ln, r=r, p=p, maxmem=(128 * r << ln) + (1 << 20) + 128 * r * p, dklen=length)


def _unpadded(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4), validate=True)


def _without_padding(data: bytes) -> str:
    return b64encode(data).rstrip(b"=").decode()
