"""Which texts are best run together: a tower runs texts as long as the longest beside them."""

from __future__ import annotations

from collections.abc import Sequence

from twinlens.encoders.shapes import length_step, near_steps
from twinlens.encoders.tokenise import TokenisedText


class TextLengths:
    """Texts by the length they are padded to, as `Buckets`.

    Under load there are enough of each length to fill batches, and nothing is computed for padding; otherwise a batch
    is filled up with texts of near lengths, and a short query never waits beside a page of text.
    """

    def of(self, item: TokenisedText) -> int:
        """The step of its length."""
        return length_step(len(item.ids))

    def beside(self, bucket: int) -> Sequence[int]:
        """Steps of near lengths."""
        return near_steps(bucket)
