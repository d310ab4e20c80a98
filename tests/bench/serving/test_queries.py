"""Texts of the load."""

from __future__ import annotations

import math

from bench.serving import queries
from bench.serving.queries import DISTINCT, query


def test_texts_differ_and_are_short() -> None:
    texts = [query(number) for number in range(DISTINCT)]
    assert len(set(texts)) == DISTINCT > 10_000
    assert {len(text.split()) for text in texts} == set(range(2, 8))


def test_neighbours_are_of_all_lengths() -> None:
    words = [len(query(number).split()) for number in range(64)]
    assert len(set(words)) >= 5
    assert math.isclose(sum(words) / len(words), 4.5, abs_tol=1)


def test_no_two_words_are_alike_in_a_list() -> None:
    for words in (queries._HOW, queries._WHAT, queries._WHERE):
        assert len(set(words)) == len(words)
