from __future__ import annotations

import pytest
import torch

from tests.support.pair_features import unit
from twinlens.training.losses.pair_features import HardNegatives, PairFeatures, of_one_process
from twinlens.training.losses.pair_mean import pair_mean


def test_a_pair_counts_fully_for_itself_and_its_equals_not_at_all() -> None:
    own, every = unit(2, 0), unit(5, 1)
    equal = torch.tensor([[False, False, True, False, True], [False, False, False, True, False]])
    weights = torch.full((2, 5), 0.5)
    features = PairFeatures(own, own, every, every, first=2, equal=equal, negative_weights=weights)
    whole = torch.tensor([[0.5, 0.5, 1, 0.5, 0], [0.5, 0.5, 0.5, 1, 0.5]], dtype=torch.float64)
    assert features.weights_nm().equal(whole)
    assert features.weights_nm(slice(1, 4)).equal(whole[:, 1:4])


def test_extras_weigh_one_each_unless_told() -> None:
    anchors, extras = unit(2, 0), unit(3, 1)
    assert HardNegatives(extras).weights_nm(anchors).equal(torch.ones(2, 3, dtype=torch.float64))
    for_all = HardNegatives(extras, torch.tensor([0.0, 1.0, 2.0]))
    assert for_all.weights_nm(anchors, slice(1, 3)).tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"texts_nd": unit(2, 0, 4)}, r"\(n, d\)"),
        ({"all_texts_md": unit(5, 0)}, r"\(N, d\)"),
        ({"first": 3}, "do not fit"),
        ({"equal": torch.zeros(2, 2, dtype=torch.bool)}, "equal is"),
        ({"negative_weights": torch.zeros(4, 2)}, "negative_weights is"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(change: dict[str, object], complaint: str) -> None:
    given = {"images_nd": unit(2, 0), "texts_nd": unit(2, 1), "all_images_md": unit(4, 2), "all_texts_md": unit(4, 3)}
    with pytest.raises(ValueError, match=complaint):
        PairFeatures(**(given | change))  # type: ignore[arg-type]


def test_a_batch_of_one_is_refused_unless_it_has_hard_negatives() -> None:
    one = unit(1, 0), unit(1, 1)
    with pytest.raises(ValueError, match="teaches nothing"):
        of_one_process(*one)
    with pytest.raises(ValueError, match="teaches nothing"):
        of_one_process(*one, hard_texts=HardNegatives(unit(1, 2)[:0]))
    of_one_process(*one, hard_texts=HardNegatives(unit(2, 2)))


def test_a_mean_over_pairs_is_weighted() -> None:
    values = torch.tensor([1.0, 2.0, 6.0])
    assert pair_mean(values, None) == 3
    assert pair_mean(values, torch.tensor([1.0, 1.0, 0.0])) == 1.5
    assert pair_mean(values, torch.zeros(3)) == 0
