"""What pairs of pictures and captions say of a dual encoder that is being trained."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from twinlens.training.data.equal_pairs import ranges
from twinlens.training.data.pairs import Pairs
from twinlens.training.encoded_rows import encoded_rows
from twinlens.training.evaluation.held_out_pairs import pair_measures
from twinlens.training.evaluation.zero_shot import zero_shot
from twinlens.training.modules.dual_encoder import DualEncoder


def measured(towers: DualEncoder, pairs: Pairs) -> dict[str, float]:
    """What pairs say of towers: retrieval (`pair_measures`), or `top_1` and `top_5` where captions name classes.

    Captions name classes where every picture has one, and there are at most half as many as pictures.

    Args:
        towers: In evaluation mode.
        pairs: With pixels and token ids, or with the features of locked towers.
    """
    pictures, first_of_picture = np.unique(pairs.image_keys, return_index=True)
    numbers, captions = ranges(pairs.first_captions, pairs.caption_counts)
    said = pairs.text_keys[captions]
    owners = pairs.image_keys[numbers]
    images = _encoded(towers, towers.images, pairs.pixels_nhwc, pairs.slots[first_of_picture])
    if not _names_classes(said, owners):
        texts = _encoded(towers, towers.texts, pairs.token_ids_ml, captions)
        return pair_measures(images, texts, np.searchsorted(pictures, owners))
    label_of = dict(zip(owners.tolist(), said.tolist(), strict=True))
    keys, labels = np.unique([label_of[key] for key in pictures.tolist()], return_inverse=True)
    found = zero_shot(images, labels, _class_vectors(towers, pairs, np.unique(captions), keys))
    return {"top_1": found.top_1} if found.top_5 is None else {"top_1": found.top_1, "top_5": found.top_5}


def _class_vectors(
    towers: DualEncoder, pairs: Pairs, captions: NDArray[np.int64], keys: NDArray[np.int64]
) -> NDArray[np.float32]:
    """For each key the mean of the unit vectors of the captions that say it, normalised."""
    vectors = _encoded(towers, towers.texts, pairs.token_ids_ml, captions)
    sums = np.zeros((len(keys), vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, np.searchsorted(keys, pairs.text_keys[captions]), vectors)
    return np.asarray(sums / np.linalg.norm(sums, axis=1, keepdims=True))


def _names_classes(said: NDArray[np.int64], owners: NDArray[np.int64]) -> bool:
    """Whether every picture has one caption, and they share at most half as many as there are pictures."""
    known = np.unique(np.stack([said, owners], axis=1), axis=0)
    texts, pictures = np.unique(known[:, 0]), np.unique(known[:, 1])
    return len(pictures) == len(known) and 2 * len(texts) <= len(pictures)


def measure_names(pairs: Pairs) -> list[str]:
    """The measures that tell how good towers are, the first the one to go by.

    Args:
        pairs: See `measured`.
    """
    numbers, captions = ranges(pairs.first_captions, pairs.caption_counts)
    said = pairs.text_keys[captions]
    if _names_classes(said, pairs.image_keys[numbers]):
        return ["top_1", "top_5"] if len(np.unique(said)) > 5 else ["top_1"]
    ways = [f"{way}_{name}" for way in ("text_to_image", "image_to_text") for name in ("r1", "r5", "r10")]
    return ["mean_recall", *ways]


def _encoded(
    towers: DualEncoder, encode: Callable[[Tensor], Tensor], inputs: NDArray[np.generic], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    return encoded_rows(encode, inputs, rows, towers.mean.device)
