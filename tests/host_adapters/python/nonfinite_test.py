"""Inf and NaN in what casts read: in x, in a weight and in dy. A saturating cast hides them from torch,
where the plain model's loss and gradients would not be finite: the step changes nothing and is counted."""
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import octavo
from conftest import kind, msamp, session, te
from guide_parts import slot, weights
from octavo.torch.steps import StepState

RECIPES = ["delayed", "current", "block", "rowwise", "mx"]
EVERY = pytest.mark.parametrize("overrides", [*(te(r) for r in RECIPES), msamp("O1"), msamp("O2"), msamp("O3")],
                                ids=[*RECIPES, "O1", "O2", "O3"])
BAD = pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])


class Spoiled(nn.Module):
    """Two linears; `spoils` of the activation between them is one element of another value."""
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 48)
        self.spoils = None

    def forward(self, x):
        h = torch.tanh(self.first(x))
        if self.spoils is not None:
            mask = torch.zeros(h.shape, dtype=torch.bool, device=h.device)
            mask[1, 2] = True
            h = h.masked_fill(mask, self.spoils)
        return self.second(h)


def made(overrides=None):
    """(model, optimizer, x, target), prepared unless there are no overrides."""
    torch.manual_seed(3)
    model = Spoiled()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, target = torch.randn(20, 64), torch.randn(20, 48)
    if overrides is not None:
        model, optimizer = octavo.prepare(model, optimizer, None, overrides=overrides)
    return model, optimizer, x, target


def step(model, optimizer, x, target, batches=1, spoils=(), forward=None):
    """Whether a step changed a weight, or an element of one. spoils: the value for each batch."""
    before = weights(model)
    optimizer.zero_grad()
    for i in range(batches):
        model.spoils = spoils[i] if i < len(spoils) else None
        mse_loss((forward or model)(x), target).backward()
    model.spoils = None
    optimizer.step()
    return any(not torch.equal(p, before[n]) for n, p in weights(model).items())


@BAD
@EVERY
def test_in_x_the_step_is_skipped_and_counted(overrides, bad):
    model, optimizer, *data = made(overrides)
    assert step(model, optimizer, *data)
    assert not step(model, optimizer, *data, spoils=[bad])
    assert session(model).skipped_steps == 1 and slot(model, "nonfinite") == 0
    assert step(model, optimizer, *data)
    assert session(model).skipped_steps == 1
    assert all(p.isfinite().all() for p in weights(model).values())


@EVERY
def test_in_one_of_several_batches(overrides):
    model, optimizer, *data = made(overrides)
    assert step(model, optimizer, *data, batches=3)
    assert not step(model, optimizer, *data, batches=3, spoils=[math.inf])
    assert session(model).skipped_steps == 1
    assert step(model, optimizer, *data, batches=3)


@pytest.mark.parametrize("recipe", RECIPES)
@BAD
def test_in_a_weight(recipe, bad):
    model, optimizer, *data = made(te(recipe))
    step(model, optimizer, *data)
    good = model.second.weight[1, 2].item()
    for value, moves in ((bad, False), (bad, False), (good, True)):
        with torch.no_grad():
            model.second.weight[1, 2] = value
        optimizer.zero_grad()
        before = model.first.weight.clone()
        mse_loss(model(data[0]), data[1]).backward()
        optimizer.step()
        assert torch.equal(model.first.weight, before) != moves
    assert session(model).skipped_steps == 2


@EVERY
def test_forwards_that_train_nothing_do_not_count(overrides):
    """An evaluation, and a forward without gradients in training mode, with the weights of training."""
    model, optimizer, *data = made(overrides)
    step(model, optimizer, *data)
    model.spoils = math.inf
    for mode in (False, True):
        model.train(mode)
        with torch.no_grad():
            model(data[0])
    assert slot(model, "nonfinite") <= 0.5  # y of the second showed it, and no gradient has it
    assert step(model, optimizer, *data) and session(model).skipped_steps == 0


