"""Where octavo.prepare(fsdp_gather="fp8") is refused, and where values are gathered all the same: on one rank."""
import copy
import json

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

import octavo
from conftest import msamp, session, te
from fsdp_mesh_ranks import Attention, Tied
from fsdp_refusals_test import X, adamw, is_plain, mesh, step  # noqa: F401 (a fixture)
from guide_parts import mlp


def prepared(overrides=None, model=None, **options):
    model = model or mlp(32, 64, 16)
    octavo.prepare(model, overrides=overrides or te(), fsdp_gather="fp8", **options)
    return model


def test_another_word():
    with pytest.raises(octavo.InvalidError, match='gather: expected "values" or "fp8", found \'fp4\''):
        octavo.prepare(mlp(32, 64, 16), overrides=te(), fsdp_gather="fp4")


@pytest.mark.parametrize("overrides, says", [
    (msamp("O1"), "found msamp: .*octavo.shard/1: the backend has none"),
    (te(telemetry=True), "found te: .*expected a cast without telemetry"),
    (te("rowwise"), "found te: .*expected one scale or one for each block, found scales of rows"),
    (te(override_linear_precision="dgrad"), "found te: .*reads the weight itself")])
def test_a_backend_or_options_without_codes_of_shards(overrides, says):
    model = mlp(32, 64, 16)
    with pytest.raises(octavo.UnsupportedError, match=says + '.*set fsdp_gather="values"'):
        prepared(overrides, model)
    assert is_plain(model)


def test_a_model_that_has_run_since_fully_shard(mesh):  # noqa: F811
    model = mlp(32, 64, 16)
    fully_shard(model, mesh=mesh)
    step(model, adamw(model))
    with pytest.raises(octavo.StateError, match="has not run since fully_shard.*before its first forward"):
        prepared(model=model)
    assert is_plain(model)
    step(model, adamw(model))
    octavo.prepare(model, overrides=te())
    step(model, adamw(model))


def test_an_evaluation_in_the_hosts_precision(mesh):  # noqa: F811
    model = prepared()
    fully_shard(model, mesh=mesh)
    step(model, adamw(model))
    model.eval()
    with torch.no_grad(), pytest.raises(octavo.UnsupportedError, match="use_autocast_during_eval = true"):
        model(X)


def test_a_weight_that_is_still_gathered_when_scales_change(mesh):  # noqa: F811
    model = prepared()
    fully_shard(model, mesh=mesh)
    with torch.no_grad():
        y = model(X)
    octavo.refresh(model)
    model.reshard()
    with torch.no_grad():
        assert torch.equal(model(X), y)
    octavo.refresh(model)
    with pytest.raises(octavo.StateError, match="0.weight: expected codes that were gathered since.*reshard"):
        model(X)


def layers(model):
    assert json.loads(octavo.report(model, "json"))["gather"] == session(model).gather.layers()
    return session(model).gather.layers()


def test_weights_whose_values_are_gathered(mesh):  # noqa: F811
    tied = prepared(model=Tied())
    attention = prepared(model=Attention())
    columns = prepared()
    for model in (tied, attention):
        fully_shard(model, mesh=mesh)
    fully_shard(columns, mesh=mesh, shard_placement_fn=lambda p: Shard(1) if p.dim() == 2 else None)
    assert layers(tied) == {"embedding.weight": "values: embedding reads them", "middle.weight": "codes"}
    assert layers(attention) == {
        **{f"attention.in_proj_weight.{part}": "values: it is not a single matrix [out, in]" for part in "qkv"},
        "attention.out_proj.weight": "codes", "head.weight": "codes"}
    assert layers(columns) == {f"{i}.weight": "values: its rows are not sharded, found placement S(1)" for i in (0, 2)}
    assert ("gathered by fully_shard\n  middle.weight: codes\n  embedding.weight: values: embedding reads them\n"
            in octavo.report(tied))
    step(columns, adamw(columns))


def test_copies_and_stages_before_fully_shard_keep_the_choice(mesh):  # noqa: F811
    model = prepared(model=Tied())
    again, _ = octavo.prepare(copy.deepcopy(model))
    back, _ = octavo.prepare(copy.deepcopy(model), fsdp_gather="values")
    for each in (copy.deepcopy(model), again):
        fully_shard(each, mesh=mesh)
        assert layers(each) == {"embedding.weight": "values: embedding reads them", "middle.weight": "codes"}
    fully_shard(back, mesh=mesh)
    assert session(back).gather is None
    assert "gathered by" not in octavo.report(back)
