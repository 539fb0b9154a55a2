"""Usage patterns: norms of gradients, and clipping."""
from torch.nn import utils

import octavo
from patterns import PLAIN, compare, error, is_prepared, learn, pattern, start, values
from patterns_gradients import AREA


@pattern(AREA, "torch.nn.utils.clip_grad_norm_")
def clip_norm(prepare):
    norms = {}

    def loop(p):
        def between(model):
            before = utils.clip_grad_norm_(model.parameters(), 0.05)
            after = utils.get_total_norm([q.grad for q in model.parameters()])
            norms.setdefault(p is PLAIN, []).append(before.item())
            # A factor in float32
            assert abs(after.item() - min(0.05, before.item())) < 1e-4
        return learn(*start(p), between=between)
    compare(prepare, loop)
    # Gradients are sums of 64 products with E5M2's error of 2^-3 / sqrt(12) * 1.4: 5 % of the norm.
    assert all(abs(f - e) < 0.1 * norms[True][0] for f, e in zip(norms[False], norms[True]))


@pattern(AREA, "octavo.clip_grad_norm_(model, ...)")
def clip_octavo(prepare):
    def loop(p):
        def between(model):
            octavo.clip_grad_norm_(model if is_prepared(model) else model.parameters(), 0.05)
            assert utils.get_total_norm([q.grad for q in model.parameters()]) < 0.0501
        return learn(*start(p), between=between)
    compare(prepare, loop)


@pattern(AREA, "torch.nn.utils.clip_grad_value_")
def clip_value(prepare):
    def loop(p):
        def between(model):
            utils.clip_grad_value_(model.parameters(), 1e-3)
            for q in model.parameters():
                # msamp stores the result in E4M3, whose nearest value may be 2^-4 larger
                assert (q.grad + 0).abs().max() <= 1e-3 * (1 + 2**-4)
        return learn(*start(p), between=between)
    compare(prepare, loop)


@pattern(AREA, "the norm of each gradient in a log")
def logged(prepare):
    model, optimizer = start(prepare)
    twin, _ = start(PLAIN)
    learn(model, optimizer, 3)
    optimizer.zero_grad()
    error(model).backward()
    twin.load_state_dict(values(model))
    twin.zero_grad()
    error(twin).backward()
    for p, q in zip(model.parameters(), twin.parameters()):
        # as in clip_norm, and delayed scales are those of the step before
        assert abs(p.grad.norm() - q.grad.norm()) < 0.1 * q.grad.norm()
        assert ((p.grad + 0) - q.grad).norm() < 0.2 * q.grad.norm()


@pattern(AREA, "adaptive clipping by the norm of the weight (AGC)")
def adaptive(prepare):
    def loop(p):
        def between(model):
            for q in model.parameters():
                limit = 0.05 * q.detach().norm() + 1e-6
                norm = q.grad.norm()
                if norm > limit:
                    q.grad.mul_(limit / norm)
                    assert abs(q.grad.norm() - limit) < 1e-3 * limit
        return learn(*start(p), between=between)
    compare(prepare, loop)
