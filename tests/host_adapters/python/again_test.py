"""octavo.prepare for the next stage, octavo.restore, and copies of model and optimizer together."""
import copy
import io
import json
import warnings

import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te
from guide_parts import assert_same, mlp

BACKENDS = {"te": te("delayed", amax_history_len=4), "msamp": msamp("O2"), "msamp-O3": msamp("O3")}
each = pytest.mark.parametrize("overrides", BACKENDS.values(), ids=BACKENDS)


def made(overrides, lr=1e-2):
    torch.manual_seed(3)
    model = mlp(32, 64, 16)
    adam = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    return octavo.prepare(model, adam, overrides=overrides)


def train(model, optimizer, steps=4, scale=1.0):
    generator = torch.Generator().manual_seed(4)
    x, target = torch.randn(64, 32, generator=generator), torch.randn(64, 16, generator=generator)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(scale * x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def values(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


@each
def test_preparing_again_without_a_change_changes_nothing(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    reference, stepper = copy.deepcopy((model, optimizer))
    weights, state = values(model), octavo.state_dict(model)
    again, same = octavo.prepare(model, optimizer)
    assert again is model and same is optimizer
    assert_same(octavo.state_dict(model), state)
    assert_same(values(model), weights)
    assert train(model, optimizer) == train(reference, stepper)


@each
def test_without_an_optimizer_the_one_of_before_goes_on(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    reference, stepper = copy.deepcopy((model, optimizer))
    octavo.prepare(model)
    assert train(model, optimizer) == train(reference, stepper)


@each
def test_the_optimizer_of_a_copy_goes_on_as_well(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    twin, stepper = copy.deepcopy((model, optimizer))
    octavo.prepare(twin)
    assert train(twin, stepper) == train(model, optimizer)


@each
def test_second_stage_has_new_moments_and_the_scales_of_before(overrides):
    model, first = made(overrides)
    train(model, first)
    state = octavo.state_dict(model)
    new = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    model, second = octavo.prepare(model, new)
    assert (second is new) == (overrides is BACKENDS["te"])
    found = octavo.state_dict(model)
    for key, value in state.items():
        if "exp_avg" in key or key.endswith("/step"):
            assert not torch.as_tensor(found[key].view(torch.uint8) if "scale" not in key else 0).any()
        elif key.startswith(("session/", "linear/")):
            assert torch.equal(found[key].view(torch.uint8), value.view(torch.uint8)), key
    losses = train(model, second, steps=8)
    assert losses[-1] < losses[0]
    if second is not new:
        with pytest.raises(octavo.StateError, match="another optimizer"):
            train(model, first)


@each
def test_another_configuration_and_another_backend(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    before = values(model)
    model, _ = octavo.prepare(model, None, overrides=te("block"))
    assert_same(values(model), before)
    assert "block" in octavo.report(model)
    new = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    model, optimizer = octavo.prepare(model, new, overrides=msamp("O1"))
    assert session(model).run.backend == "msamp"
    losses = train(model, optimizer, steps=8)
    assert losses[-1] < losses[0]


@each
def test_unfreezing(overrides):
    torch.manual_seed(3)
    model = mlp(32, 64, 16)
    model[0].requires_grad_(False)
    model, _ = octavo.prepare(model, torch.optim.AdamW(model[2].parameters(), weight_decay=0.0),
                              overrides=overrides)
    model.requires_grad_(True)
    with pytest.raises(octavo.StateError, match="call octavo.prepare again"):
        model(torch.randn(4, 32)).sum().backward()
    frozen = model[0].weight.detach().clone()
    new = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    model, optimizer = octavo.prepare(model, new)
    losses = train(model, optimizer, steps=8)
    assert losses[-1] < losses[0] and not torch.equal(model[0].weight, frozen)


@each
def test_layers_that_come_and_go(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    model.append(nn.GELU()).append(nn.Linear(16, 16))
    model[0] = nn.Linear(32, 64)
    new = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    model, optimizer = octavo.prepare(model, new)
    assert sorted(session(model).sites) == ["0", "2", "4"]
    losses = train(model, optimizer, steps=8)
    assert losses[-1] < losses[0]


@each
def test_a_layer_that_took_the_place_of_another_keeps_its_values(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    model[2] = nn.Linear(64, 16)
    with torch.no_grad():
        model[2].weight.fill_(0.25), model[2].bias.fill_(0.5)
    octavo.prepare(model, torch.optim.AdamW(model.parameters(), weight_decay=0.0))
    assert (model[2].weight == 0.25).all() and (model[2].bias == 0.5).all()


def test_an_optimizer_that_the_glue_joins_later_has_new_moments():
    """As a second fit of Lightning does, which makes its optimizers anew."""
    from octavo.torch import optimizer as optimizers
    model, optimizer = made(msamp("O2"))
    train(model, optimizer)
    s = session(model)
    steps = [t for d, t in zip(s.slots, s.tensors) if d.name == "step"]
    assert {int(t.flatten()[0]) for t in steps} == {4}
    new = optimizers.joined(s, torch.optim.AdamW(model.parameters(), weight_decay=0.0))
    assert not any(t.any() for t in steps)
    train(model, new, steps=2)
    assert {int(t.flatten()[0]) for t in steps} == {2}


@each
def test_failure_leaves_everything_as_it_was(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    reference, stepper = copy.deepcopy((model, optimizer))
    for bad in ({"overrides": {"fp8.backend": "nobody"}}, {"module_filter": lambda m, name: False}):
        with pytest.raises(octavo.OctavoError):
            octavo.prepare(model, optimizer, **bad)
    assert_same(octavo.state_dict(model), octavo.state_dict(reference))
    assert train(model, optimizer) == train(reference, stepper)


@each
def test_restore_gives_the_plain_model_with_the_values(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    expected, parameters = values(model), list(model.parameters())
    assert octavo.restore(model) is model
    assert {type(m) for m in model.modules()} == {nn.Sequential, nn.Linear, nn.GELU}
    assert all(type(p) is nn.Parameter for p in model.parameters())
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    assert_same(values(model), expected)
    assert not any(n.startswith("octavo") for m in model.modules() for n in m.__dict__)
    losses = train(model, torch.optim.AdamW(model.parameters(), lr=1e-2), steps=8)
    assert losses[-1] < losses[0]
    with pytest.raises(octavo.StateError, match="prepared"):
        octavo.report(model)
    octavo.prepare(model, overrides=overrides)


def test_restore_keeps_gradients_and_what_the_user_set():
    model, optimizer = made(msamp("O2"))
    nn.functional.mse_loss(model(torch.randn(8, 32)), torch.zeros(8, 16)).backward()
    model[0].note, expected = "mine", model[0].weight.grad.plain()
    octavo.restore(model)
    assert model[0].note == "mine" and torch.equal(model[0].weight.grad, expected)


def test_restore_of_attention_and_encoder_layers():
    torch.manual_seed(1)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 1)
    kinds = [type(m) for m in model.modules()]
    octavo.prepare(model, overrides=te("current"))
    octavo.restore(model)
    assert [type(m) for m in model.modules()] == kinds
    assert model.layers[0].activation_relu_or_gelu == 1 and model.use_nested_tensor is True


def test_what_cannot_be_restored_is_said():
    for bad in (nn.Linear(2, 2), 3, nn.Sequential(made(te())[0])):
        with pytest.raises(octavo.StateError, match="expected the model that octavo.prepare"):
            octavo.restore(bad)


@each
def test_copy_of_model_and_optimizer_trains_on_its_own(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    twin, stepper = copy.deepcopy((model, optimizer))
    before = values(model)
    found = train(twin, stepper)
    assert_same(values(model), before)
    assert train(model, optimizer) == found


@each
def test_whole_models_load_with_weights_only(overrides):
    model, optimizer = made(overrides)
    train(model, optimizer)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with torch.serialization.safe_globals([nn.Sequential, nn.Linear, nn.GELU]):
        loaded = torch.load(file, weights_only=True)
    x = torch.randn(4, 32)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


def test_whole_models_of_other_classes_load_with_weights_only():
    from discover_test import Named
    model, _ = octavo.prepare(nn.ModuleList([Named(16, 16), nn.MultiheadAttention(16, 2)]),
                              overrides=te())
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    plain = [nn.ModuleList, Named, nn.MultiheadAttention,
             nn.modules.linear.NonDynamicallyQuantizableLinear]
    with torch.serialization.safe_globals(plain):
        loaded = torch.load(file, weights_only=True)
    assert [type(m) for m in loaded.modules()] == [type(m) for m in model.modules()]


def test_report_names_layers_that_never_ran():
    model, optimizer = made(te())
    assert "never ran" not in octavo.report(model)
    assert json.loads(octavo.report(model, "json"))["never_ran"] == ["0", "2"]
    model[0](torch.randn(4, 32))
    assert "never ran  1 of 2 FP8 layers: 2" in octavo.report(model)
    train(model, optimizer, steps=1)
    assert "never ran" not in octavo.report(model)
    assert json.loads(octavo.report(model, "json"))["never_ran"] == []


def _in_eval_mode(model):
    model[0].eval()


def _with_another_forward(model):
    model[0].forward = lambda x: x @ model[0].weight.t() + model[0].bias


def _by_its_weight(model):
    first = model[0]
    first.__class__ = type("Around", (type(first),), {
        "forward": lambda self, x: nn.functional.linear(x, self.weight, self.bias)})


@pytest.mark.parametrize("left, reason", [(_in_eval_mode, "it is in eval mode.*call train"),
                                          (_with_another_forward, "its forward was replaced"),
                                          (_by_its_weight, "nothing called it")])
def test_a_layer_in_fp8_that_made_no_fp8_call_is_named_after_the_first_step(left, reason):
    model, optimizer = made(te())
    left(model)
    with pytest.warns(UserWarning, match=f"1 of 2 layers .*made no FP8 call.*0: {reason}"):
        train(model, optimizer, steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, steps=2)


def test_a_model_without_any_fp8_call_is_named_after_the_second_step():
    """The first one may have been made to allocate an optimizer's state."""
    model, optimizer = made(te())
    model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, steps=1)
    with pytest.warns(UserWarning, match="2 of 2 layers"):
        train(model, optimizer, steps=1)


def test_layers_that_wait_for_their_own_optimizer_are_not_named():
    model, _ = octavo.prepare(nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)]), overrides=te())
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for part, optimizer in zip(model, optimizers):
            part(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
