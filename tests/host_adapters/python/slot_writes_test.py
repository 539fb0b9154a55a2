"""What other code writes to weights and gradients in slots, also by collectives on two ranks without
DistributedDataParallel: it arrives as in plain torch, or is an error."""
import datetime
import re

import pytest
import torch
import torch.distributed as dist
from torch import nn

import octavo
import torchrun
from conftest import msamp, te

LR = 1e-3


def model_of():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 16))


def made(overrides):
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    return octavo.prepare(model, optimizer, overrides=overrides) if overrides else (model, optimizer)


def data(seed=0):
    return torch.randn(64, 32, generator=torch.Generator().manual_seed(seed))


def plain(p):
    return p.grad.plain() if hasattr(p.grad, "plain") else p.grad.clone()


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


# Two ranks, first: they are forked ------------------------------------------------------------------

def each(write):
    return lambda model: [write(p) for p in model.parameters()]


def waited_for_later(model):
    for work in [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]:
        work.wait()


def coalesced(model):
    with dist.distributed_c10d._coalescing_manager():
        for p in model.parameters():
            dist.all_reduce(p.grad)


def to_each(tensor):
    return [2 * tensor.detach(), 3 * tensor.detach()] if dist.get_rank() == 0 else None


GRADIENTS = {
    "all_reduce": each(lambda p: dist.all_reduce(p.grad)),
    "maximum": each(lambda p: dist.all_reduce(p.grad, dist.ReduceOp.MAX)),
    "data": each(lambda p: dist.all_reduce(p.grad.data)),
    "async": waited_for_later,
    "list": lambda model: dist.all_reduce_coalesced([p.grad for p in model.parameters()]),
    "coalesced": coalesced,
    "broadcast": each(lambda p: dist.broadcast(p.grad, 0)),
    "scatter": each(lambda p: dist.scatter(p.grad, to_each(p + 1), 0)),
    "all_to_all": each(lambda p: dist.all_to_all_single(p.grad, p.grad + 0)),
    "reduce_scatter": each(lambda p: dist.reduce_scatter_tensor(p.grad, torch.cat([p.grad, p.grad]))),
}
WEIGHTS = {
    "read before": each(lambda p: (p.norm(), dist.broadcast(p, 0))),
    "list": lambda model: dist.all_reduce_coalesced([p.data for p in model.parameters()]),
    "data": each(lambda p: dist.all_reduce(p.data)),
    "detach": each(lambda p: dist.broadcast(p.detach(), 0)),
    "view": each(lambda p: dist.broadcast(p.view(-1), 0)),
}
REFUSED = {
    "view": each(lambda p: dist.all_reduce(p.grad.view(-1))),
    "functional": each(lambda p: torch.ops._c10d_functional.all_reduce_(p.grad, "sum", dist.group.WORLD.group_name)),
    "weight": each(lambda p: dist.broadcast(p, 0)),
    "weights": lambda model: dist.all_reduce_coalesced(list(model.parameters())),
    "recv": lambda model: dist.irecv(model[0].weight.grad, 1 - dist.get_rank()),
}


def gradients(write, overrides):
    model, optimizer = made(overrides)
    model(data(dist.get_rank())).square().mean().backward()
    write(model)
    found = [plain(p) for p in model.parameters()]
    optimizer.step()
    return found


def weights(write, overrides):
    model, _ = made(overrides)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + dist.get_rank())
        model(data())
        write(model)
    return model(data()).detach()


def refused(write):
    model, _ = made(msamp("O2"))
    model(data()).square().mean().backward()
    before = octavo.torch.session_of(model).read(model[0].weight)
    try:
        with torch.no_grad():
            write(model)
    except (octavo.UnsupportedError, RuntimeError) as e:
        assert torch.equal(model[0].weight, before)
        return str(e)
    return "no error"


