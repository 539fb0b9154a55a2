"""Usage patterns: checkpoints, copies and pickles."""
import copy
import io
import pickle

import torch
from torch import nn

import octavo
from conftest import kind, session
from patterns import (PLAIN, adamw, batch, error, is_prepared, learn, near, network, pattern,
                      plain_output, same, start, values)
from patterns_averages import close

AREA = "Checkpoints and copies"
CLASSES = [nn.Sequential, nn.Linear, nn.GELU]


def trained(prepare, steps=5):
    model, optimizer = start(prepare)
    learn(model, optimizer, steps)
    optimizer.zero_grad()
    return model, optimizer


def through_file(value, **arguments):
    """torch.save, torch.load."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **arguments)


@pattern(AREA, "copy.deepcopy(model): the copy is independent")
def deep_copy(prepare):
    model, optimizer = trained(prepare)
    twin, x = copy.deepcopy(model), batch()[0]
    before = values(twin)
    with torch.no_grad():
        assert torch.equal(twin(x), model(x))
    learn(model, optimizer, 3)
    same(values(twin), before)
    other = adamw(twin)
    losses = learn(twin, other, 10)
    assert losses[-1] < 0.9 * losses[0]


@pattern(AREA, "copy.deepcopy((model, optimizer)): both go on with the same bits")
def deep_pair(prepare):
    model, optimizer = trained(prepare)
    twin, other = copy.deepcopy((model, optimizer))
    assert learn(twin, other, 5) == learn(model, optimizer, 5)
    same(values(twin), values(model))


@pattern(AREA, "state_dict() of a prepared model, loaded strictly into a plain one")
def to_plain(prepare):
    model, _ = trained(prepare)
    plain = network()
    assert str(plain.load_state_dict(through_file(model.state_dict(), weights_only=True))) == (
        "<All keys matched successfully>")
    same(values(plain), values(model))
    x = batch()[0]
    with torch.no_grad():
        near(model(x), plain(x))


@pattern(AREA, "state_dict() of a plain model, loaded into a prepared one")
def from_plain(prepare):
    plain, optimizer = start(PLAIN)
    learn(plain, optimizer)
    model, _ = start(prepare)
    model.load_state_dict(plain.state_dict())
    close(values(model), values(plain), writes=1)
    assert abs(error(model).item() - error(plain).item()) < 0.05


@pattern(AREA, "load_state_dict(assign=True)")
def assigned(prepare):
    plain, optimizer = start(PLAIN)
    learn(plain, optimizer)
    model, _ = start(prepare, optimizer=None)
    model.load_state_dict(values(plain), assign=True)
    with torch.no_grad():
        near(model(batch()[0]), plain(batch()[0]))


@pattern(AREA, "a checkpoint in bfloat16, loaded with strict=False and a layer missing")
def bfloat16(prepare):
    model, _ = start(prepare)
    before = values(model)
    state = {k: (v + 0.1).bfloat16() for k, v in before.items() if k.startswith("0.")}
    assert model.load_state_dict(state, strict=False).missing_keys == ["2.weight", "2.bias"]
    close(values(model), {**before, **{k: v.float() for k, v in state.items()}}, writes=1)


@pattern(AREA, "resume: model, optimizer and octavo.state_dict in files")
def resume(prepare):
    model, optimizer = trained(prepare)
    saved = [through_file(s, weights_only=True) for s in (
        model.state_dict(), optimizer.state_dict(), octavo.state_dict(model))]
    twin, other = start(prepare)
    twin.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    octavo.load_state_dict(twin, saved[2])
    assert learn(twin, other, 5) == learn(model, optimizer, 5)
    same(values(twin), values(model))


@pattern(AREA, "resume without octavo.state_dict")
def partial_resume(prepare):
    model, optimizer = trained(prepare, 10)
    twin, other = start(prepare)
    twin.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    expected, found = learn(model, optimizer, 10), learn(twin, other, 10)
    # te finds its scales anew; the moments of msamp are in what was left out, so Adam warms up.
    assert abs(found[0] - expected[0]) < 0.05 * expected[0] and found[-1] < found[0]


@pattern(AREA, "a whole model through torch.save, weights_only=False")
def whole(prepare):
    model, _ = trained(prepare)
    loaded, x = through_file(model, weights_only=False), batch()[0]
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))
    losses = learn(loaded, adamw(loaded), 10)
    assert losses[-1] < 0.9 * losses[0]


@pattern(AREA, "a whole model through torch.save, weights_only=True and safe_globals")
def whole_safely(prepare):
    model, _ = trained(prepare)
    with torch.serialization.safe_globals(CLASSES):
        loaded = through_file(model, weights_only=True)
    with torch.no_grad():
        assert torch.equal(loaded(batch()[0]), model(batch()[0]))


@pattern(AREA, "pickle of model and optimizer together")
def pickled(prepare):
    model, optimizer = trained(prepare)
    twin, other = pickle.loads(pickle.dumps((model, optimizer)))
    assert learn(twin, other, 5) == learn(model, optimizer, 5)


@pattern(AREA, "octavo.restore, then the plain model goes on")
def restored(prepare):
    model, _ = trained(prepare)
    before = values(model)
    octavo.restore(model)
    same(values(model), before)
    assert type(model[0]) is nn.Linear and type(model[0].weight) is nn.Parameter
    losses = learn(model, adamw(model), 10)
    assert losses[-1] < losses[0] and not is_prepared(model)


@pattern(AREA, "a model made on the meta device, materialized and loaded before octavo.prepare")
def meta(prepare):
    with torch.device("meta"):
        model = network()
    model = model.to_empty(device=kind())
    model.load_state_dict(network().state_dict())
    model, optimizer = prepare(model, adamw(model))
    assert learn(model, optimizer) == learn(*start(prepare))


@pattern(AREA, "a bf16 copy for inference: copy.deepcopy(model).bfloat16()")
def inference_copy(prepare):
    model, _ = trained(prepare)
    served, x = copy.deepcopy(model).bfloat16(), batch()[0]
    with torch.no_grad():
        near(served(x.bfloat16()).float(), plain_output(model, x))


@pattern(AREA, "a plain bf16 copy for inference: octavo.restore of a copy, then .bfloat16()")
def restored_copy(prepare):
    model, _ = trained(prepare)
    served, x = octavo.restore(copy.deepcopy(model)).bfloat16(), batch()[0]
    with torch.no_grad():
        # bf16 has 8 bits: 2^-9 in each of a few roundings
        near(served(x.bfloat16()).float(), plain_output(model, x), 0.02)
    assert session(model) and type(served[0]) is nn.Linear
