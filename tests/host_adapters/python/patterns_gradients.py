"""Usage patterns: gradients between backward and step."""
import torch
from torch import nn
from torch.nn import utils

from conftest import kind
from patterns import STEPS, batch, boundaries, check_fp8, compare, error, learn, pattern, start

AREA = "Gradients"
utils = nn.utils


@pattern(AREA, "gradient accumulation over micro-batches")
def accumulation(prepare):
    def loop(p):
        model, optimizer = start(p)
        losses = []
        for _ in range(STEPS):
            total = 0.0
            for x, target in zip(*(t.chunk(4) for t in batch())):
                loss = error(model, x, target) / 4
                loss.backward()
                total += loss.item()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total)
        check_fp8(model, boundaries(model), STEPS)
        return losses
    compare(prepare, loop)


@pattern(AREA, "zero_grad(set_to_none=False), and model.zero_grad()")
def zeros(prepare):
    def loop(p):
        model, optimizer = start(p)
        losses = []
        for step in range(STEPS):
            loss = error(model)
            loss.backward()
            optimizer.step()
            if step % 2:
                optimizer.zero_grad(set_to_none=False)
                assert not any(q.grad.any() for q in model.parameters())
            else:
                model.zero_grad()
            losses.append(loss.item())
        return losses
    compare(prepare, loop)


@pattern(AREA, "a mask multiplied into p.grad")
def masked(prepare):
    def loop(p):
        model, optimizer = start(p)
        first = model[0].weight.detach().clone()
        mask = torch.zeros_like(first)
        mask[:, ::2] = 1.0

        def between(model):
            model[0].weight.grad *= mask
        losses = learn(model, optimizer, between=between)
        moved = (model[0].weight - first).abs()
        # as in a write to msamp: half a unit in the last place of f16 with a scale
        assert moved[:, 1::2].max() <= 20 * 2**-11 * first.abs().max() and moved[:, ::2].min() > 0
        return losses
    compare(prepare, loop)


@pattern(AREA, "p.grad replaced by a tensor")
def replaced(prepare):
    def loop(p):
        def between(model):
            for q in model.parameters():
                q.grad = 0.5 * q.grad.detach().clone()
        return learn(*start(p), between=between)
    compare(prepare, loop)


@pattern(AREA, "noise added to p.grad")
def noise(prepare):
    def loop(p):
        generator = torch.Generator().manual_seed(8)

        def between(model):
            for q in model.parameters():
                q.grad.add_(1e-3 * torch.randn(q.shape, generator=generator))
        return learn(*start(p), between=between)
    compare(prepare, loop)


@pattern(AREA, "gradient centralization: p.grad minus its mean")
def centralized(prepare):
    def loop(p):
        def between(model):
            for q in model.parameters():
                if q.dim() > 1:
                    q.grad.sub_(q.grad.mean(dim=1, keepdim=True))
        return learn(*start(p), between=between)
    compare(prepare, loop)


@pattern(AREA, "conflicting gradients of two tasks, projected (PCGrad)")
def projected(prepare):
    def loop(p):
        model, optimizer = start(p)
        x, target = batch()
        losses = []
        for _ in range(STEPS):
            found = []
            for part in (slice(0, 8), slice(8, 16)):
                optimizer.zero_grad()
                loss = (model(x)[:, part] - target[:, part]).square().mean()
                loss.backward()
                found.append([q.grad.detach().clone() for q in model.parameters()])
            for q, a, b in zip(model.parameters(), *found):
                dot = (a * b).sum()
                q.grad = (a - min(dot, torch.zeros(())) * b / b.square().sum() + b) / 2
            optimizer.step()
            losses.append(error(model).item())
        return losses
    compare(prepare, loop)


@pattern(AREA, "hooks of modules: forward, and full backward")
def module_hooks(prepare):
    def loop(p):
        model, optimizer = start(p)
        seen = []
        model[0].register_forward_hook(lambda m, x, y: y * 2.0)
        model[2].register_full_backward_hook(lambda m, dx, dy: seen.append(
            (dx[0].norm().item(), dy[0].norm().item())) or (0.5 * dx[0],))
        losses = learn(model, optimizer)
        assert len(seen) == STEPS and all(a > 0 and b > 0 for a, b in seen)
        return losses
    compare(prepare, loop)


