"""Usage patterns: several models, heads and uses of a layer in one training loop."""
import torch
from torch import nn

from patterns import (STEPS, adamw, batch, boundaries, check_fp8, compare, error, is_prepared,
                      learn, network, pattern, same, start, values)
from patterns_loops import AREA


@pattern(AREA, "a GAN: two models, two optimizers, in turns")
def gan(prepare):
    def loop(p):
        made = [start(p, network(*sizes), lambda m: adamw(m, 3e-3))
                for sizes in ((32, 64, 32), (32, 64, 1))]
        (g, g_step), (d, d_step) = made
        real, losses = batch()[0] + 1.0, []
        noise = batch(seed=6)[0]
        for _ in range(STEPS):
            d_step.zero_grad()
            loss = (nn.functional.softplus(-d(real)) + nn.functional.softplus(d(g(noise).detach()))
                    ).mean()
            loss.backward()
            d_step.step()
            losses.append(loss.item())
            g_step.zero_grad()
            d.requires_grad_(False)
            nn.functional.softplus(-d(g(noise))).mean().backward()
            g_step.step()
            d.requires_grad_(True)
        assert all(boundaries(m) >= STEPS for m in (g, d) if is_prepared(m))
        return losses
    compare(prepare, loop, falls=2.0)  # adversaries: neither loss has to fall


@pattern(AREA, "distillation: a frozen prepared teacher, a prepared student")
def distillation(prepare):
    def loop(p):
        teacher, _ = start(p, network(32, 96, 16).eval().requires_grad_(False), optimizer=None)
        model, optimizer = start(p)
        x = batch()[0]
        before = values(teacher)

        def loss_of(call):
            with torch.no_grad():
                target = teacher(x)
            return error(call, x, target)
        losses = learn(model, optimizer, loss_of=loss_of)
        same(values(teacher), before)
        return losses
    compare(prepare, loop)


@pattern(AREA, "one layer used several times in a forward (recurrence)")
def recurrence(prepare):
    def loss_of(model):
        x, target = batch()
        hidden = torch.zeros(64, 32)
        for _ in range(4):
            hidden = torch.tanh(model[0](x) + model[1](hidden))
        return (model[2](hidden) - target).square().mean()
    compare(prepare, lambda p: learn(*start(p, nn.Sequential(
        network(32, 32), network(32, 32), network(32, 16))), loss_of=loss_of))


@pattern(AREA, "two heads that train in turns")
def heads(prepare):
    def loop(p):
        model, optimizer = start(p, nn.ModuleDict(
            {"trunk": network(32, 64), "a": network(64, 16), "b": network(64, 16)}))
        x, target = batch()
        losses = []
        for step in range(2 * STEPS):
            optimizer.zero_grad()
            head = "a" if step % 2 else "b"
            loss = (model[head](torch.relu(model["trunk"](x))) - target).square().mean()
            loss.backward()
            idle = model["b" if step % 2 else "a"][0].weight
            assert idle.grad is None
            optimizer.step()
            losses.append(loss.item())
        check_fp8(model, boundaries(model), 2 * STEPS)
        return losses[::2]
    compare(prepare, loop)


@pattern(AREA, "one optimizer for several prepared parts, as an nn.ModuleList")
def parts(prepare):
    def loop(p):
        model, optimizer = start(p, nn.ModuleList([network(32, 64), network(64, 16)]))
        return learn(model, optimizer, loss_of=lambda m: error(
            lambda x: m[1](torch.relu(m[0](x)))))
    compare(prepare, loop)
