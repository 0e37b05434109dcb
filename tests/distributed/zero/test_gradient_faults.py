"""Public faults of sharded gradients, and what else they must be right in, each against the oracle."""

from __future__ import annotations

import pytest

from tests.distributed.launcher import RankPools
from tests.distributed.zero.gradient_cases import train_case


def assert_trains_as_the_oracle(rank_pools: RankPools, *names: str, world_size: int = 2) -> None:
    wrong = rank_pools.of(world_size).run(train_case, names=list(names))

    assert not [each for of_rank in wrong for each in of_rank]


def test_fault_01_micro_batches_may_use_other_parameters(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(
        rank_pools, "other parameters in every micro-batch", "other parameters in every micro-batch, deferred"
    )


def test_fault_02_offload_accumulates_from_the_first_micro_batch_of_every_step(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "offload, four micro-batches")


def test_fault_03_the_norm_under_offload_is_of_all_micro_batches(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "offload, clipped each step")


def test_fault_04_offload_keeps_every_backward_of_a_step(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "offload, three backwards")


def test_fault_05_every_micro_batch_in_bf16_is_averaged(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "bf16, three micro-batches", world_size=3)


def test_fault_06_the_norm_is_of_every_backward_of_a_step(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "three backwards, clipped")


def test_fault_07_a_module_used_more_than_once_has_whole_gradients(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(
        rank_pools, "bf16, a module twice", "a module twice, two backwards, deferred", "checkpoints without reentry"
    )


def test_fault_10_a_parameter_as_large_as_its_bucket_is_reduced(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "parameters as large as a bucket")


def test_fault_11_parameters_larger_than_a_bucket_travel_in_another_dtype(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "parameters larger than a bucket, another dtype on the wire")


def test_fault_13_clipping_after_accumulation_sees_it_once(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "clipped after deferring")


def test_fault_14_offload_adds_outside_no_sync_to_what_is_there(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "offload, deferred", "offload, three backwards")


def test_fault_32_parameters_without_elements_train_with_the_others(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "parameters as large as a bucket", world_size=3)


def test_fault_33_57_parameters_of_odd_sizes_lie_where_both_sides_look(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "57 parameters")


def test_fault_56_ranks_may_use_other_parameters(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "unused on some ranks")
    assert_trains_as_the_oracle(rank_pools, "another order on each rank")


def test_parameters_that_no_rank_used_are_not_stepped(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "unused everywhere in one step")


def test_tied_parameters_train_once(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "tied")


def test_groups_keep_their_options_and_objects(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "groups", "groups, whole", world_size=3)


def test_schedulers_change_what_is_stepped(rank_pools: RankPools) -> None:
    assert_trains_as_the_oracle(rank_pools, "step schedule", "cycle schedule", "tensor rate")


@pytest.mark.parametrize(
    "name", ["foreach", "amsgrad", "SGD momentum", "Adagrad", "RMSprop", "Adamax", "NAdam", "Rprop"]
)
def test_inner_optimizers_step_as_they_do_unsharded(rank_pools: RankPools, name: str) -> None:
    assert_trains_as_the_oracle(rank_pools, name)
