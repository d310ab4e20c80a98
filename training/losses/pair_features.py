"""What the losses over pairs of picture and caption compare."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ALL = slice(None)


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

    def __len__(self) -> int:
        return len(self.embeddings_md)

    def weights_nm(self, anchors_nd: Tensor, columns: slice = _ALL) -> Tensor:
        """How much each extra counts for each anchor.

        Args:
            anchors_nd: The pictures or captions that they are negatives of.
            columns: Of which extras.

        Returns:
            Shape (n, columns), in the anchors' type.
        """
        if self.weights is None:
            return anchors_nd.new_ones(len(anchors_nd), len(self.embeddings_md[columns]))
        return self.weights.expand(len(anchors_nd), len(self))[:, columns].to(anchors_nd)


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
            caption, or a third pair connects them); the entry for itself does not count. None: all differ.
        hard_texts: Extra wrong captions of all ranks, for the image → text direction; weights of shape (n, extras).
        hard_images: Extra wrong pictures of all ranks, for the text → image direction; likewise.
        weights_n: How much each own pair counts in the mean, shape (n,); None: all alike.
        negative_weights: How much each pair of all counts as a negative of each own one, shape (n, N), in both
            directions; 0 where it may be right after all. None: 1.
    """

    images_nd: Tensor
    texts_nd: Tensor
    all_images_md: Tensor
    all_texts_md: Tensor
    first: int = 0
    equal: Tensor | None = None
    hard_texts: HardNegatives | None = None
    hard_images: HardNegatives | None = None
    weights_n: Tensor | None = None
    negative_weights: Tensor | None = None

    def __post_init__(self) -> None:
        """Checks what every loss relies on.

        Raises:
            ValueError: if shapes do not fit, or one pair has nothing to be told from (the loss is then 0 and teaches
                nothing).
        """
        own, every = self.images_nd.shape, self.all_images_md.shape
        if len(own) != 2 or own != self.texts_nd.shape:
            raise ValueError(f"image {tuple(own)} and text {tuple(self.texts_nd.shape)} embeddings must be (n, d)")
        if len(every) != 2 or every != self.all_texts_md.shape or own[1] != every[1]:
            raise ValueError(
                f"image {tuple(every)} and text {tuple(self.all_texts_md.shape)} embeddings must be (N, d)"
            )
        if not 0 <= self.first <= every[0] - own[0]:
            raise ValueError(f"{own[0]} pairs from pair {self.first} on do not fit {every[0]}")
        for name in ("equal", "negative_weights"):
            given = getattr(self, name)
            if given is not None and given.shape != (own[0], every[0]):
                raise ValueError(f"{name} is {tuple(given.shape)}, not {(own[0], every[0])}")
        if every[0] < 2 and not self.hard_texts and not self.hard_images:
            raise ValueError("a batch of one has no negatives: the loss is 0 and teaches nothing")

    @property
    def itself_n(self) -> Tensor:
        """Which pair of all each own one is, shape (n,)."""
        return torch.arange(self.first, self.first + len(self.images_nd), device=self.images_nd.device)

    def weights_nm(self, columns: slice = _ALL) -> Tensor:
        """What each pair of all counts in the sums over pairs: 1 itself, 0 equals, else its weight as a negative.

        Args:
            columns: Of which pairs of all.

        Returns:
            Shape (n, columns), in the embeddings' type.
        """
        pairs = torch.arange(len(self.all_images_md), device=self.images_nd.device)[columns]
        weights = self.images_nd.new_ones(len(self.images_nd), len(pairs))
        if self.negative_weights is not None:
            weights = self.negative_weights[:, columns].to(weights)
        if self.equal is not None:
            weights = weights.masked_fill(self.equal[:, columns], 0.0)
        return weights.masked_fill(self.itself_n[:, None] == pairs, 1.0)


def of_one_process(
    images_nd: Tensor,
    texts_nd: Tensor,
    *,
    equal: Tensor | None = None,
    hard_texts: HardNegatives | None = None,
    hard_images: HardNegatives | None = None,
    weights_n: Tensor | None = None,
    negative_weights: Tensor | None = None,
) -> PairFeatures:
    """A batch that one process holds: own pairs and all pairs are the same.

    Raises:
        ValueError: see `PairFeatures`.
    """
    return PairFeatures(
        images_nd,
        texts_nd,
        images_nd,
        texts_nd,
        equal=equal,
        hard_texts=hard_texts,
        hard_images=hard_images,
        weights_n=weights_n,
        negative_weights=negative_weights,
    )
