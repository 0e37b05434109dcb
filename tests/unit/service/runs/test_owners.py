"""The pure planner of owners: balanced, deterministic, and blind to nothing that disagrees."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from shardkeep.format.segments import SliceKind
from shardkeep_service.runs.owners import Disagreement, Group, HeldTensor, OwnerPlan, plan_owners


def held(name: str, rows: int = 1, *, kind: SliceKind = SliceKind.PARAMETER, dtype: str = "float32") -> HeldTensor:
    return HeldTensor(name, dtype, (rows,), int(kind))


def planned(*groups: Group) -> OwnerPlan:
    plan = plan_owners(groups)
    assert isinstance(plan, OwnerPlan)
    return plan


def test_each_tensor_has_one_owner_and_every_holder_knows_its_position() -> None:
    plan = planned(Group((0, 1, 2), (held("a"), held("b"), held("c"))))

    answers = [plan.answer(rank) for rank in range(3)]

    assert [answer.position for answer in answers] == [[0] * 3, [1] * 3, [2] * 3]
    assert answers[0].owner == answers[1].owner == answers[2].owner
    assert sorted(answers[0].owner) == [0, 1, 2]
    assert answers[0].holders == [3, 3, 3]


def test_big_tensors_are_spread_by_bytes() -> None:
    plan = planned(Group((0, 1), (held("big", 100), held("small-1", 30), held("small-2", 30), held("small-3", 30))))

    assert plan.answer(0).owner == [0, 1, 1, 1]


def test_a_buffer_is_owned_by_each_holder() -> None:
    plan = planned(Group((0, 1), (held("mean", kind=SliceKind.BUFFER),)))

    assert [plan.answer(rank).owner for rank in (0, 1)] == [[0], [1]]


def test_pipeline_stages_own_what_only_they_hold() -> None:
    plan = planned(Group((0, 1), (held("stage-0"), held("tied"))), Group((2, 3), (held("stage-1"), held("tied"))))

    assert plan.answer(0).holders == [2, 4]
    assert plan.answer(3).holders == [2, 4]
    assert plan.answer(3).position == [1, 3]


def test_a_rank_that_holds_nothing_gets_an_empty_answer() -> None:
    plan = planned(Group((0,), (held("a"),)), Group((1,), ()))

    assert plan.answer(1).owner == []


def test_disagreements_name_both_ranks() -> None:
    other = HeldTensor("a", "float32", (2,), 0)

    assert plan_owners([Group((0, 2), (held("a"),)), Group((1,), (other,))]) == Disagreement(
        "shape", "a", (0, 1), ("(1,)", "(2,)")
    )
    assert plan_owners([Group((1,), (held("a", dtype="int8"),)), Group((0, 2), (held("a"),))]) == Disagreement(
        "dtype", "a", (0, 1), ("float32", "int8")
    )


@given(
    holders=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3),
        st.tuples(st.sets(st.integers(0, 7), min_size=1), st.integers(0, 50)),
        max_size=12,
    ),
    order=st.randoms(use_true_random=False),
)
def test_whatever_is_held_where_all_holders_agree_on_one_owner(
    holders: dict[str, tuple[set[int], int]], order: random.Random
) -> None:
    by_content: dict[tuple[HeldTensor, ...], list[int]] = {}
    for rank in range(8):
        content = tuple(held(name, rows) for name, (ranks, rows) in sorted(holders.items()) if rank in ranks)
        by_content.setdefault(content, []).append(rank)
    groups = [Group(tuple(ranks), content) for content, ranks in by_content.items()]
    order.shuffle(shuffled := list(groups))

    plan, again = planned(*groups), planned(*shuffled)

    owners: dict[str, set[int]] = {}
    for rank in range(8):
        answer = plan.answer(rank)
        assert answer == again.answer(rank)
        names = [tensor.name for tensor in plan.groups[plan.group_of_rank[rank]].tensors]
        for name, count, position, owner in zip(names, answer.holders, answer.position, answer.owner, strict=True):
            assert sorted(holders[name][0])[position] == rank
            assert count == len(holders[name][0])
            owners.setdefault(name, set()).add(sorted(holders[name][0])[owner])
    assert all(len(found) == 1 for found in owners.values())
