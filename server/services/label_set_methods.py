"""The methods of ClassificationService that keep label sets."""

from __future__ import annotations

from twinlens.server.core.app import Application
from twinlens.server.core.call import current_call
from twinlens.server.core.errors import invalid_argument
from twinlens.server.core.label_set_files import LabelSet
from twinlens.server.core.page import decode_token, encode_token, page_size
from twinlens.server.services import label_messages
from twinlens.server.services.interceptor import Context
from twinlens.server.services.reply_making import made
from twinlens.v1 import classification_pb2 as pb
from twinlens.v1 import classification_pb2_grpc


class LabelSetMethods(classification_pb2_grpc.ClassificationServiceServicer):
    """Keeps labels and templates under names."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def PutLabelSet(  # noqa: N802 - the wire's name, as below
        self, request: pb.PutLabelSetRequest, context: Context
    ) -> pb.PutLabelSetResponse:
        """Keeps a label set, durably, and embeds its labels."""
        del context
        if not request.HasField("label_set"):
            raise invalid_argument("there is no label_set to keep")
        kept = await self._app.label_sets.put(label_messages.label_set(request.label_set), current_call())
        return pb.PutLabelSetResponse(label_set=label_messages.label_set_message(kept))

    async def GetLabelSet(  # noqa: N802
        self, request: pb.GetLabelSetRequest, context: Context
    ) -> pb.GetLabelSetResponse:
        """Returns a label set."""
        del context
        found = await self._app.label_sets.get(request.label_set, current_call())
        return pb.GetLabelSetResponse(label_set=label_messages.label_set_message(found))

    async def ListLabelSets(  # noqa: N802
        self, request: pb.ListLabelSetsRequest, context: Context
    ) -> pb.ListLabelSetsResponse:
        """Lists label sets by id."""
        del context
        size, after = page_size(request.page_size), decode_token(request.page_token)
        left = self._app.settings.max_message_bytes // 2

        def fits(each: LabelSet) -> bool:
            nonlocal left
            left -= label_messages.label_set_message(each).ByteSize()
            return left >= 0

        call = current_call()
        page = await self._app.label_sets.page(after, size, fits, call)

        def reply() -> pb.ListLabelSetsResponse:
            return pb.ListLabelSetsResponse(
                label_sets=[label_messages.label_set_message(each) for each in page.label_sets],
                next_page_token=encode_token(page.next_after) if page.next_after else "",
            )

        return await made(reply, sum(len(each.labels) for each in page.label_sets), self._app.io, call)

    async def DeleteLabelSet(  # noqa: N802
        self, request: pb.DeleteLabelSetRequest, context: Context
    ) -> pb.DeleteLabelSetResponse:
        """Deletes a label set."""
        del context
        await self._app.label_sets.delete(request.label_set, current_call())
        return pb.DeleteLabelSetResponse()
