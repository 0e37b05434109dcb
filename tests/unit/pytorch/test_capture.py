from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.errors import ConfigurationError, MissingStorage, StateError, UnnamedParameter
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.capture import TrainingState
from shardkeep.pytorch.captured import Capture, CapturedTensor, Placed, Plain
from shardkeep.pytorch.marks import PerRank, Sharded, mark
from shardkeep.store.stored_values import stored_aliases


def tensors(capture: Capture) -> dict[str, CapturedTensor]:
    return {tensor.name: tensor for tensor in capture.tensors}


def values(capture: Capture) -> dict[tuple[str, ...], Any]:
    return {value.path: value.value for value in capture.values}


@pytest.mark.parametrize("value", [1, 1.5, "x", True, (1, 2), None, nn.Linear])
def test_what_cannot_be_updated_in_place_is_a_type_error_that_says_dict(value: object) -> None:
    with pytest.raises(TypeError, match="put it in a dict"):
        TrainingState({"epoch": value})


def test_a_name_that_starts_with_at_is_refused() -> None:
    with pytest.raises(TypeError, match="@rng"):
        TrainingState({"@rng": {}})


def test_a_model_and_its_optimizer_are_named_by_the_model() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    found = tensors(TrainingState({"model": model, "optimizer": optimizer}).capture())
    assert set(found) == {
        "model.0.weight",
        "model.0.bias",
        *(f"optimizer.state.model.0.{p}.{k}" for p in ("weight", "bias") for k in ("step", "exp_avg", "exp_avg_sq")),
    }
    moment = found["optimizer.state.model.0.weight.exp_avg"]
    assert (moment.kind, moment.shape, moment.placement) == (SliceKind.OPTIMIZER, (2, 2), Plain())
    assert found["optimizer.state.model.0.bias.step"].shape == ()
    assert found["model.0.weight"].pieces[0].tensor.data_ptr() == model.get_parameter("0.weight").data_ptr()


def test_E94_tensors_are_taken_anew_at_each_capture() -> None:
    model = nn.Linear(2, 2)
    state = TrainingState({"model": model})
    state.capture()
    model.weight = nn.Parameter(torch.full((2, 2), 7.0))
    assert tensors(state.capture())["model.weight"].pieces[0].tensor[0, 0].item() == 7.0


def test_each_group_is_kept_by_itself_with_its_names_and_options() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    optimizer = torch.optim.AdamW(
        [{"params": [model[1].weight], "lr": 0.5}, {"params": [model[0].weight], "weight_decay": 0.0}], lr=0.1
    )
    model[0](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    found = values(TrainingState({"model": model, "optimizer": optimizer}).capture())
    groups = {path[:3]: value for path, value in found.items() if path[-1] == "params"}
    assert list(groups.values()) == [["model.1.weight"], ["model.0.weight"]]
    first, second = groups
    assert found[(*first, "options")]["lr"] == 0.5
    assert found[(*second, "options")]["weight_decay"] == 0.0


def test_a_parameter_that_no_module_names_is_an_error_with_group_index_and_cause() -> None:
    model, other = nn.Linear(2, 2), nn.Linear(3, 3)
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": other.parameters()}], lr=0.1)
    with pytest.raises(UnnamedParameter, match=r"optimizer: parameter 0 of group 1, of shape \(3, 3\).*has now"):
        TrainingState({"model": model, "optimizer": optimizer}).capture()
    with pytest.raises(UnnamedParameter, match="give the module"):
        TrainingState({"optimizer": optimizer}).capture()


def test_a_tensor_given_by_name_names_its_optimizer_state() -> None:
    alpha = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([alpha])
    alpha.sum().backward()
    optimizer.step()
    found = tensors(TrainingState({"alpha": alpha, "tuner": optimizer}).capture())
    assert set(found) == {"alpha", *(f"tuner.state.alpha.{key}" for key in ("step", "exp_avg", "exp_avg_sq"))}


def test_E21_gradients_that_were_not_cleared_lose_no_state() -> None:
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.Adam(model.parameters())
    state = TrainingState({"model": model, "optimizer": optimizer})
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    keys = {name.rsplit(".", 1)[1] for name in tensors(state.capture()) if name.startswith("optimizer")}
    assert keys == {"step", "exp_avg", "exp_avg_sq"}


def test_E21_a_stepped_optimizer_that_yields_no_state_is_an_error() -> None:
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.Adam(model.parameters())
    state = TrainingState({"model": model, "optimizer": optimizer})
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    optimizer.state.clear()
    with pytest.raises(StateError, match="has stepped and holds no state"):
        state.capture()


def test_sgd_without_momentum_has_no_state_and_that_is_fine() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = TrainingState({"model": model, "optimizer": optimizer})
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert set(tensors(state.capture())) == {"model.weight", "model.bias"}


def test_state_of_a_replaced_parameter_is_an_error() -> None:
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    model.weight = nn.Parameter(torch.zeros(1, 1))
    optimizer.param_groups[0]["params"] = [model.weight]
    with pytest.raises(StateError, match="was replaced"):
        TrainingState({"model": model, "optimizer": optimizer}).capture()


@pytest.mark.parametrize(("dtype", "limit"), [(torch.bfloat16, 256.0), (torch.float16, 2048.0)])
def test_E102_a_low_precision_counter_at_its_limit_is_warned_about(
    dtype: torch.dtype, limit: float, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = TrainingState({"model": model, "optimizer": optimizer})
    optimizer.state[model.weight] = {"step": torch.tensor(limit - 1, dtype=dtype)}
    state.capture()
    assert not caplog.records
    optimizer.state[model.weight] = {"step": torch.tensor(limit, dtype=dtype)}
    state.capture()
    assert "optimizer.state.model.weight.step" in caplog.text
    assert str(int(limit)) in caplog.text


def test_E104_tied_weights_are_stored_once_and_the_other_name_is_an_alias() -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(100, 8), "head": nn.Linear(8, 100, bias=False)})
    model["head"].weight = model["embedding"].weight
    capture = TrainingState({"model": model}).capture()
    assert set(tensors(capture)) == {"model.embedding.weight"}
    assert capture.aliases == {"model.head.weight": "model.embedding.weight"}
    assert stored_aliases(values(capture)) == capture.aliases


