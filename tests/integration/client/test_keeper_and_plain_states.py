"""What the Checkpointer saved loads into plain states, and what `Run.save` saved loads into a Checkpointer's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import shardkeep as sk
from shardkeep.errors import MissingNames
from shardkeep.store.run import Run


class Net(nn.Module):
    """Nested names, a buffer, a tie and extra state."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(10, 4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)])
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.counter = Counter()


class Counter(nn.Module):
    """Keeps something that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = {"batches": 0}

    def get_extra_state(self) -> Any:
        return dict(self.seen)

    def set_extra_state(self, state: Any) -> None:
        self.seen = dict(state)


def assert_equal(first: nn.Module, second: nn.Module) -> None:
    stored, loaded = first.state_dict(), second.state_dict()
    assert stored.keys() == loaded.keys()
    for name, value in stored.items():
        same = torch.equal(value, loaded[name]) if isinstance(value, torch.Tensor) else value == loaded[name]
        assert same, name


def saved_by_keeper(run: Run, **items: Any) -> sk.Checkpoint:
    with sk.Checkpointer(run, **items) as keeper:
        keeper.save(3)
        checkpoint = keeper.wait()
    assert isinstance(checkpoint, sk.Checkpoint)
    return checkpoint


def test_a_state_dict_is_loaded_from_what_the_keeper_saved(run: Run) -> None:
    model, other = Net(1), Net(2)
    model.counter.seen["batches"] = 7
    checkpoint = saved_by_keeper(run, model=model)
    state = other.state_dict()
    report = checkpoint.load_into({"model": state})
    assert report.success
    other.load_state_dict(state)
    assert_equal(model, other)


def test_a_name_the_keeper_saved_and_the_state_dict_lacks_is_told(run: Run) -> None:
    checkpoint = saved_by_keeper(run, model=Net(1))
    state = Net(2).state_dict()
    del state["blocks.1.0.weight"]
    state["blocks.9.0.weight"] = torch.zeros(4, 4)
    with pytest.raises(MissingNames) as caught:
        checkpoint.load_into({"model": state})
    assert caught.value.missing == ("model.blocks\\.9\\.0\\.weight",)
    assert caught.value.unexpected == ("model.blocks.1.0.weight",)


def test_a_keeper_resumes_from_a_saved_state_dict(run: Run, new_run: Callable[[], Run]) -> None:
    model, other = Net(1), Net(2)
    model.counter.seen["batches"] = 7
    progress = {"epoch": 4, "best": {"loss": 0.5, "at": 3}}
    run.save(5, {"model": model.state_dict(), "progress": progress}).wait(60)
    target: dict[str, Any] = {"epoch": 0, "best": {}}
    with sk.Checkpointer(run, model=other, progress=target) as keeper:
        assert keeper.resume() == 5
    assert_equal(model, other)
    assert target == progress


def test_a_plain_dict_of_values_is_loaded_from_what_the_keeper_saved(run: Run) -> None:
    progress: dict[Any, Any] = OrderedDict([("epoch", 4), ("best", {"loss": 0.5}), (7, "an int key")])
    history = [1, 2, {"three": 3}]
    checkpoint = saved_by_keeper(run, state={"progress": progress, "history": history})
    target: dict[str, Any] = {"progress": {"epoch": 0}, "history": []}
    report = checkpoint.load_into(target)
    assert report.success
    assert target == {"progress": progress, "history": history}
    assert isinstance(target["progress"], OrderedDict)


def test_a_mixed_dict_is_loaded_both_ways(run: Run, new_run: Callable[[], Run]) -> None:
    def mixed(fill: float, epoch: int) -> dict[str, Any]:
        return {"w": torch.full((3,), fill), "epoch": epoch, "inner": {"a.b": torch.full((2,), fill), "note": [epoch]}}

    def check(loaded: dict[str, Any]) -> None:
        assert (loaded["epoch"], loaded["inner"]["note"]) == (3, [3])
        assert torch.equal(loaded["w"], torch.full((3,), 2.0))
        assert torch.equal(loaded["inner"]["a.b"], torch.full((2,), 2.0))

    target = mixed(0, 0)
    assert saved_by_keeper(run, part=mixed(2, 3)).load_into({"part": target}).success
    check(target)
    plain, target = new_run(), mixed(0, 0)
    plain.save(1, {"part": mixed(2, 3)}).wait(60)
    with sk.Checkpointer(plain, part=target) as keeper:
        assert keeper.resume() == 1
    check(target)


def test_two_names_of_one_plain_text_are_not_guessed_between(run: Run) -> None:
    checkpoint = run.save(1, {"m": {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}}).wait(60)
    with pytest.raises(MissingNames) as caught:
        checkpoint.load_into({"m": {"a.b": torch.zeros(1), "a": {"b": torch.zeros(1)}, "a\\": {"b": torch.zeros(1)}}})
    assert caught.value.missing == ("m.a\\\\.b",)
    first, second = torch.full((1,), 5.0), torch.full((1,), 5.0)
    checkpoint.load_into({"m": {"a.b": first, "a": {"b": second}}})
    assert (first.item(), second.item()) == (0.0, 1.0)


def test_a_keeper_gives_a_stored_tensor_to_no_second_name_that_only_reads_like_it(run: Run) -> None:
    run.save(1, {"m": {"a.b": torch.ones(1)}}).wait(60)
    live = {"a.b": torch.zeros(1), "a": {"b": torch.zeros(1)}}
    with sk.Checkpointer(run, m=live) as keeper:
        with pytest.raises(MissingNames) as caught:
            keeper.resume()
        assert caught.value.missing == ("m.a.b",)
    with sk.Checkpointer(run, m={"a": {"b": torch.zeros(1)}}) as keeper:
        assert keeper.resume() == 1
