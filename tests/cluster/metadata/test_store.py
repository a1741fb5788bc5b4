"""The contract of MetadataStore, held against a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bk_spark.local.zookeeper_server import LocalZooKeeper
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.zookeeper import connect
from tests.unit.metadata.test_store import (
    Connect,
    root,
    session,
    test_a_change_of_a_value_or_deeper_down_is_not_reported,
    test_a_created_value_is_read_back_with_version_zero,
    test_a_negative_version_matches_nothing,
    test_a_refused_transaction_changes_nothing_and_names_the_operation,
    test_a_sequential_path_without_a_parent_is_refused,
    test_a_transaction_at_the_limit_is_done_and_one_above_it_is_refused,
    test_a_transaction_does_all_operations,
    test_a_value_at_the_limit_is_stored_and_one_above_it_is_refused_by_name,
    test_a_value_is_replaced_only_at_its_version,
    test_a_watch_may_be_set_before_the_path_is_there,
    test_a_watch_of_a_value_is_quiet_about_others_and_once_it_was_ended,
    test_a_watch_of_a_value_reports_its_changes_and_that_the_path_comes_and_goes,
    test_a_watch_reports_each_change_of_the_names_below,
    test_a_watch_sees_in_its_callback_what_it_reports,
    test_an_ephemeral_path_goes_with_its_session_and_no_other,
    test_children_are_the_sorted_names_right_below,
    test_creating_an_existing_path_is_refused_and_keeps_its_value,
    test_creating_without_a_parent_is_refused_unless_parents_are_made,
    test_deletion_obeys_version_children_and_absence,
    test_ensuring_a_path_keeps_what_is_there,
    test_getting_a_missing_path_names_it,
    test_making_parents_does_not_hide_that_the_path_exists,
    test_many_values_come_in_the_order_asked_with_none_for_absent_ones,
    test_sequential_numbers_rise_and_are_never_given_twice,
    test_setting_a_missing_path_is_refused,
)

__all__ = [
    "root",
    "session",
    "test_a_change_of_a_value_or_deeper_down_is_not_reported",
    "test_a_created_value_is_read_back_with_version_zero",
    "test_a_negative_version_matches_nothing",
    "test_a_refused_transaction_changes_nothing_and_names_the_operation",
    "test_a_sequential_path_without_a_parent_is_refused",
    "test_a_transaction_at_the_limit_is_done_and_one_above_it_is_refused",
    "test_a_transaction_does_all_operations",
    "test_a_value_at_the_limit_is_stored_and_one_above_it_is_refused_by_name",
    "test_a_value_is_replaced_only_at_its_version",
    "test_a_watch_may_be_set_before_the_path_is_there",
    "test_a_watch_of_a_value_is_quiet_about_others_and_once_it_was_ended",
    "test_a_watch_of_a_value_reports_its_changes_and_that_the_path_comes_and_goes",
    "test_a_watch_reports_each_change_of_the_names_below",
    "test_a_watch_sees_in_its_callback_what_it_reports",
    "test_an_ephemeral_path_goes_with_its_session_and_no_other",
    "test_children_are_the_sorted_names_right_below",
    "test_creating_an_existing_path_is_refused_and_keeps_its_value",
    "test_creating_without_a_parent_is_refused_unless_parents_are_made",
    "test_deletion_obeys_version_children_and_absence",
    "test_ensuring_a_path_keeps_what_is_there",
    "test_getting_a_missing_path_names_it",
    "test_making_parents_does_not_hide_that_the_path_exists",
    "test_many_values_come_in_the_order_asked_with_none_for_absent_ones",
    "test_sequential_numbers_rise_and_are_never_given_twice",
    "test_setting_a_missing_path_is_refused",
]


@pytest.fixture
def new_session(zookeeper_server: LocalZooKeeper) -> Iterator[Connect]:
    """Opens sessions on one and the same store."""
    opened: list[MetadataStore] = []

    def open_one() -> MetadataStore:
        opened.append(connect(f"zk://{zookeeper_server.address}/contract", connect_timeout_s=10.0, session_timeout_s=10.0))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