@pattern(AREA, "GradScaler with fp16 autocast")
def scaler(prepare):
    def loop(p):
        model, optimizer = start(p)
        scaling = torch.amp.GradScaler(kind(), init_scale=2.0**12)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast(kind(), torch.float16):
                x, target = batch()
                loss = (model(x).float() - target).square().mean()
            scaling.scale(loss).backward()
            scaling.unscale_(optimizer)
            norm = utils.clip_grad_norm_(model.parameters(), 1.0)
            assert 0 < norm < 10
            scaling.step(optimizer)
            scaling.update()
            losses.append(loss.item())
        return losses
    compare(prepare, loop)


@pattern(AREA, "a gradient penalty (WGAN-GP): create_graph=True")
def gradient_penalty(prepare):
    def loop(p):
        model, optimizer = start(p)

        def loss_of(call):
            x = batch()[0].requires_grad_()
            found, = torch.autograd.grad(call(x).sum(), x, create_graph=True)
            return error(call) + 0.1 * ((found.norm(dim=1) - 1)**2).mean()
        return learn(model, optimizer, loss_of=loss_of)
    compare(prepare, loop)


@pattern(AREA, "p.grad = None for a layer: it stays")
def dropped(prepare):
    model, optimizer = start(prepare)
    first, second = (model[i].weight.detach().clone() for i in (0, 2))
    learn(model, optimizer, 5, between=lambda m: setattr(m[0].weight, "grad", None))
    assert torch.equal(first, model[0].weight) and not torch.equal(second, model[2].weight)


@pattern(AREA, "the step of each parameter inside backward (a post-accumulate hook)")
def step_in_backward(prepare):
    def loop(p):
        model, _ = start(p, optimizer=None)
        steppers = {q: torch.optim.SGD([q], lr=0.3) for q in model.parameters()}

        def step(q):
            steppers[q].step()
            steppers[q].zero_grad()
        for q in model.parameters():
            q.register_post_accumulate_grad_hook(step)
        losses = []
        for _ in range(STEPS):
            loss = error(model)
            loss.backward()
            losses.append(loss.item())
        return losses
    compare(prepare, loop)


@pattern(AREA, "torch.autograd.grad instead of backward")
def autograd_grad(prepare):
    def loop(p):
        model, _ = start(p, optimizer=None)
        losses = []
        for _ in range(STEPS):
            loss = error(model)
            found = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for q, g in zip(model.parameters(), found):
                    q.sub_(g, alpha=0.3)
            losses.append(loss.item())
        return losses
    compare(prepare, loop)


@pattern(AREA, "a hook on a parameter (register_hook)")
def parameter_hook(prepare):
    def loop(p):
        model, optimizer = start(p)
        first, seen = model[0].weight.detach().clone(), []

        def hook(gradient):
            seen.append(gradient.norm().item())
            return torch.zeros_like(gradient)
        model[0].weight.register_hook(hook)
        losses = learn(model, optimizer)
        assert len(seen) == STEPS and all(seen)
        assert torch.equal(first, model[0].weight)
        return losses
    compare(prepare, loop)


@pattern(AREA, "SAM: weights climb, a second forward and backward, weights return")
def sam(prepare):
    def loop(p):
        model, optimizer = start(p)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = error(model)
            loss.backward()
            with torch.no_grad():
                norm = utils.get_total_norm([q.grad for q in model.parameters()])
                climbs = [0.05 * q.grad / norm for q in model.parameters()]
                for q, e in zip(model.parameters(), climbs):
                    q.add_(e)
            optimizer.zero_grad()
            climbed = error(model)
            assert climbed > loss
            climbed.backward()
            with torch.no_grad():
                for q, e in zip(model.parameters(), climbs):
                    q.sub_(e)
            optimizer.step()
            losses.append(loss.item())
        return losses
    compare(prepare, loop)
