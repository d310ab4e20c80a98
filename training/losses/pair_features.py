"""What the losses over pairs of picture and caption compare."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class HardNegatives:
    """Extra embeddings that stand in the batch as negatives only.

    Attributes:
        embeddings_md: Unit norm, shape (m, d): captions for the image side, pictures for the text side.
        weights: How much each counts, broadcastable to (n, m); 1 as much as a negative of the batch, 0 not at all.
            A row per anchor confines an extra to its own anchor, and a 0 hides one that is right for it. None: 1.
    """

    embeddings_md: Tensor
    weights: Tensor | None = None


@dataclass(frozen=True)
class PairFeatures:
    """The n pairs of this rank, and the N = ranks · n of all, with gradients to every rank's rows.

    A loss is the mean over the own pairs; its mean over the ranks is then that of one big batch, and so are gradients
    (see `gather_with_gradients`). In one process, own and all are the same tensors.

    Attributes:
        images_nd: Own pictures, unit norm, shape (n, d), float32.
        texts_nd: Own captions, likewise; row i belongs to picture i.
        all_images_md: Pictures of all ranks in their order, shape (N, d).
        all_texts_md: Captions of all ranks, likewise.
        first: Own pair i is pair `first + i` of all.
        equal: bool, shape (n, N): which pairs of all are as right for an own one as itself (they share picture or
            caption, or a third pair connects them); True for itself.
        hard_texts: Extra wrong captions of all ranks, for the image → text direction; weights of shape (n, extras).
        hard_images: Extra wrong pictures of all ranks, for the text → image direction; likewise.
        weights_n: How much each own pair counts in the mean, shape (n,); None: all alike.
    """

    images_nd: Tensor
    texts_nd: Tensor
    all_images_md: Tensor
    all_texts_md: Tensor
    first: int
    equal: Tensor
    hard_texts: HardNegatives | None = None
    hard_images: HardNegatives | None = None
    weights_n: Tensor | None = None
