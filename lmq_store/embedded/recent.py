"""The batch cache: the messages appended last, as objects, found by position. One decode serves all who read along. Pure."""

from __future__ import annotations

from lmq_store.api.model import Message

CHUNK_MESSAGES = 256
"""Messages a chunk holds before the next one begins; whole chunks are dropped."""

LOOK_AHEAD = 8
"""Messages looked at behind the one found last before the search begins anew."""


class Chunk:
    """Messages in log order, `first_position` the first one's."""

    __slots__ = ("bytes", "first_position", "messages")

    def __init__(self, first_position: int) -> None:
        self.first_position = first_position
        self.messages: list[Message] = []
        self.bytes = 0


class Recent:
    """At most about `max_bytes` of recent messages, and never less than what is not yet in the file."""

    __slots__ = ("bytes", "chunks", "last", "last_index", "max_bytes", "open")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.chunks: list[Chunk] = []
        self.open: Chunk | None = None
        self.last: Chunk | None = None
        """Where the last search ended, in `last.messages[last_index]`."""
        self.last_index = 0

    def begin(self, position: int) -> Chunk:
        """The chunk that takes the next messages."""
        chunk = self.open
        if chunk is None or len(chunk.messages) >= CHUNK_MESSAGES:
            chunk = Chunk(position)
            self.chunks.append(chunk)
            self.open = chunk
        return chunk

    def trim(self, written_end: int) -> None:
        """Drop the oldest chunks beyond the bound, but none that is not wholly in the file."""
        drop = 0
        while self.bytes > self.max_bytes and drop + 1 < len(self.chunks):
            if self.chunks[drop + 1].first_position > written_end:
                break
            self.bytes -= self.chunks[drop].bytes
            drop += 1
        if drop:
            self.last = None
            del self.chunks[:drop]

    def find(self, position: int) -> Message | None:
        """The message whose record begins at `position`, if it is still here."""
        chunk = self.last
        if chunk is not None:  # whoever reads along asks for the messages in order
            messages = chunk.messages
            high = min(len(messages), self.last_index + LOOK_AHEAD)
            for low in range(self.last_index, high):
                message = messages[low]
                if message.position == position:
                    self.last_index = low
                    return message
        chunks = self.chunks
        high = len(chunks)
        if high == 0 or chunks[0].first_position > position:
            return None
        low = 0
        while high - low > 1:
            middle = (low + high) >> 1
            chunk = chunks[middle]
            if chunk.first_position <= position:
                low = middle
            else:
                high = middle
        chunk = chunks[low]
        messages = chunk.messages
        low = 0
        high = len(messages)
        while low < high:
            middle = (low + high) >> 1
            message = messages[middle]
            if message.position < position:
                low = middle + 1
            else:
                high = middle
        if low < len(messages):
            message = messages[low]
            if message.position == position:
                self.last = chunk
                self.last_index = low
                return message
        return None
