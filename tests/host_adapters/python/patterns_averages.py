"""Usage patterns: averages of weights, and copies that follow a model."""
import copy

import torch
from torch.optim.swa_utils import AveragedModel, SWALR, get_ema_multi_avg_fn, update_bn

from patterns import (batch, compare, error, learn, near, network, pattern, plain_output, start,
                      values)

AREA = "Averages of weights"
# A write to a weight of msamp rounds to f16 with a scale: half a unit in the last place of the
# largest value at most. te stores what is written.
ROUNDING = 2**-11


def close(found, expected, writes):
    """Equal up to the rounding of some writes."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        bound = writes * ROUNDING * value.abs().max()
        assert (found[name] - value).abs().max() <= bound, name


def check_average(averaged, expected, writes):
    """It has the values, computes with them, and they are not those at the start."""
    close(values(averaged), expected, writes)
    x = batch()[0]
    with torch.no_grad():
        near(averaged(x), plain_output(averaged, x), 0.2)
    assert not torch.equal(averaged[0].weight, network()[0].weight)


@pattern(AREA, "SWA as torch's AveragedModel, with SWALR")
def swa(prepare):
    model, optimizer = start(prepare)
    averaged, seen = AveragedModel(model), []
    scheduler = SWALR(optimizer, swa_lr=5e-3, anneal_epochs=2)
    for _ in range(4):
        learn(model, optimizer, 2)
        averaged.update_parameters(model)
        scheduler.step()
        seen.append(values(model))
    update_bn([batch()[0]], averaged)
    mean = {k: sum(s[k] for s in seen) / 4 for k in seen[0]}
    check_average(averaged.module, mean, writes=4)
    assert averaged.n_averaged == 4


@pattern(AREA, "EMA as torch's AveragedModel")
def ema(prepare):
    model, optimizer = start(prepare)
    averaged, expected = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5)), None
    for _ in range(4):
        learn(model, optimizer, 2)
        averaged.update_parameters(model)
        now = values(model)
        expected = {k: 0.5 * (expected[k] + v) for k, v in now.items()} if expected else now
    check_average(averaged.module, expected, writes=4)


@pattern(AREA, "EMA as timm's ModelEmaV2: a deep copy, its state_dict written in place")
def model_ema(prepare):
    model, optimizer = start(prepare)
    averaged = copy.deepcopy(model).eval()
    expected = values(model)
    for _ in range(4):
        learn(model, optimizer, 2)
        with torch.no_grad():
            for own, new in zip(averaged.state_dict().values(), model.state_dict().values()):
                own.copy_(0.5 * own + 0.5 * new)
        expected = {k: 0.5 * expected[k] + 0.5 * v for k, v in values(model).items()}
    check_average(averaged, expected, writes=4)


@pattern(AREA, "EMA with lerp_ over the parameters of a deep copy")
def lerp(prepare):
    model, optimizer = start(prepare)
    averaged = copy.deepcopy(model).requires_grad_(False)
    expected = values(model)
    for _ in range(4):
        learn(model, optimizer, 2)
        for own, new in zip(averaged.parameters(), model.parameters()):
            own.lerp_(new.detach(), 0.5)
        expected = {k: torch.lerp(expected[k], v, 0.5) for k, v in values(model).items()}
    check_average(averaged, expected, writes=4)


@pattern(AREA, "EMA with torch._foreach_lerp_ over param.data")
def foreach(prepare):
    model, optimizer = start(prepare)
    averaged = copy.deepcopy(model)
    expected = values(model)
    for _ in range(4):
        learn(model, optimizer, 2)
        torch._foreach_lerp_([p.data for p in averaged.parameters()],
                             [p.data for p in model.parameters()], 0.5)
        averaged.eval()  # tells octavo that values may have changed through .data
        expected = {k: torch.lerp(expected[k], v, 0.5) for k, v in values(model).items()}
    check_average(averaged, expected, writes=4)


@pattern(AREA, "EMA as a list of plain tensors (shadow parameters)")
def shadow(prepare):
    model, optimizer = start(prepare)
    shadows = [p.clone().detach() for p in model.parameters()]
    expected = values(model)
    for _ in range(4):
        learn(model, optimizer, 2)
        with torch.no_grad():
            for s, p in zip(shadows, model.parameters()):
                s.sub_(0.5 * (s - p))
        expected = {k: 0.5 * (expected[k] + v) for k, v in values(model).items()}
    close(dict(zip(expected, shadows)), expected, writes=1)


@pattern(AREA, "average swapped in for evaluation, and out again for training")
def swapped(prepare):
    model, optimizer = start(prepare)
    shadows = [p.detach().clone() for p in model.parameters()]
    losses = learn(model, optimizer, 10)
    kept, x = [p.detach().clone() for p in model.parameters()], batch()[0]
    with torch.no_grad():
        after = model(x)
        for p, s in zip(model.parameters(), shadows):
            p.copy_(s)
        start_again = error(model).item()
        near(model(x), plain_output(model, x))
        for p, k in zip(model.parameters(), kept):
            p.data.copy_(k.data)
        model.eval()
        near(model(x), after)  # equal values, cast with the scales of now
        model.train()
    assert abs(start_again - losses[0]) < 0.05 * losses[0]
    assert learn(model, optimizer, 5)[-1] < losses[-1]


@pattern(AREA, "a target network with soft updates (DQN, BYOL)")
def target_network(prepare):
    def loop(p):
        model, optimizer = start(p)
        target = copy.deepcopy(model).requires_grad_(False)
        x, goal = batch()
        losses = []
        for _ in range(20):
            with torch.no_grad():
                wanted = 0.5 * goal + 0.5 * target(x)
            losses += learn(model, optimizer, 1, loss_of=lambda m: error(m, x, wanted))
            with torch.no_grad():
                for q, own in zip(target.parameters(), model.parameters()):
                    q.mul_(0.8).add_(own, alpha=0.2)
        return losses
    compare(prepare, loop)


@pattern(AREA, "a target network that is loaded every few steps")
def hard_update(prepare):
    model, optimizer = start(prepare)
    target, x = copy.deepcopy(model).eval(), batch()[0]
    for _ in range(3):
        learn(model, optimizer, 3)
        target.load_state_dict(model.state_dict())
        close(values(target), values(model), writes=1)
        with torch.no_grad():
            near(target(x), plain_output(model, x), 0.2)


@pattern(AREA, "a model soup: the mean of two state_dicts, loaded")
def soup(prepare):
    made = []
    for lr in (1e-2, 5e-3):
        model, optimizer = start(prepare)
        optimizer.param_groups[0]["lr"] = lr
        learn(model, optimizer, 10)
        made.append(model)
    states = [m.state_dict() for m in made]
    mean = {k: (states[0][k] + states[1][k]) / 2 for k in states[0]}
    made[0].load_state_dict(mean)
    check_average(made[0], mean, writes=1)


@pattern(AREA, "Lookahead: slow weights that the fast ones return to")
def lookahead(prepare):
    def loop(p):
        model, optimizer = start(p)
        slow, losses = [q.detach().clone() for q in model.parameters()], []
        for _ in range(4):
            losses += learn(model, optimizer, 5)
            with torch.no_grad():
                for q, s in zip(model.parameters(), slow):
                    s.add_(q - s, alpha=0.5)
                    q.copy_(s)
        return losses
    compare(prepare, loop)


@pattern(AREA, "L2-SP: a penalty on the distance to the weights at the start")
def penalty(prepare):
    def loop(p):
        model, optimizer = start(p)
        first = [q.detach().clone() for q in model.parameters()]

        def loss_of(call):
            return error(call) + 0.01 * sum((q - f).square().sum()
                                            for q, f in zip(model.parameters(), first))
        return learn(model, optimizer, loss_of=loss_of)
    compare(prepare, loop)