def test_swapped_weights_of_an_evaluation_do_not_count():
    model, optimizer, *data = made(te())
    step(model, optimizer, *data)
    kept = model.second.weight.detach().clone()
    model.eval()
    with torch.no_grad():
        model.second.weight.fill_(math.inf)
        model(data[0])
        model.second.weight.copy_(kept)
    model.train()
    assert step(model, optimizer, *data) and session(model).skipped_steps == 0


def test_checkpointing_hears_of_what_its_recomputation_casts():
    model, optimizer, *data = made(te())
    step(model, optimizer, *data)

    def forward(x):
        return torch.utils.checkpoint.checkpoint(model, x.requires_grad_(), use_reentrant=True)

    assert not step(model, optimizer, *data, spoils=[math.inf], forward=forward)
    assert session(model).skipped_steps == 1


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_grad_scaler_backs_off_as_with_the_plain_model(recipe, compiled):
    """float16: an activation that overflows, a dy that does, and both; scale and steps taken are the plain
    model's."""
    seen = []
    for overrides in (None, te(recipe)):
        model, optimizer, x, target = made(overrides)
        forward = torch.compile(model, backend="aot_eager") if compiled else model
        scaler = torch.amp.GradScaler(kind(), init_scale=2.0**8)
        mine = []
        for spoils, factor in ((None, 1), (math.inf, 1), (None, 1), (None, 1e30), (math.nan, 1e30), (None, 1)):
            before, model.spoils = weights(model), spoils
            optimizer.zero_grad()
            with torch.autocast(kind(), dtype=torch.float16):
                loss = mse_loss(forward(x), target)
            scaler.scale(loss * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            moved = any(not torch.equal(p, before[n]) for n, p in weights(model).items())
            mine.append((scaler.get_scale(), moved))
        seen.append(mine)
    assert seen[1] == seen[0] and seen[0][-1] == (2.0**5, True)


def test_grad_scaler_where_a_bias_alone_is_trained():
    model = Spoiled()
    model.first.weight.requires_grad_(False)
    model.second.requires_grad_(False)
    optimizer = torch.optim.AdamW([model.first.bias], lr=1e-2)
    model, optimizer = octavo.prepare(model, optimizer, None, overrides=te())
    scaler = torch.amp.GradScaler(kind(), init_scale=2.0**8)
    for spoils, scale in ((None, 2.0**8), (math.inf, 2.0**7)):
        model.spoils = spoils
        with torch.autocast(kind(), dtype=torch.float16):
            loss = model(torch.randn(20, 64)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale


def test_a_decision_on_the_device_counts_a_step_once_for_all_its_optimizers():
    """What a device that is not the CPU does; here the tensors are small, and on the CPU."""
    state, one, two = StepState(skipped=3), *(torch.optim.SGD([nn.Parameter(torch.zeros(1))]) for _ in range(2))
    yes, no = torch.tensor(1.0), torch.tensor(0.0)

    def decided(optimizer, found, has_run):
        earlier = state.decided_before(optimizer, has_run)
        state.begin(boundaries=0)
        state.skip_there(found, earlier)
        state.give(optimizer)
        answer = float(optimizer.found_inf)
        state.take_back(optimizer)
        return answer

    assert [decided(one, yes, True), decided(two, no, False), state.skipped] == [1.0, 1.0, 4]  # the second one follows
    assert [decided(one, no, True), decided(two, no, False), state.skipped] == [0.0, 0.0, 4]
    assert [decided(one, no, True), decided(two, yes, False), state.skipped] == [0.0, 1.0, 5]  # only the second one saw it
    assert not hasattr(one, "found_inf")
    one.found_inf = torch.tensor([2.0])  # GradScaler's own answer counts, and stays
    assert decided(one, no, True) == 2.0 and one.found_inf.tolist() == [2.0]


def test_idle_layers_are_named_once_an_optimizer():
    state, made = StepState(), [torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr) for lr in (0.0, 0.1, 0.1)]
    assert not state.look_after(made[0], has_called=False) and not state.look_after(made[0], has_called=False)  # lr = 0
    assert not state.look_after(made[1], has_called=False) and state.look_after(made[1], has_called=False)
    assert state.is_looked_after(made[1]) and not state.is_looked_after(made[2])
    assert state.look_after(made[2], has_called=True)
