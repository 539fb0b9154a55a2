"""Scales advance once a step, whoever steps an optimizer: the states of docs/architecture.md, edge by edge."""
import copy

import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te
from coupling_parts import backward, batch, boundaries, call_of, each, plain, prepared
from guide_parts import assert_same, mlp, slots


def made_after_prepare(overrides):
    model, _ = prepared(overrides, optimizer=False)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def second_stage(overrides):
    model, first = prepared(overrides)
    for _ in range(3):
        first.zero_grad()
        backward(model)
        first.step()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def copies(overrides):
    return copy.deepcopy(prepared(overrides))


def without(overrides):
    model, _ = prepared(overrides, optimizer=False)

    class Manual:
        def zero_grad(self):
            for p in model.parameters():
                p.grad = None

        def step(self):
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=1e-3)

    return model, Manual()


@each
@pytest.mark.parametrize("loop", [made_after_prepare, second_stage, copies, without])
def test_scales_follow_inputs_that_grow(overrides, loop):
    """Inputs 30 times larger: with frozen scales, they saturate and the loss is another one."""
    model, optimizer = loop(overrides)
    before = boundaries(model)
    for _ in range(6):
        optimizer.zero_grad()
        loss = backward(model, scale=30.0)
        optimizer.step()
    assert boundaries(model) - before >= 5
    reference = plain()
    reference.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
    with torch.no_grad():
        x, target = batch(30.0)
        expected = nn.functional.mse_loss(reference(x), target).item()
        found = nn.functional.mse_loss(model(x), target).item()
    # Two casts to E4M3 a product, whose relative errors are 2^-4 at most and random over 32 terms
    assert found == pytest.approx(expected, rel=0.05)
    assert loss > 1.0


def test_an_optimizer_of_master_weights_that_are_copied_back():
    """As DeepSpeed's ZeRO: the inner optimizer steps copies in float32; after its step, their owner
    writes the model's weights through .data, which leaves no trace."""
    model = plain().bfloat16()
    model, _ = octavo.prepare(model, overrides=te())
    masters = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    inner = torch.optim.SGD(masters, lr=0.1)
    x = batch()[0].bfloat16()
    for step in range(4):
        model(x).square().mean().backward()
        for master, p in zip(masters, model.parameters()):
            master.grad, p.grad = p.grad.float(), None
        inner.step()
        for master, p in zip(masters, model.parameters()):
            p.data.copy_(master.data)
        with torch.no_grad():
            found = model(x)
            octavo.refresh(model)
            assert torch.equal(found, model(x)), step
        assert boundaries(model) == step + 1  # the first forward after the write


@each
def test_one_boundary_a_step(overrides):
    """Accumulation, several forwards and evaluation in between: one boundary, at the step."""
    model, optimizer = prepared(overrides)
    for step in range(3):
        optimizer.zero_grad()
        for _ in range(3):
            backward(model)
            model.eval()
            with torch.no_grad():
                model(batch()[0])
            model.train()
        assert boundaries(model) == step
        optimizer.step()
        assert boundaries(model) == step + 1


def test_two_optimizers_of_one_step_are_one_boundary():
    model, _ = prepared(te(), optimizer=False)
    halves = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2])]
    for step in range(3):
        backward(model)
        for optimizer in halves:
            optimizer.step()
            optimizer.zero_grad()
        assert boundaries(model) == step + 1


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adafactor])
def test_a_step_that_met_inf_is_left_out_by_every_optimizer_of_it(kind):
    model, _ = prepared(te(), optimizer=False)
    halves = [kind(part.parameters(), lr=0.1) for part in (model[0], model[2])]
    before = [p.clone() for p in model.parameters()]
    (model(batch()[0]) * float("inf")).sum().backward()
    for optimizer in halves:
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert session(model).skipped_steps == 1
    for optimizer in halves:
        optimizer.zero_grad()
    backward(model)
    for optimizer in halves:
        optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters()))


@each
def test_nothing_advances_without_a_forward(overrides):
    model, optimizer = prepared(overrides)
    backward(model)
    optimizer.step()
    optimizer.zero_grad()
    before, count = slots(model), boundaries(model)
    optimizer.step()
    octavo.step(model)
    model.eval()
    with torch.no_grad():
        model(batch()[0])
    model.train()
    optimizer.step()
    assert boundaries(model) == count
    after = slots(model)
    for key in before:
        if "weight" not in key[2] and "w/" not in key[2]:  # codes follow the new scales
            assert torch.equal(before[key], after[key]), key


def test_explicit_step_is_a_boundary():
    model, _ = prepared(te(), optimizer=False)
    model.eval()
    with torch.no_grad():
        model(batch()[0])
    octavo.step(model)
    assert boundaries(model) == 0  # nothing was recorded
    model.train()
    model(batch()[0])
    octavo.step(model)
    assert boundaries(model) == 1


def test_frozen_layers_adapt_to_their_inputs():
    """No gradient reaches the first layer, and its inputs are large: the scale follows."""
    model = plain()
    model[0].requires_grad_(False)
    model, optimizer = octavo.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3),
                                      overrides=te("delayed"))
    for _ in range(3):
        backward(model, scale=3000.0)
        optimizer.step()
        optimizer.zero_grad()
    x = batch(3000.0)[0]
    with torch.no_grad():
        expected = nn.functional.linear(x, model[0].weight, model[0].bias)
        assert (model[0](x) - expected).norm() < 0.1 * expected.norm()


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_activations_are_no_second_step(reentrant):
    model, optimizer = prepared(te())
    x = batch()[0].requires_grad_()
    for step in range(2):
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        optimizer.step()
        assert boundaries(model) == step + 1


