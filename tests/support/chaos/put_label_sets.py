"""A caller who keeps putting one label set, and the check that it is there as it was put."""

from __future__ import annotations

import grpc

from twinlens.v1 import classification_pb2, classification_pb2_grpc


class LabelSetPutter:
    """Puts a label set again and again, with other labels each time.

    Attributes:
        acknowledged: The last turn that the server said is on disk; -1 for none.
        sent: The last turn that was sent.
    """

    def __init__(self, channel: grpc.aio.Channel, name: str) -> None:
        self.acknowledged = -1
        self.sent = -1
        self._name = "-".join(name.split())
        self._labels = classification_pb2_grpc.ClassificationServiceStub(channel)

    async def put(self, turn: int, timeout_s: float) -> None:
        """Puts the labels of a turn."""
        self.sent = turn
        label_set = classification_pb2.LabelSet(id=self._name, labels=[f"label {turn}", "green"])
        reply = await self._labels.PutLabelSet(
            classification_pb2.PutLabelSetRequest(label_set=label_set), timeout=timeout_s
        )
        assert reply.label_set.labels == label_set.labels
        self.acknowledged = turn

    async def assert_kept(self, channel: grpc.aio.Channel) -> None:
        """Compares what is kept with what was acknowledged.

        Raises:
            AssertionError: if it is gone, older than what was acknowledged, or half there.
        """
        if self.acknowledged < 0:
            return
        request = classification_pb2.GetLabelSetRequest(label_set=self._name)
        kept = (await classification_pb2_grpc.ClassificationServiceStub(channel).GetLabelSet(request)).label_set
        turns = range(self.acknowledged, self.sent + 1)
        assert list(kept.labels) in [[f"label {turn}", "green"] for turn in turns], (kept, turns)
