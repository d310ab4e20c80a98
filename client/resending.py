"""The messages of a stream both ways that are not answered yet, to be sent again when a call breaks off."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from google.protobuf.message import Message


class Unanswered:
    """Messages, each answered by one, carried by one call after the other until all are answered.

    A message is kept from when it is made until its answer is there: as many as a server lets be sent before. They are
    made in the threads that send, one at a time, and those of a call that ended lose nothing they had made.

    Args:
        messages: What to send; advanced as the calls take them.
        opening: How many of the first are sent at the beginning of each call; what answers them later on is no news.
    """

    def __init__(self, messages: Iterator[Message], opening: int) -> None:
        self._messages = messages
        self._most_opening = opening
        self._opening: list[Message] = []
        self._waiting: deque[Message] = deque()
        self._call = 0
        self._answers = 0  # to messages of this call
        self._told = 0  # answers to the opening that were news
        self._ended = False
        self._state = threading.Lock()
        self._making = threading.Lock()  # held while a message is made, which may take as long as it likes
        self.broken: BaseException | None = None  # what the making of messages raised: the stream ends there

    def begin(self) -> Iterator[Message]:
        """What the next call sends. The call before, if any, sends nothing more."""
        with self._state:
            self._call += 1
            self._answers = 0
            return self._sent_by(self._call)

    def end(self) -> None:
        """Nothing more is sent."""
        with self._state:
            self._call += 1

    def answered(self) -> bool:
        """Notes an answer to this call's next message; whether it is news."""
        with self._state:
            self._answers += 1
            if self._answers <= len(self._opening):
                news = self._answers > self._told
                self._told = max(self._told, self._answers)
                return news
            if self._waiting:
                self._waiting.popleft()
            return True

    def _sent_by(self, call: int) -> Iterator[Message]:
        sent = 0
        while (message := self._take(call, sent)) is not None:
            sent += 1
            yield message

    def _take(self, call: int, sent: int) -> Message | None:
        """The message after `sent` others; None where there is none, or the call is over."""
        with self._state:
            if call != self._call or self._is_made(sent):
                return self._made(call, sent)
        with self._making:
            with self._state:
                if call != self._call or self._is_made(sent) or self._ended:
                    return self._made(call, sent)
            self._make()
        with self._state:
            return self._made(call, sent)

    def _is_made(self, sent: int) -> bool:
        return sent < len(self._opening) + max(0, self._answers - len(self._opening)) + len(self._waiting)

    def _made(self, call: int, sent: int) -> Message | None:
        if call != self._call or not self._is_made(sent):
            return None
        if sent < len(self._opening):
            return self._opening[sent]
        return self._waiting[sent - len(self._opening) - max(0, self._answers - len(self._opening))]

    def _make(self) -> None:
        message: Message | None = None
        try:
            message = next(self._messages, None)
        except BaseException as error:
            self.broken = error
        with self._state:
            if message is None:
                self._ended = True
            elif len(self._opening) < self._most_opening:
                self._opening.append(message)
            else:
                self._waiting.append(message)
