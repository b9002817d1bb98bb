"""The XOR that a browser puts over what it sends (RFC 6455, section 5.3)."""

from __future__ import annotations

import cython


def unmask(data: bytes, mask: bytes, phase: int) -> bytearray:
    """`data` without the 4-byte `mask`, whose turn begins at `phase` (0 to 3)."""
    size = len(data)
    if cython.compiled:
        out = bytearray(size)
        source, target, key = data, out, mask
        for at in range(size):
            target[at] = source[at] ^ key[(at + phase) & 3]
        return out
    turned = mask[phase:] + mask[:phase]
    whole = (turned * (size // 4 + 1))[:size]
    plain = int.from_bytes(data, "little") ^ int.from_bytes(whole, "little")
    return bytearray(plain.to_bytes(size, "little"))
