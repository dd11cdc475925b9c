"""HTTP/1.1 without a socket: requests as bytes, and a parser of responses that is fed what was received."""

from __future__ import annotations

from collections.abc import Mapping

MAX_HEAD = 64 << 10


class ProtocolError(OSError):
    """What was received is not an HTTP/1.1 response, or ends before its end."""


def encode_request(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return the bytes of a request. Header values must not have line breaks."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + body if body else head


class ResponseParser:
    """Reads one response.

    feed takes in received bytes, b"" at the end of the stream, and returns the bytes of the body
    that they complete. status is 0 before the head is complete.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}  # names in lower case
        self.complete = False
        self._buffer = b""
        self._left: int | None = None  # bytes to come: of the body or the chunk; None: until the stream ends
        self._chunked = False
        self._trailer = False  # after the last chunk

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry another request."""
        closes = self.headers.get("connection", "").lower() == "close"
        return self.complete and not closes and not self._buffer and (self._chunked or self._left is not None)

    def feed(self, data: bytes) -> bytes:
        """Take in what was received and return the body bytes in it."""
        ended = not data
        self._buffer += data
        if self.status == 0 and not self._parse_head():
            if ended:
                raise ProtocolError("the connection ended before the response")
            return b""
        body = self._take_chunks() if self._chunked else self._take_plain(ended)
        if ended and not self.complete:
            raise ProtocolError("the connection ended in the middle of the response")
        return body

    def _parse_head(self) -> bool:
        """Parse status line and headers once they are complete."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise ProtocolError("the response's headers are too long")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        self._buffer = self._buffer[end + 4 :]
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise ProtocolError(f"not a response of HTTP/1.1: {first[:80]!r}")
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()

        # An informational response, such as 100, is followed by the response proper.
        status = int(rest[:3])
        if 100 <= status < 200:
            self.headers.clear()
            return self._parse_head()
        self.status = status
        if status in (204, 304):
            self._left = 0
        elif self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunked, self._left = True, 0
        elif (length := self.headers.get("content-length")) is not None:
            if not length.isdigit():
                raise ProtocolError(f"Content-Length is {length[:40]!r}")
            self._left = int(length)
        return True

    def _take_plain(self, ended: bool) -> bytes:
        """Return the bytes of a body with a length, or without one up to the end of the stream."""
        if self._left is None:
            body, self._buffer = self._buffer, b""
            self.complete = ended
            return body
        body, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
        self._left -= len(body)
        self.complete = self._left == 0
        return body

    def _take_chunks(self) -> bytes:
        """Return the bytes of the chunks that were received."""
        parts, buffer, at = [], self._buffer, 0
        assert self._left is not None
        while not self.complete:
            # Bytes of a chunk, then the line break after it.
            if self._left > 2:
                piece = buffer[at : at + self._left - 2]
                parts.append(piece)
                at += len(piece)
                self._left -= len(piece)
            if self._left > 0:
                ending = min(self._left, len(buffer) - at) if self._left <= 2 else 0
                at += ending
                self._left -= ending
                if self._left > 0:
                    break

            # The next chunk's size, or after the last chunk the trailer, which ends with an empty line.
            end = buffer.find(b"\r\n", at)
            if end < 0:
                if len(buffer) - at > MAX_HEAD:
                    raise ProtocolError("a chunk's size is too long")
                break
            line, at = buffer[at:end], end + 2
            if self._trailer:
                self.complete = not line
                continue
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise ProtocolError(f"a chunk's size is {line[:40]!r}") from None
            self._trailer = size == 0
            self._left = size + 2 if size else 0
        self._buffer = buffer[at:]
        return parts[0] if len(parts) == 1 else b"".join(parts)