def test_E168_freed_storage_and_meta_tensors_are_errors_that_name_the_tensor() -> None:
    model = nn.Linear(8, 8)
    model.weight.untyped_storage().resize_(0)
    with pytest.raises(MissingStorage, match=r"model\.weight has shape \(8, 8\)"):
        TrainingState({"model": model}).capture()
    with pytest.raises(MissingStorage, match=r"model\.weight.*to_empty"):
        TrainingState({"model": nn.Linear(2, 2, device="meta")}).capture()


def test_marked_parameters_and_their_state_are_shards_of_the_whole() -> None:
    model = nn.Linear(3, 2, bias=False)
    mark(model.weight, shape=(4, 3), offset=(2, 0))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    optimizer.state[model.weight]["codes"] = torch.zeros(5, dtype=torch.int8)
    capture = TrainingState({"model": model, "optimizer": optimizer}).capture()
    for name in ("model.weight", "optimizer.state.model.weight.exp_avg"):
        found = tensors(capture)[name]
        assert (found.shape, found.pieces[0].region, found.placement) == ((4, 3), Region((2, 0), (2, 3)), Placed())
    assert tensors(capture)["optimizer.state.model.weight.step"].placement == Plain()
    (codes,) = [v for v in capture.values if v.path[-1] == "codes"]
    assert codes.per_rank  # they describe this shard and have no place in the whole


def test_plain_containers_give_tensors_values_and_marks() -> None:
    state = {"w": torch.ones(2), "epoch": 3, "s": Sharded(torch.ones(2), shape=(4,), offset=(0,)), "p": PerRank(7)}
    capture = TrainingState({"extra": state, "history": [1, 2]}).capture()
    found = tensors(capture)
    assert found["extra.w"].kind is SliceKind.TENSOR
    assert found["extra.s"].shape == (4,)
    assert values(capture)[("extra", "epoch")] == 3
    assert values(capture)[("history",)] == [1, 2]
    assert [value.path for value in capture.values if value.per_rank] == [("extra", "p")]


def test_names_with_dots_do_not_collide_with_nested_ones() -> None:
    found = tensors(TrainingState({"s": {"a.b": torch.ones(1), "a": {"b": torch.ones(2)}}}).capture())
    assert {name: tensor.shape for name, tensor in found.items()} == {"s.a\\.b": (1,), "s.a.b": (2,)}


def test_tensors_in_extra_state_are_named_by_their_module() -> None:
    class Extra(nn.Module):
        def get_extra_state(self) -> Any:
            return {"x": torch.ones(1)}

    assert set(tensors(TrainingState({"m": Extra()}).capture())) == {"m._extra_state.x"}


def test_a_mark_that_no_longer_fits_is_an_error() -> None:
    model = nn.Linear(3, 2, bias=False)
    mark(model.weight, shape=(4, 3), offset=(2, 0))
    model.weight.data = torch.zeros(1, 3)
    with pytest.raises(ConfigurationError):
        TrainingState({"model": model}).capture()


class Loader:
    """Stands for torchdata's StatefulDataLoader."""

    def state_dict(self) -> dict[str, Any]:
        return {"position": 3}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError


def test_a_loader_that_counts_for_itself_is_kept_per_rank() -> None:
    loader = type("StatefulDataLoader", (Loader,), {"__module__": "torchdata.stateful_dataloader"})()
    kept = {value.path: value for value in TrainingState({"loader": loader, "other": Loader()}).capture().values}
    assert kept[("loader",)].per_rank
    assert kept[("loader",)].value == {"position": 3}
    assert not kept[("other", "position")].per_rank