def run(folder):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    return {"gradients": {name: [gradients(write, o) for o in (None, msamp("O2"))] for name, write in GRADIENTS.items()},
            "weights": {name: [weights(write, o) for o in (None, msamp("O2"))] for name, write in WEIGHTS.items()},
            "refused": {name: refused(write) for name, write in REFUSED.items()}}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return torchrun.ranks_of(run, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", GRADIENTS)
def test_what_a_collective_writes_to_a_gradient_is_in_its_slot(ranks, name):
    ours = []
    for rank in ranks:
        theirs, found = rank["gradients"][name]
        # Casts of x, w and dy to FP8, and of the result: each a relative 2^-4 at most, at random.
        assert all(relative(b, a) < 0.15 for a, b in zip(theirs, found))
        ours.append(found)
    if name not in ("scatter", "all_to_all"):
        assert all(torch.equal(a, b) for a, b in zip(*ours))


@pytest.mark.parametrize("name", WEIGHTS)
def test_what_a_collective_writes_to_a_weight_is_in_its_slot(ranks, name):
    found = [rank["weights"][name] for rank in ranks]
    for theirs, ours in found:
        assert relative(ours, theirs) < 0.1  # rank 1's own weights are twice as large, or two thirds
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("name", REFUSED)
def test_a_collective_that_could_not_write_is_refused(ranks, name):
    for rank in ranks:
        assert re.match("a (gradient in FP8|weight in) slots: expected", rank["refused"][name])


# One process -----------------------------------------------------------------------------------------

WRITES = {
    "view": lambda g: g.view(-1).mul_(2),
    "row": lambda g: g.__setitem__(0, 0.0),
    "mask": lambda g: g.__setitem__(g > 0, 0.0),
    "out": lambda g: torch.add(g, g, out=g),
    "out of a view": lambda g: torch.neg(g[0], out=g[0]),
    "view of a view": lambda g: g.T.chunk(2)[1].zero_(),
    "list": lambda g: torch._foreach_add_([g], 1.0),
    "iterated": lambda g: [row.zero_() for row in g],
    "strided": lambda g: g.as_strided((4,), (1,)).zero_(),
    "set_": lambda g: g.set_(torch.zeros(64, 32)),
    "address": lambda g: g.data_ptr(),
    "dlpack": torch.from_dlpack,
}


@pytest.fixture
def gradient():
    model, _ = made(msamp("O2"))  # which is alive as long as the test runs
    model(data()).square().mean().backward()
    yield model[0].weight.grad


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_a_copy_would_take_is_refused(name, gradient):
    before = gradient.plain()
    with pytest.raises(octavo.UnsupportedError, match="in FP8 slots.*copy_"):
        WRITES[name](gradient)
    assert torch.equal(gradient.plain(), before)


def test_views_are_read_as_plain_values(gradient):
    values = gradient.plain()
    assert torch.equal(gradient.view(-1) + 0, values.view(-1)) and gradient[0].tolist() == values[0].tolist()
    assert torch.equal(torch.cat([gradient.T, gradient.t()]), torch.cat([values.T, values.T]))
    array = gradient[1].numpy()
    assert (array == values[1].numpy()).all()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0


def test_data_of_a_gradient_takes_values(gradient):
    gradient.data = torch.ones(64, 32)
    assert torch.equal(gradient.plain(), torch.ones(64, 32))


def halve(x):
    x.mul_(0.5)


def test_ops_that_do_not_declare_what_they_write(gradient):
    library = torch.library.Library("octavo_writes", "FRAGMENT")
    library.define("half(Tensor x) -> ()")
    library.define("total(Tensor x) -> Tensor")
    library.define("honest(Tensor(a!) x) -> ()")
    library.impl("half", halve, "CompositeExplicitAutograd")
    library.impl("total", torch.sum, "CompositeExplicitAutograd")
    library.impl("honest", halve, "CompositeExplicitAutograd")
    own = torch.ops.octavo_writes
    before = gradient.plain()
    own.half(gradient)
    assert torch.equal(gradient.plain(), before / 2)
    assert torch.equal(own.total(gradient), before.sum() / 2)
    assert torch.equal(own.total(gradient.view(-1)), before.sum() / 2)
    for call in (lambda: own.half(gradient[0]), lambda: own.honest(gradient)):
        with pytest.raises(octavo.UnsupportedError, match="in FP8 slots"):
            call()
    assert torch.equal(gradient.plain(), before / 2)


CHANGES = {
    "set_": lambda w: w.set_(torch.ones(64, 32)),
    "storage": lambda w: w.untyped_storage().copy_(torch.ones(64, 32).untyped_storage()),
    "numpy": lambda w: w.detach().numpy().fill(1.0),
    "dlpack": lambda w: torch.from_dlpack(w.detach()).fill_(1.0),
    "view": lambda w: w.view(-1).fill_(1.0),
    "list": lambda w: torch._foreach_copy_([w], [torch.ones(64, 32)]),
    "out": lambda w: torch.ones(64, 32, out=w),
}


@pytest.mark.parametrize("name", CHANGES)
def test_writes_to_a_weight_arrive(name):
    found = []
    for overrides in (None, msamp("O2")):
        model, _ = made(overrides)
        with torch.no_grad():
            model[0](data())
            CHANGES[name](model[0].weight)
            found.append(model[0](data()))
    assert relative(found[1], found[0]) < 0.1


def swap(model):
    torch.utils.swap_tensors(model[0].weight, nn.Parameter(torch.ones(64, 32)))


@pytest.mark.parametrize("change, kind", [
    (nn.Module.half, octavo.InvalidError), (nn.Module.bfloat16, octavo.InvalidError), (nn.Module.double, octavo.InvalidError),
    (lambda model: setattr(model[0].weight, "data", torch.ones(60, 32)), octavo.InvalidError),
    (lambda model: model[0].weight.set_(torch.ones(60, 32)), octavo.InvalidError), (swap, octavo.StateError)])
@pytest.mark.parametrize("overrides", [te("current"), msamp("O2")], ids=["te", "msamp"])
def test_another_dtype_shape_or_tensor(overrides, change, kind):
    """te says so in the next forward. It takes a swapped tensor for what it is."""
    model, _ = made(overrides)
    with torch.no_grad():
        if change is swap and overrides == te("current"):
            change(model)
            assert relative(model[0](data()) - model[0].bias, data().sum(1, keepdim=True).expand(64, 64)) < 0.1
        else:
            with pytest.raises(kind, match="prepare"):
                change(model)
                model(data())


def stepped(model, optimizer):
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()


@pytest.mark.parametrize("goes_on", [True, False], ids=["forward", "no forward"])
@pytest.mark.parametrize("change", [lambda m, o: m[0].weight.mul_(2), lambda m, o: m.load_state_dict(m.state_dict()), stepped,
                                    lambda m, o: m[0].weight.set_(torch.ones(64, 32))],
                         ids=["in place", "load", "step", "set_"])
@pytest.mark.parametrize("overrides", [None, te("current"), msamp("O2")], ids=["plain", "te", "msamp"])
def test_a_weight_that_changes_before_backward_is_an_error(overrides, change, goes_on):
    model, optimizer = made(overrides)
    loss = model(data().requires_grad_()).square().mean()
    with torch.no_grad():
        change(model, optimizer)
    if goes_on:
        model(data())
    with pytest.raises((RuntimeError, octavo.StateError), match="modified by an inplace operation"):
        loss.backward()


def test_a_step_of_other_weights_and_a_read_change_nothing():
    """As in a GAN, with one session for both parts."""
    model = model_of()
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model[3].parameters(), lr=LR, weight_decay=0.0),
                                      overrides=msamp("O2"))
    x = data().requires_grad_()
    loss = model[0](x).square().mean() + model[0].weight.square().sum()
    model[3](data()[:, :1].expand(64, 64)).square().mean().backward()
    optimizer.step()
    model[0].weight.detach().sum()
    loss.backward()
    assert x.grad.norm() > 0


@pytest.mark.parametrize("how", ["grad", "inputs", "penalty"])
@pytest.mark.parametrize("overrides", [te("current"), msamp("O1"), msamp("O2")], ids=["te", "O1", "O2"])
def test_a_gradient_of_the_input_alone_leaves_those_of_weights_alone(overrides, how):
    """Adversarial examples, saliency, attribution: between zero_grad and backward, or after a backward."""
    model, optimizer = made(overrides)
    x = data().requires_grad_()

    def ask():
        loss = model(x).square().mean()
        if how == "inputs":
            loss.backward(inputs=[x])
        else:
            torch.autograd.grad(loss, x, retain_graph=how == "penalty")

    optimizer.zero_grad()
    ask()
    assert all(p.grad is None for p in model.parameters())
    model(x).square().mean().backward()
    once = [plain(p) for p in model.parameters()]
    ask()
    assert all(torch.equal(plain(p), g) for p, g in zip(model.parameters(), once))
    optimizer.step()
