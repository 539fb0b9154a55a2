"""Usage patterns: training loops."""
import copy

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import octavo
from conftest import session
from guide_parts import Block, mlp
from patterns import (STEPS, batch, boundaries, check_fp8, compare, error, is_prepared, learn,
                      near, pattern, plain_output, same, start, values)

AREA = "Training loops"


@pattern(AREA, "loss.backward(), optimizer.step()")
def usual(prepare):
    compare(prepare, lambda p: learn(*start(p)))


@pattern(AREA, "several forwards and losses, one backward")
def siamese(prepare):
    def loss_of(call):
        x, target = batch()
        return error(call, x, target) + error(call, x.flip(0), target.flip(0))
    compare(prepare, lambda p: learn(*start(p), loss_of=loss_of))


@pattern(AREA, "a backward for each of several losses")
def backward_twice(prepare):
    def loop(p):
        model, optimizer = start(p)

        def loss_of(call):
            x, target = batch()
            y = call(x)
            (0.5 * (y[:, :8] - target[:, :8]).square().mean()).backward(retain_graph=True)
            return 0.5 * (y[:, 8:] - target[:, 8:]).square().mean()
        return learn(model, optimizer, loss_of=loss_of)
    compare(prepare, loop)


@pattern(AREA, "evaluation between steps, with model.eval() and no_grad")
def evaluation(prepare):
    def run(evaluates):
        model, optimizer = start(prepare)

        def between(model):
            if evaluates:
                model.eval()
                with torch.no_grad():
                    near(model(batch(seed=9)[0]), plain_output(model, batch(seed=9)[0]), 0.2)
                model.train()
        return learn(model, optimizer, between=between), values(model)
    without, also = run(False), run(True)
    assert without[0] == also[0]
    same(without[1], also[1])


@pattern(AREA, "a smaller last batch, and an empty one")
def last_batch(prepare):
    def loop(p):
        model, optimizer = start(p)
        losses = []
        for step in range(STEPS):
            x, target = batch()
            rows = 64 if step % 3 else 7
            optimizer.zero_grad()
            error(model, x[:rows], target[:rows]).backward()
            optimizer.step()
            losses.append(error(model).item())
        optimizer.zero_grad()
        model(x[:0]).sum().backward()
        before = values(model)
        optimizer.step()
        # Gradients of zeros: Adam goes on with its momentum, by its lr at most.
        for name, value in before.items():
            assert (model.state_dict()[name] - value).abs().max() <= 1.1e-2
        return losses
    compare(prepare, loop)


@pattern(AREA, "a batch with Inf: the step is left out, training goes on")
def bad_batch(prepare):
    model, optimizer = start(prepare)
    learn(model, optimizer, 3)
    before = values(model)
    optimizer.zero_grad()
    (model(batch()[0]) * float("inf")).sum().backward()
    optimizer.step()
    same(values(model), before)
    assert session(model).skipped_steps == 1
    losses = learn(model, optimizer, 10)
    assert losses[-1] < losses[0]


@pattern(AREA, "activation checkpointing")
def checkpointing(prepare):
    def run(recomputes):
        torch.manual_seed(5)
        model, optimizer = start(prepare, nn.Sequential(mlp(32, 64, 32), Block(32), mlp(32, 16)))
        x, target = batch()

        def loss_of(model):
            y = x.view(4, 16, 32)
            for part in model:
                y = checkpoint(part, y, use_reentrant=False) if recomputes else part(y)
            return (y - target.view(4, 16, 16)).square().mean()
        return learn(model, optimizer, 8, loss_of=loss_of), values(model)
    kept, recomputed = run(False), run(True)
    assert kept[0] == recomputed[0] and kept[0][-1] < kept[0][0]
    same(kept[1], recomputed[1])


@pattern(AREA, "a learning-rate finder: a sweep, then the previous weights")
def finder(prepare):
    model, optimizer = start(prepare)
    state, kept = copy.deepcopy(model.state_dict()), values(model)
    for exponent in range(8):
        optimizer.param_groups[0]["lr"] = 10.0 ** (exponent - 5)
        learn(model, optimizer, 1)
    assert not torch.equal(model[0].weight, kept["0.weight"])
    model.load_state_dict(state)
    x = batch()[0]
    with torch.no_grad():
        near(model(x), plain_output(model, x), 0.2)
        for name, value in values(model).items():
            # msamp writes f16 with a scale: half a unit in the last place
            assert (value - kept[name]).abs().max() <= 2**-11 * kept[name].abs().max(), name


@pattern(AREA, "early stopping: the best weights are kept and loaded again")
def early_stopping(prepare):
    model, optimizer = start(prepare)
    losses = learn(model, optimizer)
    best = copy.deepcopy(model.state_dict())
    optimizer.param_groups[0]["lr"] = 10.0
    assert learn(model, optimizer, 5)[-1] > losses[-1]
    model.load_state_dict(best)
    assert error(model).item() < losses[5]


@pattern(AREA, "no optimizer: weights changed by hand, then octavo.step(model)")
def by_hand(prepare):
    def loop(p):
        model, _ = start(p, optimizer=None)
        losses, before = [], boundaries(model)
        for _ in range(STEPS):
            loss = error(model)
            loss.backward()
            with torch.no_grad():
                for q in model.parameters():
                    q.sub_(q.grad, alpha=0.3)
                    q.grad = None
            if is_prepared(model):
                octavo.step(model)
            losses.append(loss.item())
        check_fp8(model, boundaries(model) - before, STEPS)
        return losses
    compare(prepare, loop)


@pattern(AREA, "a DataLoader, epochs, shuffling")
def loader(prepare):
    def loop(p):
        model, optimizer = start(p)
        data = torch.utils.data.TensorDataset(*batch())
        batches = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True,
                                              generator=torch.Generator().manual_seed(1))
        losses = []
        for _ in range(5):
            for x, target in batches:
                optimizer.zero_grad()
                loss = error(model, x, target)
                loss.backward()
                optimizer.step()
            losses.append(error(model).item())
        return losses
    # The last loss is of the same 64 rows; its steps are as many as those of BOUND.
    compare(prepare, loop)
