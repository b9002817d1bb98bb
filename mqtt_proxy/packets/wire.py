"""The data types of the wire, for packets that aren't hot: MQTT 5.0 §1.5."""

from __future__ import annotations

from mqtt_proxy.packets.reason_codes import MalformedPacket

VARINT_MAX = 268_435_455
"""The largest Variable Byte Integer, and so the largest Remaining Length. [MQTT-1.5.5-1]"""

PROPERTIES_MAX = 65_535
"""Properties of one packet where the caller sets no lower limit."""


def utf8_fault(text: bytes) -> str | None:
    """Why the bytes are no MQTT string, or None where they are one. [MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT-1.5.4-3]"""
    if b"\0" in text:
        return "has U+0000 in it"
    if text.isascii():
        return None
    try:
        text.decode("utf-8")  # refuses surrogates and overlong forms; keeps U+FEFF
    except UnicodeDecodeError:
        return "is not UTF-8"
    return None


class Reader:
    """Takes fields off the front of a packet's body. Every method raises MalformedPacket where bytes are missing."""

    __slots__ = ("at", "data", "end", "max_properties", "packet")

    def __init__(self, data: bytes, packet: str, at: int = 0, end: int = -1, max_properties: int = PROPERTIES_MAX) -> None:
        self.data = data
        self.packet = packet
        self.at = at
        self.end = len(data) if end < 0 else end
        self.max_properties = max_properties

    def fault(self, text: str) -> MalformedPacket:
        return MalformedPacket(f"{self.packet}: {text}")

    def _take(self, size: int, what: str) -> int:
        """The position where `size` bytes were, which are now consumed."""
        start = self.at
        if self.end - start < size:
            raise self.fault(f"ends inside the {what}")
        self.at = start + size
        return start

    def more(self) -> bool:
        return self.at < self.end

    def u8(self, what: str) -> int:
        return self.data[self._take(1, what)]

    def u16(self, what: str) -> int:
        start = self._take(2, what)
        return self.data[start] << 8 | self.data[start + 1]

    def u32(self, what: str) -> int:
        start = self._take(4, what)
        return int.from_bytes(self.data[start : start + 4], "big")

    def varint(self, what: str) -> int:
        """A Variable Byte Integer, of at most 4 bytes and in its shortest form. [MQTT-1.5.5-1]"""
        value = 0
        for shift in (0, 7, 14, 21):
            digit = self.u8(what)
            value |= (digit & 127) << shift
            if digit < 128:
                if digit == 0 and shift:
                    raise self.fault(f"{what} is not in its shortest form")
                return value
        raise self.fault(f"{what} is longer than 4 bytes")

    def binary(self, what: str) -> bytes:
        size = self.u16(what)
        start = self._take(size, what)
        return self.data[start : start + size]

    def utf8(self, what: str) -> bytes:
        text = self.binary(what)
        fault = utf8_fault(text)
        if fault is not None:
            raise self.fault(f"{what} {fault}")
        return text

    def finish(self) -> None:
        """Nothing may follow the last field."""
        if self.at != self.end:
            raise self.fault(f"{self.end - self.at} bytes too many")


def varint(value: int) -> bytes:
    """The shortest Variable Byte Integer. ValueError above 268,435,455. [MQTT-1.5.5-1]"""
    if value < 128:
        if value < 0:
            raise ValueError(f"a Variable Byte Integer is not negative: {value}")
        return bytes((value,))
    if value < 16_384:
        return bytes((value & 127 | 128, value >> 7))
    if value < 2_097_152:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    if value > VARINT_MAX:
        raise ValueError(f"a Variable Byte Integer is at most {VARINT_MAX}: {value}")
    return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21))


def binary(data: bytes) -> bytes:
    """Length and bytes. ValueError above 65,535 bytes."""
    if len(data) > 65_535:
        raise ValueError(f"a string or binary field holds at most 65535 bytes, not {len(data)}")
    return len(data).to_bytes(2, "big") + data
