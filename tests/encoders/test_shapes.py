from __future__ import annotations

import pytest

from twinlens.encoders.shapes import batch_parts, bucketed_length


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 13, 31, 63, 64])
def test_a_batch_is_covered_in_order_by_powers_of_two(count: int) -> None:
    rows = [row for part in batch_parts(count) for row in range(count)[part]]
    assert rows == list(range(count))
    sizes = [part.stop - part.start for part in batch_parts(count)]
    assert all(size & (size - 1) == 0 for size in sizes)
    assert len(sizes) == count.bit_count()


def test_lengths_grow_to_one_of_a_few_and_never_above_the_window() -> None:
    found = {bucketed_length(length, 77) for length in range(1, 78)}
    assert found == {8, 16, 24, 32, 48, 64, 77}
    assert all(length <= bucketed_length(length, 2048) for length in range(1, 2049))


def test_texts_longer_than_any_bucket_are_padded_to_the_window() -> None:
    assert bucketed_length(513, 1024) == 1024
