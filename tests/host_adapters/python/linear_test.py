"""octavo.prepare on plain linear layers."""
import pytest
import torch
from torch import nn

import octavo
from conftest import session, te
from octavo import _abi
from octavo.torch import ops

RECIPES = ["delayed", "current", "block", "mx", "nvfp4", "rowwise"]


def model_of(*sizes, dtype=torch.float32):
    layers = []
    for k, n in zip(sizes, sizes[1:]):
        layers += [nn.Linear(k, n, dtype=dtype), nn.GELU()]
    return nn.Sequential(*layers[:-1])


def train(model, optimizer, steps=8, rows=20, inputs=32, classes=10):
    losses = []
    generator = torch.Generator().manual_seed(1)
    for i in range(steps):
        x = torch.randn(rows + i, inputs, generator=generator)
        target = torch.randint(0, classes, (rows + i,), generator=generator)
        loss = nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("recipe", RECIPES)
def test_training_runs_every_linear_in_fp8(recipe):
    model = model_of(32, 64, 10)
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), None,
                                      overrides=te(recipe))
    x = torch.randn(64, 32)
    target = torch.randint(0, 10, (64,))
    first = nn.functional.cross_entropy(model(x), target).item()
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3 * first
    number = session(model).number
    assert ops.calls(number, _abi.VERB_FORWARD) == 2 * 31
    assert ops.calls(number, _abi.VERB_BACKWARD) == 2 * 30
    assert ops.calls(number, _abi.VERB_END_STEP) == 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_output_has_the_dtype_of_the_input(dtype):
    model, _ = octavo.prepare(model_of(16, 8, dtype=dtype), None, overrides=te())
    assert model(torch.randn(3, 16, dtype=dtype)).dtype == dtype


def test_modules_stay_what_scripts_look_for():
    model = model_of(16, 8, 4)
    names = [n for n, _ in model.named_parameters()]
    parameters = list(model.parameters())
    model, _ = octavo.prepare(model, None, overrides=te())
    assert isinstance(model[0], nn.Linear) and model[0].weight.shape == (8, 16)
    assert [n for n, _ in model.named_parameters()] == names
    assert all(a is b for a, b in zip(parameters, model.parameters()))


def test_weight_changed_by_hand_is_quantized_again():
    model, _ = octavo.prepare(nn.Linear(16, 8, bias=False), None, overrides=te("current"))
    x = torch.randn(4, 16)
    with torch.no_grad():
        before = model(x)
        model.weight.mul_(2)
        assert torch.equal(model(x), 2 * before)


def test_replaced_parameter_is_the_weight_from_then_on():
    model, _ = octavo.prepare(nn.Linear(16, 8, bias=False), None, overrides=te("current"))
    x = torch.randn(2, 16)
    model.weight = nn.Parameter(torch.eye(8, 16))
    model(x).sum().backward()
    assert model.weight.grad is not None
    # E4M3 keeps 4 bits, the identity needs fewer: half a unit in the last place is 2^-4 of a value
    assert torch.allclose(model(x), x[:, :8], rtol=2**-4, atol=2**-9)


@pytest.mark.parametrize("new", [torch.zeros(8, 15), torch.zeros(8, 16).double()])
def test_parameter_of_another_shape_is_an_error(new):
    model, _ = octavo.prepare(nn.Linear(16, 8), None, overrides=te())
    model.weight = nn.Parameter(new)
    with pytest.raises(octavo.StateError, match="^weight: expected .*call octavo.prepare"):
        model(torch.randn(2, 16))


@pytest.mark.parametrize("notice", [octavo.refresh, nn.Module.eval])
def test_values_written_through_data_count_after_a_refresh(notice):
    model, _ = octavo.prepare(nn.Linear(16, 8, bias=False), None, overrides=te("current"), detect_writes=False)
    x = torch.randn(4, 16)
    with torch.no_grad():
        model.train()
        before = model(x)
        model.weight.data.mul_(2)
        assert torch.equal(model(x), before)
        notice(model)
        model.training = True
        assert torch.equal(model(x), 2 * before)


def test_moved_model_is_an_error_with_the_remedy():
    model, _ = octavo.prepare(nn.Linear(16, 8), None, overrides=te("delayed"))
    with pytest.raises(octavo.InvalidError, match="moved or cast after octavo.prepare"):
        model.bfloat16()(torch.randn(2, 16, dtype=torch.bfloat16))


def test_wrong_input_is_an_error():
    model, _ = octavo.prepare(nn.Linear(16, 8), None, overrides=te())
    with pytest.raises(octavo.InvalidError, match="last dimension of 16.*found .* 15"):
        model(torch.randn(2, 15))
    with pytest.raises(octavo.InvalidError, match="found torch.float64"):
        model(torch.randn(2, 16, dtype=torch.float64))


def test_second_derivative_is_refused():
    model, _ = octavo.prepare(nn.Linear(16, 8), None, overrides=te())
    x = torch.randn(2, 16, requires_grad=True)
    gradient, = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    with pytest.raises(octavo.UnsupportedError, match="first derivatives only"):
        gradient.sum().backward()


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_torchs_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model, _ = octavo.prepare(model_of(256, 256), None, overrides=te("current"))
        x = torch.randn(512, 256)
        y = model(x)
        y.square().sum().backward()
    finally:
        torch.set_num_threads(before)
    digest = (y.double().sum().item(), model[0].weight.grad.double().sum().item())
    assert digest == test_results_do_not_depend_on_torchs_threads.__dict__.setdefault("first", digest)
