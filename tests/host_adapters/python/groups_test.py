"""Who talks to whom: the group of a session, ranks that differ, ranks that train alone. Two
processes of torch.distributed on gloo, which must never wait for one another."""
import datetime
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import octavo
from conftest import msamp, session, te
from guide_parts import mlp
from octavo.torch.ranks import ddp

WORLD = 2


def model_of(rank=0, sizes=(16, 32, 8)):
    torch.manual_seed(3)
    return mlp(*sizes)


def made(overrides, sizes=(16, 32, 8), **options):
    model = model_of(sizes=sizes)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    return octavo.prepare(model, adam, overrides=overrides, **options)


def step(model, optimizer, scale=1.0, inputs=16):
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(5)
    model(scale * torch.randn(8, inputs, generator=generator)).square().mean().backward()
    optimizer.step()


def scale_of(model, name="x/scale"):
    s = session(model)
    return next(t for d, t in zip(s.slots, s.tensors) if d.name == name).flatten().tolist()


def error_of(call):
    try:
        call()
    except octavo.OctavoError as e:
        return f"{type(e).__name__}: {e}"
    return "no error"


def alone(rank, overrides):
    """Rank 0 alone trains, while the group exists."""
    if rank == 0:
        model, optimizer = made(overrides)
        for _ in range(3):
            step(model, optimizer)
    return "done"


def stages(rank):
    """Two unrelated models, one on each rank, with inputs of another size and another number of
    steps."""
    model, optimizer = made(te(), sizes=(16, 16) if rank else (16, 32, 8))
    for _ in range(2 + rank):
        step(model, optimizer, scale=1000.0 if rank == 0 else 1.0)
    return scale_of(model)


def given_group(rank):
    """octavo.prepare(group=): equal scales without a wrapper; a group of one rank is alone."""
    model, optimizer = made(te(), group=dist.group.WORLD)
    own = [dist.new_group([r]) for r in range(WORLD)][rank]
    single, stepper = made(te(), group=own)
    for m, o in ((model, optimizer), (single, stepper)):
        for _ in range(2):
            step(m, o, scale=1.0 + 9 * rank)
    return scale_of(model), scale_of(single)


def not_reduced(rank):
    """fp8.te.reduce_amax = false under DDP: no collective but DDP's own."""
    model, optimizer = made(te("delayed", reduce_amax=False))
    wrapped = DistributedDataParallel(model)
    for _ in range(2):
        step(wrapped, optimizer, scale=1.0 + 9 * rank)
    return scale_of(model)


def infinite(rank):
    """The same option, when a backward meets Inf on rank 0 alone: every rank sees NaN, as in torch."""
    model, optimizer = made(te("delayed", reduce_amax=False))
    wrapped = DistributedDataParallel(model)
    y = wrapped(torch.ones(4, 16))
    (y * (float("inf") if rank == 0 else 1.0)).sum().backward()
    return any(p.grad.isnan().any().item() for p in model.parameters())


def joined(rank, overrides):
    """DistributedDataParallel.join with uneven numbers of batches."""
    from torch.distributed.algorithms.join import Join
    model, optimizer = made(overrides)
    wrapped = DistributedDataParallel(model)

    def train():
        with Join([wrapped]):
            for _ in range(2 + rank):
                step(wrapped, optimizer)

    return error_of(train)


def differing(rank, what):
    overrides, sizes = te(), (16, 32, 8)
    if what == "layers" and rank:
        sizes = (16, 32, 32, 8)
    elif what == "shapes" and rank:
        sizes = (16, 48, 8)
    elif what == "options" and rank:
        overrides = te("delayed", amax_history_len=7)
    elif what == "backend" and rank:
        overrides = te("current")
    model, optimizer = made(overrides, sizes=sizes, group=dist.group.WORLD)
    return error_of(lambda: step(model, optimizer))


def late_rank(rank):
    """A rank whose weights in slots are others: named on every rank."""
    torch.manual_seed(rank)
    model = mlp(16, 32, 8)
    model, optimizer = octavo.prepare(
        model, torch.optim.AdamW(model.parameters(), weight_decay=0.0), overrides=msamp(),
        group=dist.group.WORLD)
    return error_of(lambda: step(model, optimizer))


