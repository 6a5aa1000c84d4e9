"""Protocol between host and warden: frames on the channel, fields in a frame.

A frame is its payload's length (4 bytes), its kind (1), a nonce (16) and the payload. The nonce of an answer is sent
after the program was forked, so a program that reached the channel still could not forge an answer.
"""

from __future__ import annotations

BOOT, ORDER, NONCE = b"B", b"O", b"N"  # host to warden
LOADED, READY, OUT, ERR, END = b"L", b"R", b"1", b"2", b"E"  # warden to host
FAILED = b"F"  # sandbox server to client
HEADER_BYTES = 21
NONCE_BYTES = 16
MAX_BYTES = 64 << 20
MAX_FIELDS = 1 << 16  # per payload: an empty field takes only four bytes but much longer to read
NO_NONCE = bytes(NONCE_BYTES)


def frame(kind: bytes, payload: bytes = b"", nonce: bytes = NO_NONCE) -> bytes:
    """Return one frame, ready to be written."""
    return len(payload).to_bytes(4, "big") + kind + nonce + payload


def parse_header(header: bytes) -> tuple[int, bytes, bytes]:
    """Return payload length, kind and nonce; ValueError if the header is invalid."""
    length = int.from_bytes(header[:4], "big")
    if length > MAX_BYTES or len(header) != HEADER_BYTES:
        raise ValueError(f"a frame of {length} bytes")
    return length, header[4:5], header[5:]


def pack(*fields: bytes | str | float) -> bytes:
    """Encode the fields of a payload: numbers and text as UTF-8, surrogates as bytes that are not UTF-8.

    Raises ValueError for more than MAX_FIELDS.
    """
    if len(fields) > MAX_FIELDS:
        raise ValueError(f"{len(fields)} arguments; a sandbox accepts at most {MAX_FIELDS}")
    parts = [field if isinstance(field, bytes) else _encode(str(field)) for field in fields]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def unpack(payload: bytes) -> list[bytes]:
    """Decode the fields that `pack` encoded; ValueError if the payload is truncated or has too many fields."""
    fields: list[bytes] = []
    at = 0
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
        if end > len(payload):
            raise ValueError("a field that ends outside its payload")
        if len(fields) == MAX_FIELDS:
            raise ValueError(f"more than {MAX_FIELDS} fields")
        fields.append(payload[at + 4 : end])
        at = end
    return fields
