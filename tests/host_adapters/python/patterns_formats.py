"""Usage patterns: checkpoints of safetensors and of torch.distributed.checkpoint (DCP)."""
import copy
import tempfile

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import octavo
from patterns import batch, learn, network, pattern, same, start, values
from patterns_averages import close
from patterns_copies import AREA, trained


@pattern(AREA, "safetensors: save_model and load_model")
def safetensors_model(prepare):
    model, _ = trained(prepare)
    with tempfile.TemporaryDirectory() as folder:
        safetensors.torch.save_model(model, f"{folder}/model.safetensors")
        plain, (other, _) = network(), start(prepare)
        for target in (plain, other):
            missing, unexpected = safetensors.torch.load_model(
                target, f"{folder}/model.safetensors")
            assert not missing and not unexpected
    same(values(plain), values(model))
    close(values(other), values(model), writes=1)


@pattern(AREA, "safetensors: save_file(state_dict) and octavo.state_dict")
def safetensors_files(prepare):
    model, optimizer = trained(prepare)
    with tempfile.TemporaryDirectory() as folder:
        for name, state in (("a", model.state_dict()), ("b", octavo.state_dict(model))):
            safetensors.torch.save_file(state, f"{folder}/{name}")
        twin, _ = start(prepare)
        twin.load_state_dict(safetensors.torch.load_file(f"{folder}/a"))
        octavo.load_state_dict(twin, safetensors.torch.load_file(f"{folder}/b"))
    with torch.no_grad():
        assert torch.equal(twin(batch()[0]), model(batch()[0]))


@pattern(AREA, "DCP: get_state_dict and set_state_dict")
def dcp_state(prepare):
    model, optimizer = trained(prepare)
    before = values(model)
    state, groups = get_state_dict(model, optimizer)
    same(values(model), before)
    twin, other = start(prepare)
    set_state_dict(twin, other, model_state_dict=copy.deepcopy(state),
                   optim_state_dict=copy.deepcopy(groups))
    close(values(twin), before, writes=1)
    losses = learn(twin, other, 10)
    assert losses[-1] < losses[0]


@pattern(AREA, "DCP: save and load, with octavo.state_dict")
def dcp_files(prepare):
    model, optimizer = trained(prepare)
    twin, other = start(prepare)
    with tempfile.TemporaryDirectory() as folder:
        dcp.save({"model": model.state_dict(), "fp8": octavo.state_dict(model)},
                 checkpoint_id=folder)
        state = {"model": twin.state_dict(), "fp8": octavo.state_dict(twin)}
        dcp.load(state, checkpoint_id=folder)
    twin.load_state_dict(state["model"])
    octavo.load_state_dict(twin, state["fp8"])
    with torch.no_grad():
        assert torch.equal(twin(batch()[0]), model(batch()[0]))