@each
def test_sam(overrides):
    """Sharpness-aware minimization: weights move between the two forwards of one step."""
    model, optimizer = prepared(overrides)
    losses = []
    for _ in range(20):
        losses.append(backward(model))
        with torch.no_grad():
            old = [p.data.clone() for p in model.parameters()]
            for p in model.parameters():
                p.add_(p.grad, alpha=0.01)
        optimizer.zero_grad()
        climbed = backward(model)
        assert climbed != losses[-1]
        for p, values in zip(model.parameters(), old):
            p.data = values
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0]


def test_lbfgs():
    model, _ = prepared(te("current"), optimizer=False)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)

    def closure():
        optimizer.zero_grad()
        x, target = batch()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        return loss

    first = closure().item()
    for _ in range(3):
        optimizer.step(closure)
    assert closure().item() < first


@each
def test_saving_by_distributed_checkpoint_changes_nothing(overrides):
    dcp = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    model, optimizer = prepared(overrides)
    backward(model)
    optimizer.step()
    optimizer.zero_grad()
    before, count = octavo.state_dict(model), boundaries(model)
    for _ in range(2):
        dcp.get_state_dict(model, optimizer)
    assert boundaries(model) == count
    assert_same(octavo.state_dict(model), before)
    assert optimizer.param_groups[0]["lr"] == 1e-2


@pytest.mark.parametrize("mode", ["eager", "aot_eager"])
def test_generator_and_discriminator_take_turns(mode):
    torch.manual_seed(5)
    models, steppers, calls = [], [], []
    for _ in range(2):
        model = mlp(16, 32, 16)
        model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters()),
                                          overrides=te())
        models.append(model)
        steppers.append(optimizer)
        calls.append(call_of(model, mode))
    x = torch.randn(8, 16)
    for step in range(3):
        for turn in (0, 1):
            for p in models[1 - turn].parameters():
                p.requires_grad_(False)
            calls[1](calls[0](x)).square().mean().backward()
            steppers[turn].step()
            steppers[turn].zero_grad()
            for p in models[1 - turn].parameters():
                p.requires_grad_(True)
        assert [boundaries(m) >= step + 1 for m in models] == [True, True]


def test_compiled_step_has_one_graph_and_the_bits_of_eager():
    results = []
    for mode in ("eager", "aot_eager"):
        model, optimizer = prepared(te())
        call = call_of(model, mode)
        for _ in range(3):
            backward(call)
            optimizer.step()
            optimizer.zero_grad()
        results.append(slots(model))
    assert_same(*results)


@each
@pytest.mark.parametrize("mode", ["eager", "aot_eager"])
def test_a_branch_that_starts_later_in_a_step_is_no_boundary(overrides, mode):
    """An expert without tokens in the first part of a batch; the last step moved its weight."""
    model, optimizer = prepared(overrides)
    whole, first = call_of(model, mode), model[0]
    backward(whole)
    optimizer.step()
    optimizer.zero_grad()
    count = boundaries(model)
    first(batch()[0]).square().mean().backward()
    backward(whole)
    assert boundaries(model) == count
    optimizer.step()
    assert boundaries(model) == count + 1


GUARDS = {
    "loss": lambda loss, model: torch.isfinite(loss),
    "norm": lambda loss, model: torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)),
    "gradients": lambda loss, model: all(bool(torch.isfinite(p.grad).all()) for p in model.parameters()),
}


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("recipe, where", [
    *((recipe, where) for recipe in ("delayed", "current", "block", "mx", "rowwise") for where in ("x", "target", "weight")),
    ("msamp", "x"), ("msamp", "target")])  # whose weights are FP8, which has no Inf
def test_a_programs_own_guard_leaves_out_the_steps_that_it_does_on_plain_torch(recipe, where, guard):
    """Casts hide Inf. Results show it as torch's do, and what the program drops is dropped."""
    def steps(backend):
        model = plain()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        if backend is not None:
            model, optimizer = octavo.prepare(model, optimizer, overrides=backend)
        found = []
        for i in range(6):
            x, target = batch()
            before = model[0].weight.detach().clone()
            if i in (2, 3):
                if where == "weight":
                    with torch.no_grad():
                        model[0].weight[3, 5] = float("inf")
                (x if where == "x" else target)[0, 0] = float("nan" if where == "target" else "inf")
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), target)
            if guard != "loss":
                loss.backward()
            if not GUARDS[guard](loss, model):
                with torch.no_grad():
                    model[0].weight.copy_(before)
                continue
            if guard == "loss":
                loss.backward()
            optimizer.step()
            found.append((i, bool((model[0].weight != before).any())))
        return found

    overrides = msamp("O2") if recipe == "msamp" else te(recipe)
    assert steps(None) == [(0, True), (1, True), (4, True), (5, True)]
    assert steps(overrides) == steps(None)


def test_inf_in_a_row_of_x_is_nan_in_that_row_of_y_alone():
    model, _ = octavo.prepare(nn.Linear(32, 16), overrides=te("current"))
    x = torch.randn(4, 32)
    x[2, 5] = float("-inf")
    y = model(x)
    assert [bool(torch.isfinite(row).all()) for row in y] == [True, True, False, True]
    assert bool(torch.isnan(y[2]).all())
