"""TLS 1.2 and later on a link: certificates that can be renewed while it runs, and the client certificate's subject."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

from mqtt_proxy.net.layers import LayerEnded
from mqtt_proxy.net.listen_url import ListenerOptions, ListenError

if TYPE_CHECKING:
    from mqtt_proxy.net.link import Link

RECORD_BYTES = 16 * 1024
SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


class TlsError(ValueError):
    """A certificate, key or CA file can't be used; the text names the file and says why."""


class TlsSubject(NamedTuple):
    """Whom a client certificate names."""

    common_name: str
    distinguished_name: str
    """RFC 4514: `CN=meter 7,O=Example,C=DE`."""


class TlsCertificates:
    """A listener's certificate, key and client CA, as read from their files. `reload` is for new handshakes only."""

    def __init__(self, cert: str, key: str = "", ca: str = "", require: bool = False) -> None:
        self.cert = cert
        self.key = key
        self.ca = ca
        self.require = require
        self.context = self._read()

    def reload(self) -> None:
        """Read the files again. Raises TlsError, and then goes on with what it had."""
        self.context = self._read()

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
        for path in filter(None, (self.cert, self.key, self.ca)):
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                raise TlsError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        try:
            context.load_cert_chain(self.cert, self.key or None, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise TlsError(f"{self.cert}{f' with {self.key}' if self.key else ''}: {_why(error)}") from None
        if self.ca:
            try:
                context.load_verify_locations(self.ca)
            except (ssl.SSLError, ValueError) as error:
                raise TlsError(f"{self.ca}: {_why(error)}") from None
            context.verify_mode = ssl.CERT_REQUIRED if self.require else ssl.CERT_OPTIONAL
        return context


def read_certificates(options: ListenerOptions) -> TlsCertificates | None:
    """What a listener shows its clients; None where it has no TLS. Raises ListenError, which names listener and file."""
    if not options.tls:
        return None
    try:
        return TlsCertificates(options.cert, options.key, options.ca, options.require)
    except TlsError as error:
        raise ListenError(f"listen {options.url()}: {error}") from None


def _no_password() -> str:
    raise ValueError("the key is encrypted; a server needs one that it can read without a password")


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error).lower()


class TlsLayer:
    """One TLS connection over memory buffers. Everything sent in a turn is one TLS write."""

    __slots__ = ("answers", "finished", "incoming", "open", "outgoing", "tls")

    def __init__(self, certificates: TlsCertificates) -> None:
        self.answers = bytearray()
        self.finished = False
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = certificates.context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.open = False

    def receive(self, link: Link, data: bytes) -> bytes:
        self.incoming.write(data)
        try:
            if not self.open:
                self.tls.do_handshake()
                self.open = True
                if link.layer is not None:
                    link.layer.handshaking = False
                link.tls_subject = subject_of(self.tls.getpeercert())
            return self._read()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            stage = "TLS" if self.open else "TLS handshake"
            self.open = False
            raise LayerEnded(f"{stage} failed: {_why(error)}") from None
        finally:
            if self.outgoing.pending:
                self.answers += self.outgoing.read()

    def _read(self) -> bytes:
        """All that can be deciphered now."""
        pieces: list[bytes] = []
        while True:
            try:
                piece = self.tls.read(RECORD_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece:
                raise LayerEnded("closed by peer", b"".join(pieces))
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def send(self, data: bytes) -> bytes:
        if not self.open:
            return b""
        try:
            self.tls.write(data)
        except ssl.SSLError:
            self.open = False  # the peer has broken it; the reader says so
        return self.outgoing.read()

    def goodbye(self) -> bytes:
        if not self.open:
            return b""
        self.open = False
        try:
            self.tls.unwrap()
        except ssl.SSLError:
            pass  # it has sent its part and would wait for the peer's
        return self.outgoing.read()


def subject_of(certificate: Any) -> TlsSubject | None:
    """The subject of a checked client certificate, as `getpeercert` gives it."""
    if not certificate:
        return None
    pairs = [pair for group in certificate.get("subject", ()) for pair in group]
    common_name = next((value for name, value in pairs if name == "commonName"), "")
    full = ",".join(f"{SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in reversed(pairs))
    return TlsSubject(common_name, full)


def _escaped(value: str) -> str:
    """RFC 4514 section 2.4."""
    text = "".join(f"\\{character}" if character in '",+;<>\\' else character for character in value)
    if text[:1] in (" ", "#"):
        text = "\\" + text
    return text[:-1] + "\\ " if len(text) > 1 and text.endswith(" ") else text
