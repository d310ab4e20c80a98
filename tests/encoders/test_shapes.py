from __future__ import annotations

import pytest

from twinlens.encoders.shapes import batch_parts, bucketed_length, length_buckets, length_step, near_steps


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 13, 31, 63, 64])
def test_a_batch_is_covered_in_order_by_powers_of_two(count: int) -> None:
    rows = [row for part in batch_parts(count) for row in range(count)[part]]
    assert rows == list(range(count))
    sizes = [part.stop - part.start for part in batch_parts(count)]
    assert all(size & (size - 1) == 0 for size in sizes)
    assert len(sizes) == count.bit_count()


def test_lengths_grow_to_one_of_a_few_and_never_above_the_window() -> None:
    found = {bucketed_length(length, 77) for length in range(1, 78)}
    assert found == {8, 12, 16, 20, 24, 32, 48, 64, 77}
    assert all(length <= bucketed_length(length, 2048) for length in range(1, 2049))


def test_texts_longer_than_any_bucket_are_padded_to_the_window() -> None:
    assert bucketed_length(513, 1024) == 1024


def test_texts_of_one_step_are_padded_to_the_same_length() -> None:
    for a in range(1, 600):
        for b in range(a, min(a + 40, 600)):
            assert (length_step(a) == length_step(b)) == (bucketed_length(a, 1024) == bucketed_length(b, 1024))


def test_steps_that_are_near_run_together_and_the_cheapest_come_first() -> None:
    longest = {length_step(length): length for length in range(1, 513)}
    for step, length in longest.items():
        near = near_steps(step)
        assert step not in near
        assert [other < step for other in near] == sorted((other < step for other in near), reverse=True)
        for other, other_length in longest.items():
            runs = length_buckets(sorted([length, other_length]), 64)
            assert (other in near or other == step) == (len(runs) == 1)
    assert near_steps(length_step(16))[0] == length_step(12)
    assert near_steps(length_step(600))


class TestLengthBuckets:
    def test_texts_of_like_length_run_together(self) -> None:
        found = length_buckets([3, 4, 14, 15, 16, 120, 128], 64)
        assert found == [slice(0, 3), slice(3, 5), slice(5, 7)]
        assert length_buckets([5], 64) == [slice(0, 1)]

    def test_one_long_text_does_not_make_the_short_ones_long(self) -> None:
        assert length_buckets([*[6] * 15, 200], 64) == [slice(0, 15), slice(15, 16)]

    def test_no_run_is_larger_than_it_may_be(self) -> None:
        assert length_buckets([7] * 130, 64) == [slice(0, 64), slice(64, 128), slice(128, 130)]

    def test_nothing_has_no_runs(self) -> None:
        assert length_buckets([], 64) == []