def compiled(rank):
    """A compiled DDP finds its group, too."""
    model, optimizer = made(te())
    wrapped = torch.compile(DistributedDataParallel(model), backend="aot_eager")
    for _ in range(2):
        step(wrapped, optimizer, scale=1.0 + 9 * rank)
    return scale_of(model)


def dense_gradient(rank):
    """A head that other code multiplies by: its gradient is averaged with those in slots."""
    model, optimizer = made(msamp())
    wrapped = ddp.join(DistributedDataParallel(model))
    head, first = model[2], [p.detach().clone() for p in model.parameters()]
    optimizer.zero_grad()
    hidden = model[1](model[0](torch.full((4, 16), 1.0 + rank)))
    nn.functional.linear(hidden, head.weight, head.bias).square().mean().backward()
    optimizer.step()
    moved = [not torch.equal(p, q) for p, q in zip(model.parameters(), first)]
    return moved, [p.detach().clone() for p in (model[0].weight, head.weight)]


RUNS = {"alone te": lambda r: alone(r, te()), "alone msamp": lambda r: alone(r, msamp()),
        "infinite": infinite, "stages": stages, "given": given_group, "not reduced": not_reduced,
        "join": lambda r: joined(r, te()),
        "join unreduced": lambda r: joined(r, te("delayed", reduce_amax=False)),
        **{what: (lambda r, w=what: differing(r, w))
           for what in ("layers", "shapes", "options", "backend")},
        "values": late_rank, "compiled": compiled, "dense": dense_gradient}


def rank_main(rank, folder):
    torch.set_num_threads(1)
    found = {}
    for i, (name, run) in enumerate(RUNS.items()):
        dist.init_process_group("gloo", f"file://{folder}/meeting{i}", rank=rank, world_size=WORLD,
                                timeout=datetime.timedelta(seconds=60))
        found[name] = run(rank)
        dist.barrier()
        dist.destroy_process_group()
    torch.save(found, f"{folder}/{rank}")
    os._exit(0)  # as in ddp_ranks.py: no thread of gloo outlives the interpreter


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each rank found: one pair of processes for all tests of this file."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(rank_main, (str(folder),), nprocs=WORLD)
    return [torch.load(folder / str(rank), weights_only=False) for rank in range(WORLD)]


def of(ranks, name):
    return [rank[name] for rank in ranks]


def test_training_on_one_rank_waits_for_nobody(ranks):
    assert of(ranks, "alone te") == of(ranks, "alone msamp") == ["done", "done"]


def test_unrelated_models_share_no_scales(ranks):
    large, small = of(ranks, "stages")
    assert len(large) == 2 and len(small) == 1
    assert small[0] > 100 * large[0]  # inputs 1000 times smaller


def test_the_group_that_was_given(ranks):
    (a, alone_a), (b, alone_b) = of(ranks, "given")
    assert a == b and alone_a != alone_b
    assert a[0] == min(alone_a[0], alone_b[0])


def test_reduce_amax_false_communicates_nothing(ranks):
    a, b = of(ranks, "not reduced")
    assert a[0] > 5 * b[0]


def test_without_communication_inf_is_nan_on_every_rank(ranks):
    assert of(ranks, "infinite") == [True, True]


def test_join_is_refused_at_once_or_works(ranks):
    for text in of(ranks, "join"):
        assert text.startswith("StateError") and "reduce_amax = false" in text, text
    assert of(ranks, "join unreduced") == ["no error", "no error"]


@pytest.mark.parametrize("what, named", [
    ("layers", "the layers (names)"), ("shapes", "the layers (shapes and dtypes)"),
    ("options", "the options"), ("backend", "the options"), ("values", "the weights in slots")])
def test_ranks_that_differ_are_named_on_every_rank(ranks, what, named):
    for text in of(ranks, what):
        assert text.startswith("StateError") and named in text and "rank 1" in text, text


def test_a_compiled_wrapper_is_found(ranks):
    a, b = of(ranks, "compiled")
    assert a == b


def test_gradients_of_other_code_are_averaged(ranks):
    (moved, values), (_, others) = of(ranks, "dense")
    assert all(moved)
    assert all(torch.equal(a, b) for a, b in zip(values, others))
