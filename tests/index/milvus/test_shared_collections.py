"""The common tests of collections, on those that live in Milvus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.index.filters.test_collections import (  # noqa: F401
    test_items_without_vectors_match_lists_but_are_no_hits,
    test_lists_are_paged_within_what_matches,
    test_matches_are_counted,
    test_only_matching_items_are_found_and_as_many_as_asked_for,
    test_unreadable_filters_are_refused_everywhere_and_change_nothing,
)
from tests.index.filters.test_deleting import (  # noqa: F401
    test_a_blank_filter_deletes_nothing_and_ids_go_without_one,
)
from tests.index.operations.test_export import (  # noqa: F401
    test_an_empty_collection_has_no_pages,
)
from tests.index.test_collection_items import (  # noqa: F401
    test_a_page_may_be_as_long_as_one_likes,
    test_a_page_of_none_is_refused,
    test_after_closing_every_call_says_that_it_is_closed,
    test_an_id_that_looks_like_a_statement_is_just_an_id,
    test_an_id_that_was_deleted_can_come_back,
    test_an_item_comes_back_as_it_was_stored,
    test_an_item_without_vectors_is_kept_but_not_found,
    test_another_space_is_refused_naming_both,
    test_asking_for_what_is_not_there_names_it,
    test_delete_counts_those_that_existed,
    test_nothing_to_store_or_delete_is_no_error,
    test_of_items_with_one_id_in_one_call_the_later_stays,
    test_pages_come_in_the_order_of_ids_and_meet_without_gap,
    test_replacing_replaces_all_of_an_item_but_when_it_was_created,
    test_storing_the_same_item_again_keeps_its_picture,
    test_vectors_can_be_gone_through_in_batches,
)
from tests.index.test_collection_search import (  # noqa: F401
    test_an_empty_collection_has_no_hits,
    test_any_sequence_of_changes_is_searched_as_brute_force_would,
    test_each_query_has_a_least_score_of_its_own,
    test_hits_below_the_least_score_are_left_out,
    test_hits_carry_the_item,
    test_no_queries_have_no_results,
    test_search_equals_brute_force,
    test_what_cannot_be_searched_is_refused,
)
from tests.index.test_concurrency import (  # noqa: F401
    test_collections_are_made_used_and_deleted_from_many_threads,
    test_searches_go_on_while_a_generation_takes_over,
    test_writers_read_their_writes_and_searches_see_no_ghosts_and_no_gaps,
)
from tests.index.test_generations import (  # noqa: F401
    test_a_generation_is_not_activated_while_items_are_missing,
    test_a_generation_needs_a_dimension,
    test_a_new_generation_is_filled_beside_the_active_one_and_then_takes_over,
    test_a_space_has_one_dimension,
    test_an_item_with_nothing_to_embed_is_not_missing,
    test_beginning_with_the_active_space_changes_nothing,
    test_items_deleted_meanwhile_are_ignored,
    test_items_stored_or_replaced_while_filling_are_missing_again,
    test_the_generation_before_stays_and_can_come_back,
    test_vectors_made_from_content_that_was_replaced_meanwhile_are_not_stored,
    test_vectors_of_an_item_that_was_deleted_and_stored_again_are_not_stored,
    test_vectors_of_another_dimension_are_refused_and_nothing_is_written,
    test_vectors_written_to_the_active_generation_are_found_at_once,
)
from tests.index.test_metadata_vectors import (  # noqa: F401
    test_a_collection_made_anew_under_the_same_name_has_another_version,
    test_every_change_gives_another_version,
    test_moving_to_another_generation_gives_another_version,
)
from tests.support.items import DIMENSION, SPACE
from twinlens.index.milvus.catalog import MilvusCatalog
from twinlens.index.milvus.collection import MilvusCollection


@pytest.fixture
def catalog(tmp_path: Path, address: str) -> Iterator[MilvusCatalog]:
    opened = MilvusCatalog(address, pictures=str(tmp_path / "pictures"))
    yield opened
    for collection in opened.list():
        opened.delete(collection.id)
    opened.close()


@pytest.fixture
def collection(catalog: MilvusCatalog) -> MilvusCollection:
    return catalog.create("photos", space_id=SPACE, dimension=DIMENSION)
