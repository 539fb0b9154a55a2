"""Usage patterns: torch.compile. The graphs run with backend "aot_eager", which traces as inductor
does and compiles no C++; one pattern runs the default. Plain twins run eager."""
import torch
from torch import nn

import octavo
from conftest import kind
from patterns import (STEPS, adamw, batch, boundaries, check_fp8, compare, error, is_prepared,
                      learn, near, network, pattern, plain_output, start, values)

AREA = "torch.compile"


def compiled(model, **options):
    return torch.compile(model, backend="aot_eager", **options) if is_prepared(model) else model


@pattern(AREA, "torch.compile(model), default backend")
def inductor(prepare):
    def loop(p):
        model, optimizer = start(p)
        return learn(model, optimizer, 8, call=torch.compile(model) if is_prepared(model) else model)
    compare(prepare, loop)


@pattern(AREA, "torch.compile(model, fullgraph=True)")
def whole(prepare):
    def run(call_of):
        model, optimizer = start(prepare)
        return learn(model, optimizer, call=call_of(model))
    eager = run(lambda m: m)
    assert run(lambda m: compiled(m, fullgraph=True)) == eager
    compare(prepare, lambda p: learn(*start(p)))


@pattern(AREA, "model.compile()")
def in_place(prepare):
    def loop(p):
        model, optimizer = start(p)
        if is_prepared(model):
            model.compile(backend="aot_eager")
        return learn(model, optimizer)
    compare(prepare, loop)


@pattern(AREA, "each block compiled (regional compilation)")
def regional(prepare):
    def loop(p):
        model, optimizer = start(p, nn.Sequential(network(32, 64, 32), network(32, 64, 16)))
        for block in model if is_prepared(model) else ():
            block.compile(backend="aot_eager", fullgraph=True)
        return learn(model, optimizer)
    compare(prepare, loop)


@pattern(AREA, "forward, backward and step in one compiled function")
def whole_step(prepare):
    def loop(p):
        model, optimizer = start(p)
        x, target = batch()

        def step():
            optimizer.zero_grad()
            loss = (model(x) - target).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        if is_prepared(model):
            step = torch.compile(step, backend="aot_eager")
        losses = [step().item() for _ in range(STEPS)]
        check_fp8(model, boundaries(model), STEPS)
        return losses
    compare(prepare, loop)


@pattern(AREA, "forward and loss in one compiled function")
def compiled_loss(prepare):
    def loop(p):
        model, optimizer = start(p)
        loss_of = lambda x, target: (model(x) - target).square().mean()  # noqa: E731
        if is_prepared(model):
            loss_of = torch.compile(loss_of, backend="aot_eager", fullgraph=True)
        return learn(model, optimizer, loss_of=lambda call: loss_of(*batch()))
    compare(prepare, loop)


@pattern(AREA, "dynamic batch sizes: dynamic=True")
def dynamic(prepare):
    def loop(p):
        model, optimizer = start(p)
        call, losses = compiled(model, dynamic=True, fullgraph=True), []
        for step in range(STEPS):
            x, target = (t[:32 + step] for t in batch())
            losses += learn(model, optimizer, 1, call=call,
                            loss_of=lambda c: error(c, x, target))
        return losses
    compare(prepare, loop)


@pattern(AREA, "compiled, with octavo.clip_grad_norm_")
def clipped(prepare):
    def loop(p):
        model, optimizer = start(p)

        def between(model):
            octavo.clip_grad_norm_(model if is_prepared(model) else model.parameters(), 0.05)
            norm = nn.utils.get_total_norm([q.grad for q in model.parameters()])
            assert norm < 0.0501
        return learn(model, optimizer, call=compiled(model), between=between)
    compare(prepare, loop)


@pattern(AREA, "compiled, gradient accumulation")
def accumulated(prepare):
    def loop(p):
        model, optimizer = start(p)
        call, losses = compiled(model), []
        for _ in range(STEPS):
            optimizer.zero_grad()
            for x, target in zip(*(t.chunk(2) for t in batch())):
                loss = error(call, x, target)
                (loss / 2).backward()
            optimizer.step()
            losses.append(loss.item())
        return losses
    compare(prepare, loop)


@pattern(AREA, "compiled training, evaluation with no_grad and model.eval()")
def evaluated(prepare):
    model, optimizer = start(prepare)
    call, x = compiled(model), batch(seed=9)[0]
    for _ in range(3):
        learn(model, optimizer, 3, call=call)
        model.eval()
        with torch.no_grad():
            near(call(x), plain_output(model, x), 0.2)
        model.train()


@pattern(AREA, "compiled, weights changed by hand between steps")
def changed(prepare):
    model, optimizer = start(prepare)
    call, x = compiled(model), batch()[0]
    learn(model, optimizer, 3, call=call)
    before = values(model)
    with torch.no_grad():
        for q in model.parameters():
            q.mul_(-0.75)  # delayed scales fit values of before: larger ones would saturate once
        near(call(x), plain_output(model, x), 0.2)
    assert not torch.equal(before["0.weight"], model[0].weight)


@pattern(AREA, "compiled under bf16 autocast")
def autocast(prepare):
    def loop(p):
        model, optimizer = start(p)

        def loss_of(call):
            with torch.autocast(kind(), torch.bfloat16):
                y = call(batch()[0])
            assert y.dtype == torch.bfloat16
            return (y.float() - batch()[1]).square().mean()
        return learn(model, optimizer, call=compiled(model, fullgraph=True), loss_of=loss_of)
    compare(prepare, loop)


@pattern(AREA, "octavo.prepare of a compiled model")
def too_late(prepare):
    def loop(p):
        model = torch.compile(network(), backend="aot_eager")
        model, optimizer = p(model, adamw(model))
        return learn(model, optimizer)
    compare(prepare, loop)


@pattern(AREA, "octavo.prepare after model.compile()")
def compiled_before(prepare):
    def loop(p):
        model = network()
        model.compile(backend="aot_eager")
        if p.overrides is not None:
            model(batch()[0])  # a plain graph, in the cache
        return learn(*start(p, model))
    compare(prepare, loop)


@pattern(AREA, "torch.compile(optimizer.step)")
def compiled_optimizer(prepare):
    def loop(p):
        model, optimizer = start(p)
        step = torch.compile(optimizer.step, backend="aot_eager") if is_prepared(model) else optimizer.step
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = error(model)
            loss.backward()
            step()
            losses.append(loss.item())
        check_fp8(model, boundaries(model), STEPS)
        return losses
    compare(prepare, loop)
