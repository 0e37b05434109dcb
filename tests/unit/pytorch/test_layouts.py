from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import StateError
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind
from shardkeep.protocol.messages import InventoryAnswer, PostInventory
from shardkeep.pytorch.captured import CapturedTensor, Piece, Placed, Placement, Plain
from shardkeep.pytorch.layouts import Layouts
from shardkeep.pytorch.saving import plan_slices
from shardkeep.store.owners import Role, Share, is_agreed_at


def captured(
    name: str, *, kind: SliceKind = SliceKind.PARAMETER, placement: Placement | None = None, pieces: int = 1
) -> CapturedTensor:
    held = tuple(Piece(Region((2 * number,), (2,)), torch.ones(2)) for number in range(pieces))
    return CapturedTensor(name, "float32", (8,), kind, held, placement or Plain())


@dataclass
class Answering:
    """A service that knows how many hold each name, and says this rank is the first holder and the last one owns."""

    holders: dict[str, int]
    posted: list[tuple[int, list[str]]] = field(default_factory=list)

    def inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
        names = [tensor.name for tensor in message.tensors]
        self.posted.append((layout, names))
        counts = [self.holders[name] for name in names]
        return InventoryAnswer(
            complete=True, holders=counts, position=[0] * len(counts), owner=[count - 1 for count in counts]
        )


@given(holders=st.integers(1, 9), owner=st.integers(0, 8), first=st.integers(0, 1000))
def test_one_holder_stores_another_witnesses_and_in_turn_all_do(holders: int, owner: int, first: int) -> None:
    owner %= holders
    witnesses = []
    for save in range(first, first + max(holders - 1, 1)):
        roles = [Share(position, holders, owner).role(save) for position in range(holders)]
        assert [position for position, role in enumerate(roles) if role is Role.STORES] == [owner]
        witnesses += [position for position, role in enumerate(roles) if role is Role.WITNESSES]
    assert sorted(witnesses) == [position for position in range(holders) if position != owner]


def test_owners_are_agreed_at_saves_0_1_and_the_powers_of_two() -> None:
    assert [save for save in range(40) if is_agreed_at(save)] == [0, 1, 2, 4, 8, 16, 32]
    service = Answering({"w": 2})
    layouts = Layouts(service, world_size=2)
    for save in range(10):
        layouts.agree(save, [captured("w")], [])
    assert [layout for layout, _ in service.posted] == [0, 1, 2, 3, 4]


def test_a_tensor_that_appeared_since_is_stored_by_each_holder() -> None:
    layouts = Layouts(Answering({"w": 2}), world_size=2)
    layouts.agree(2, [captured("w")], [])
    layouts.agree(3, [captured("w"), captured("late")], [])

    assert layouts.share(captured("w")).role(3) is Role.WITNESSES
    assert layouts.share(captured("late")).role(3) is Role.STORES


def test_placed_tensors_and_buffers_are_not_asked_about() -> None:
    service = Answering({"w": 1})
    layouts = Layouts(service, world_size=2)
    buffer, placed = captured("mean", kind=SliceKind.BUFFER), captured("shard", placement=Placed(1, 2))
    layouts.agree(0, [captured("w"), buffer, placed], [])

    assert service.posted == [(0, ["w"])]
    assert layouts.share(buffer) == Share()
    shares = [layouts.share(captured("shard", placement=Placed(position, 2))) for position in range(2)]
    assert sorted(share.role(0).value for share in shares) == ["stores", "witnesses"]


def test_one_rank_asks_nobody() -> None:
    service = Answering({})
    Layouts(service, world_size=1).agree(0, [captured("w")], ["data"])
    assert service.posted == []


def test_E65_an_item_that_some_ranks_did_not_register_refuses_every_save_by_name() -> None:
    layouts = Layouts(Answering({"@item.data": 1, "@item.loop": 4, "w": 1}), world_size=4)
    with pytest.raises(StateError, match="'data' is registered on 1 of 4 ranks"):
        layouts.agree(2, [captured("w")], ["data", "loop"])
    with pytest.raises(StateError, match="'data'"):
        layouts.agree(3, [captured("w")], ["data", "loop"])


def test_a_rank_without_state_still_answers_the_others() -> None:
    service = Answering({})
    layouts = Layouts(service, world_size=2)
    layouts.take_part_without_state(4)
    layouts.take_part_without_state(5)
    assert service.posted == [(3, [])]


def test_slices_are_stored_witnessed_or_only_named() -> None:
    layouts = Layouts(Answering({"two": 2, "three": 3, "mine": 1}), world_size=3)
    tensors = [captured(name, pieces=2) for name in ("two", "three", "mine")] + [
        captured("elsewhere", placement=Placed(), pieces=0)
    ]
    layouts.agree(1, tensors, [])
    planned = plan_slices(tensors, layouts, save=1)

    by_name = {name: [item for item in planned if item.tensor.name == name] for name in ("two", "three", "mine")}
    assert [item.witness for item in by_name["two"]] == [True, True]
    assert [item.region.volume for item in by_name["three"]] == [0]
    assert [(item.witness, item.stored_bytes) for item in by_name["mine"]] == [(False, 8), (False, 8)]
    assert [item.region.volume for item in planned if item.tensor.name == "elsewhere"] == [0]
