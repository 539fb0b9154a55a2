"""Usage patterns: torch.func, tracing and export."""
import warnings

import torch
from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vjp, vmap

from patterns import batch, boundaries, compare, learn, near, network, pattern, plain_output, start

AREA = "torch.func, tracing and export"


def trained(prepare):
    model, optimizer = start(prepare)
    learn(model, optimizer, 5)
    optimizer.zero_grad()
    return model, batch()[0]


def squares(model):
    def loss(weights, x):
        return functional_call(model, weights, (x,)).square().mean()
    return loss


def detached(model):
    return {k: p.detach() for k, p in model.named_parameters()}


@pattern(AREA, "vmap over a batch")
def over_batch(prepare):
    model, x = trained(prepare)
    with torch.no_grad():
        assert torch.equal(vmap(model)(x), model(x))


@pattern(AREA, "torch.func.grad of functional_call")
def func_grad(prepare):
    model, x = trained(prepare)
    found = grad(squares(model))(detached(model), x)
    model(x).square().mean().backward()
    for name, p in model.named_parameters():
        assert torch.equal(found[name], p.grad), name


@pattern(AREA, "training by torch.func.grad alone")
def functional_training(prepare):
    def loop(p):
        model, _ = start(p, optimizer=None)
        x, target = batch()
        weights, losses = {k: v.clone() for k, v in detached(model).items()}, []

        def loss_of(given):
            return (functional_call(model, given, (x,)) - target).square().mean()
        for _ in range(20):
            losses.append(loss_of(weights).item())
            found = grad(loss_of)(weights)
            weights = {k: v - 0.3 * found[k] for k, v in weights.items()}
        return losses
    compare(prepare, loop)


@pattern(AREA, "functional_call with other weights")
def other_weights(prepare):
    model, x = trained(prepare)
    weights = {k: 0.5 * v for k, v in detached(model).items()}
    twin = network()
    twin.load_state_dict(weights)
    with torch.no_grad():
        near(functional_call(model, weights, (x,)), twin(x))
        near(model(x), plain_output(model, x))


@pattern(AREA, "torch.func.vjp of inputs")
def func_vjp(prepare):
    model, x = trained(prepare)
    y, pull = vjp(model, x)
    given = x.clone().requires_grad_()
    model(given).backward(torch.ones_like(y))
    assert torch.equal(pull(torch.ones_like(y))[0], given.grad)


@pattern(AREA, "torch.func.jvp (forward mode)")
def func_jvp(prepare):
    model, x = trained(prepare)
    _, found = jvp(model, (x,), (x,))
    twin = network()
    twin.load_state_dict(model.state_dict())
    near(found, jvp(twin, (x,), (x,))[1])


@pattern(AREA, "per-sample gradients: vmap of grad (differential privacy)")
def per_sample(prepare):
    model, x = trained(prepare)
    found = vmap(grad(squares(model)), (None, 0))(detached(model), x[:4])
    assert found["0.weight"].shape == (4, 64, 32)


@pattern(AREA, "an ensemble: vmap over stacked weights")
def ensemble(prepare):
    model, x = trained(prepare)
    weights, buffers = stack_module_state([model, model])
    found = vmap(lambda w, b: functional_call(model, (w, b), (x,)))(weights, buffers)
    near(found[0], plain_output(model, x))


@pattern(AREA, "jacrev of a sample")
def jacobian(prepare):
    model, x = trained(prepare)
    twin = network()
    twin.load_state_dict(model.state_dict())
    near(jacrev(model)(x[0]), jacrev(twin)(x[0]), 0.3)


@pattern(AREA, "torch.func.hessian")
def func_hessian(prepare):
    model, x = trained(prepare)
    hessian(lambda given: model(given).sum())(x[0])


@pattern(AREA, "MAML: a gradient through an inner step")
def maml(prepare):
    model, x = trained(prepare)
    weights = {k: v.clone().requires_grad_() for k, v in detached(model).items()}
    found = torch.autograd.grad(squares(model)(weights, x), list(weights.values()),
                                create_graph=True)
    fast = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), found)}
    squares(model)(fast, x).backward()


@pattern(AREA, "torch.jit.trace")
def jit_trace(prepare):
    model, x = trained(prepare)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model.eval(), x)
    near(traced(x), plain_output(model, x))


@pattern(AREA, "torch.export, and the exported program run")
def export(prepare):
    model, x = trained(prepare)
    with torch.no_grad():
        program = torch.export.export(model.eval(), (x,)).module()
        near(program(x), plain_output(model, x))
        assert torch.equal(program(x), model(x))


@pattern(AREA, "torch.fx.symbolic_trace")
def fx(prepare):
    model, x = trained(prepare)
    traced = torch.fx.symbolic_trace(model)
    with torch.no_grad():
        assert torch.equal(traced(x), model(x))


@pattern(AREA, "FlopCounterMode, and the profiler")
def counters(prepare):
    from torch.utils.flop_counter import FlopCounterMode
    model, optimizer = start(prepare)
    before = boundaries(model)
    with FlopCounterMode(display=False), torch.profiler.profile() as profile:
        learn(model, optimizer, 1)
    assert boundaries(model) - before == 1 or not prepare.overrides
    assert any("octavo" in e.key for e in profile.key_averages())


@pattern(AREA, "first-order MAML (FOMAML)")
def first_order(prepare):
    def loop(p):
        model, optimizer = start(p)
        x, target = batch()

        def inner(call):
            weights = {k: v for k, v in model.named_parameters()}
            loss = (functional_call(model, weights, (x,)) - target).square().mean()
            found = torch.autograd.grad(loss, list(weights.values()))
            fast = {k: w - 0.05 * g for (k, w), g in zip(weights.items(), found)}
            return (functional_call(model, fast, (x,)) - target).square().mean()
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = inner(model)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses
    compare(prepare, loop)


@pattern(AREA, "torch.jit.script")
def jit_script(prepare):
    model, x = trained(prepare)
    near(torch.jit.script(model.eval())(x), plain_output(model, x))
