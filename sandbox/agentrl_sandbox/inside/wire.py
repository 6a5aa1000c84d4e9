"""What host and warden say to each other: frames on the channel, fields in a frame.

A frame is its payload's length (4 bytes), its kind (1), a nonce (16) and the payload. The nonce of an answer is sent
after the program was forked: a program that reached the channel would still not know what a valid answer looks like.
"""

from __future__ import annotations

BOOT, ORDER, NONCE = b"B", b"O", b"N"  # host to warden
LOADED, READY, OUT, ERR, END = b"L", b"R", b"1", b"2", b"E"  # warden to host
FAILED = b"F"  # sandbox server to client
HEADER_BYTES = 21
NONCE_BYTES = 16
MOST_BYTES = 64 << 20
MOST_FIELDS = 1 << 16  # of one payload: empty ones take four bytes each, and far longer to read
NO_NONCE = bytes(NONCE_BYTES)


def frame(kind: bytes, payload: bytes = b"", nonce: bytes = NO_NONCE) -> bytes:
    """Return one frame, ready to be written."""
    return len(payload).to_bytes(4, "big") + kind + nonce + payload


def parse_header(header: bytes) -> tuple[int, bytes, bytes]:
    """Payload length, kind and nonce; ValueError when no frame of ours begins like this."""
    length = int.from_bytes(header[:4], "big")
    if length > MOST_BYTES or len(header) != HEADER_BYTES:
        raise ValueError(f"a frame of {length} bytes")
    return length, header[4:5], header[5:]


def pack(*fields: bytes | str | float) -> bytes:
    """Fields of one payload; numbers and texts travel as UTF-8, and what is no text as bytes that are no UTF-8.

    ValueError for more than MOST_FIELDS.
    """
    if len(fields) > MOST_FIELDS:
        raise ValueError(f"{len(fields)} arguments; a sandbox takes {MOST_FIELDS}")
    parts = [field if isinstance(field, bytes) else _encode(str(field)) for field in fields]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def unpack(payload: bytes) -> list[bytes]:
    """What `pack` packed; ValueError when the payload is cut short, or has more than MOST_FIELDS."""
    fields: list[bytes] = []
    at = 0
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
        if end > len(payload):
            raise ValueError("a field that ends outside its payload")
        if len(fields) == MOST_FIELDS:
            raise ValueError(f"more than {MOST_FIELDS} fields")
        fields.append(payload[at + 4 : end])
        at = end
    return fields
