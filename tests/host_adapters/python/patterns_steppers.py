"""Usage patterns: parameter groups, schedulers, and the optimizer's place in a run."""
import torch
from torch.optim import lr_scheduler

from patterns import (PLAIN, STEPS, adamw, compare, error, follows, learn, network, pattern, start,
                      values)

AREA = "Parameter groups and schedulers"


@pattern(AREA, "groups with and without weight decay")
def decay_groups(prepare):
    def make(model):
        named = list(model.named_parameters())
        return torch.optim.AdamW(
            [{"params": [p for n, p in named if "weight" in n], "weight_decay": 0.5},
             {"params": [p for n, p in named if "bias" in n], "weight_decay": 0.0}], lr=1e-2)
    compare(prepare, lambda p: learn(*start(p, optimizer=make)))


@pattern(AREA, "a learning rate for each layer")
def layer_rates(prepare):
    def make(model):
        return torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.0},
                                  {"params": model[2].parameters(), "lr": 2e-2}],
                                 weight_decay=0.0)

    def loop(p):
        model, optimizer = start(p, optimizer=make)
        first, second = (model[i].weight.detach().clone() for i in (0, 2))
        losses = learn(model, optimizer)
        # msamp keeps weights in f16 with a scale, which it chooses anew at each step
        assert (model[0].weight - first).abs().max() <= 2**-11 * first.abs().max()
        assert (model[2].weight - second).abs().max() > 0.1
        return losses
    compare(prepare, loop)


@pattern(AREA, "add_param_group after some steps")
def added_group(prepare):
    def loop(p):
        model = network()
        model, optimizer = p(model, torch.optim.AdamW(model[2].parameters(), lr=1e-2,
                                                      weight_decay=0.0))
        before = model[0].weight.detach().clone()
        losses = learn(model, optimizer, 5)
        assert torch.equal(before, model[0].weight)
        optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 2e-2})
        losses += learn(model, optimizer, 15)
        assert not torch.equal(before, model[0].weight)
        return losses
    compare(prepare, loop)


@pattern(AREA, "an optimizer over a part of the model")
def part(prepare):
    def loop(p):
        model = network()
        model, optimizer = p(model, torch.optim.AdamW(model[2].parameters(), lr=1e-2,
                                                      weight_decay=0.0))
        before = model[0].weight.detach().clone()
        losses = learn(model, optimizer)
        assert torch.equal(before, model[0].weight)
        return losses
    compare(prepare, loop)


SCHEDULERS = {
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=2e-2, total_steps=STEPS),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7),
    "SequentialLR of LinearLR and CosineAnnealingLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=5),
            lr_scheduler.CosineAnnealingLR(o, STEPS)], [5]),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step / 4)),
}


def scheduled(make, is_before):
    def loop(p):
        model = network()
        plain = adamw(model)
        early = make(plain) if is_before else None
        model, optimizer = p(model, plain)
        scheduler = early or make(optimizer)
        losses, rates = [], []
        for _ in range(STEPS):
            losses += learn(model, optimizer, 1)
            rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
        return losses, rates

    def run(prepare):
        (losses, rates), (expected, wanted) = loop(prepare), loop(PLAIN)
        assert rates == wanted and len(set(rates)) > 3
        follows(losses, expected)
    return run


for name, make in SCHEDULERS.items():
    pattern(AREA, f"{name}, made after octavo.prepare")(scheduled(make, False))
pattern(AREA, "a scheduler made before octavo.prepare")(scheduled(SCHEDULERS["LambdaLR"], True))


@pattern(AREA, "ReduceLROnPlateau")
def plateau(prepare):
    model, optimizer = start(prepare)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.0, patience=2)
    learn(model, optimizer, 3)
    for _ in range(4):
        scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == 0
    before = values(model)
    learn(model, optimizer, 1)
    for name, value in values(model).items():  # as in layer_rates
        assert (value - before[name]).abs().max() <= 2**-11 * before[name].abs().max()


@pattern(AREA, "warm-up: lr written into param_groups")
def written(prepare):
    def loop(p):
        model, optimizer = start(p)
        losses = []
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = 1e-2 * min(1, (step + 1) / 10)
            losses += learn(model, optimizer, 1)
        return losses
    compare(prepare, loop)


@pattern(AREA, "hooks of the optimizer (register_step_pre_hook, register_step_post_hook)")
def hooks(prepare):
    model, optimizer = start(prepare)
    seen = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append(
        model[0].weight.grad.norm().item()))
    optimizer.register_step_post_hook(torch.no_grad()(
        lambda o, args, kwargs: seen.append(error(model).item())))
    losses = learn(model, optimizer, 4)
    assert len(seen) == 8 and all(norm > 0 for norm in seen[::2])
    # What a step leaves is what the next forward sees; its recording may move a scale by one step.
    for found, expected in zip(seen[1::2], losses[1:]):
        assert abs(found - expected) < 0.05 * expected


@pattern(AREA, "octavo.prepare in the middle of a run, with the previous moments")
def middle(prepare):
    def loop(p):
        model = network()
        optimizer = adamw(model)
        losses = learn(model, optimizer, 5)
        model, optimizer = p(model, optimizer)
        return losses + learn(model, optimizer, 15)
    compare(prepare, loop)


@pattern(AREA, "a new optimizer for a second stage, without octavo.prepare")
def second_stage(prepare):
    def loop(p):
        model, optimizer = start(p)
        losses = learn(model, optimizer, 10)
        return losses + learn(model, torch.optim.SGD(model.parameters(), lr=0.3), 10)
    compare(prepare, loop)


@pattern(AREA, "a new optimizer for a second stage, with octavo.prepare again")
def prepared_stage(prepare):
    def loop(p):
        model, optimizer = start(p)
        losses = learn(model, optimizer, 10)
        model, optimizer = p.again(model, adamw(model, 3e-3))
        return losses + learn(model, optimizer, 10)
    compare(prepare, loop)


@pattern(AREA, "two optimizers, each over a half of the model")
def halves(prepare):
    def loop(p):
        model, _ = start(p, optimizer=None)
        optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.5),
                      torch.optim.AdamW(model[2].parameters(), lr=1e-2)]
        losses = []
        for _ in range(STEPS):
            loss = error(model)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        return losses
    compare(prepare, loop)


@pattern(AREA, "the optimizer's state_dict, loaded into another one")
def moved_state(prepare):
    model, optimizer = start(prepare)
    learn(model, optimizer, 5)
    optimizer.param_groups[0]["lr"] = 5e-3
    twin, other = start(prepare)
    twin.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 5e-3
    for p, q in zip(model.parameters(), twin.parameters()):
        own, its = optimizer.state.get(p, {}), other.state.get(q, {})
        assert own.keys() == its.keys()
        assert all(torch.equal(own[k], its[k]) for k in own)
    losses = learn(twin, other, 10)
    assert losses[-1] < losses[0]
