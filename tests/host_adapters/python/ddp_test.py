"""Two ranks of torch.distributed on gloo: scales, gradients in slots, and what crosses the wire."""
import pytest
import torch

from conftest import msamp, session, te
from ddp_ranks import FROM_1, ROWS, SIZES, WORLD, made, rank_main, train
from octavo import _abi
from octavo.torch.ranks import ddp
from octavo.torch.ranks.ddp import ALL_GATHER, ALL_REDUCE_MAX, ALL_TO_ALL, NONE


@pytest.fixture(scope="module")
def ranks(request, tmp_path_factory):
    """What each rank found: one pair of processes for all tests of this file."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(rank_main, (str(folder), request.config.getoption("--device")),
                                nprocs=WORLD)
    return [torch.load(folder / str(rank), weights_only=False) for rank in range(WORLD)]


def of(ranks, name, key):
    return [rank[name][key] for rank in ranks]


def assert_equal_bits(a, b):
    assert a.keys() == b.keys() and len(a) > 0
    for key in a:
        assert torch.equal(a[key].view(torch.uint8), b[key].view(torch.uint8)), key


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("name", ["te", "msamp", "blocking"])
def test_state_is_equal_on_every_rank(ranks, name):
    assert_equal_bits(*of(ranks, name, "state"))


def test_te_on_two_ranks_is_the_whole_batch_on_one(ranks):
    model, optimizer = made(FROM_1, sgd=0.1)
    losses, first = train(model, optimizer, 6, 0, 1)
    halves = of(ranks, "te", "first")
    # Every code and scale is equal; what differs is the order of float32 sums over ROWS products,
    # whose sizes sum up to at most max |dy| * sum |x| <= 1 / ROWS * 8 ROWS.
    bound = 2 * ROWS * 2**-24 * 8
    for name, gradient in first.items():
        assert torch.equal(halves[0][name], halves[1][name])
        gradient = gradient.cpu()
        assert (gradient - WORLD * halves[0][name]).abs().max() <= bound
        assert gradient.abs().max() > 20 * bound
    # Later a code may fall to its neighbour: a relative 2^-3 of one product in at least 32.
    sums = [sum(pair) for pair in zip(*of(ranks, "te", "losses"))]
    assert sums[0] == pytest.approx(losses[0], rel=1e-6)
    assert sums == pytest.approx(losses, rel=2**-3 / 32)
    assert losses[-1] != losses[0]


def test_communication_hooks_see_what_ddp_reduces(ranks):
    """All of te's gradients; with msamp, what is in slots is no part of a bucket."""
    for with_hook, without in zip(of(ranks, "te hook", "state"), of(ranks, "te", "state")):
        assert_equal_bits(with_hook, without)
    for rank in ranks:
        (te_seen, te_all), (msamp_seen, msamp_all) = rank["hook"]
        assert te_seen == te_all > msamp_seen == msamp_all > 0


def test_gradients_in_slots_become_the_mean(ranks):
    local, shared = of(ranks, "mean", "local"), of(ranks, "mean", "shared")
    assert_equal_bits(*shared)
    assert_equal_bits(*of(ranks, "mean", "accumulated"))
    weights = [f"layers.{i}.weight" for i in range(3)]
    for name in weights:
        mean = (local[0][name] + local[1][name]) / 2
        assert relative(local[0][name], mean) > 0.2  # so that doing nothing would show
        # Two casts to E4M3 and one sum in it: each rounds by at most 2^-4, about 2^-5.3 or so.
        assert relative(shared[0][name], mean) < 0.08
    assert torch.equal(*of(ranks, "mean", "norm"))
    assert of(ranks, "mean", "quiet") == [0, 0]


def test_overlapped_buckets_give_the_same_bits(ranks):
    for a, b in zip(of(ranks, "msamp", "state"), of(ranks, "blocking", "state")):
        assert_equal_bits(a, b)
    assert of(ranks, "blocking", "early") == [0, 0]
    early, buckets = ranks[0]["msamp"]["early"], ranks[0]["msamp"]["buckets"]
    assert buckets >= 3
    assert early > 0


def spans(events, name):
    found = [(start, end) for event, start, end in events if event == name]
    assert found, f"no {name} among {sorted({event for event, _, _ in events})}"
    return found


FIRST_OF_A_BUCKET = ("octavo::run_stage", "c10d::alltoall_base_")


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_optimizer_state_on_one_rank_each_gives_the_same_bits(ranks, how):
    """On every device; the rest is in shard_state_test.py."""
    for rank in ranks:
        whole, sharded = rank["sharded"][how, None], rank["sharded"][how, True]
        assert_equal_bits(sharded["state"], whole["state"])
        assert sharded["masters"] < whole["masters"]
    assert sum(rank["sharded"][how, True]["masters"] for rank in ranks) == ranks[0]["sharded"][how, None]["masters"]


def test_fp8_collectives_begin_before_the_last_gradient_exists(ranks):
    """By torch's own clock. The gradient that comes last is that of the first layer: the last
    linear_backward."""
    for rank in ranks:
        overlapped, blocking = rank["order"]
        last = spans(overlapped, "octavo::linear_backward")[-1]
        assert len(spans(overlapped, "octavo::linear_backward")) == 3
        # The maxima of the first bucket, then its codes; the last bucket's come after its gradient.
        for name in FIRST_OF_A_BUCKET:
            assert spans(overlapped, name)[0][0] < last[0], name
            assert spans(overlapped, name)[-1][0] > last[1], name
        last = spans(blocking, "octavo::linear_backward")[-1]
        for name in FIRST_OF_A_BUCKET:
            assert spans(blocking, name)[0][0] > last[1], name


def test_wire_bytes_are_those_of_the_stages(ranks):
    for rank in ranks:
        run = rank["msamp"]
        bytes_per_step = 0
        for collective, dtype, send, _ in run["stages"]:
            width = 4 if dtype == _abi.F32 else 1
            factor = {NONE: 0, ALL_REDUCE_MAX: 2 * (WORLD - 1) / WORLD,
                      ALL_TO_ALL: (WORLD - 1) / WORLD,
                      ALL_GATHER: WORLD - 1}[collective]
            bytes_per_step += factor * width * send
        assert run["wire"] == 4 * bytes_per_step
        assert run["calls"] == 4 * len(run["stages"])
        elements = sum(n * k for k, n in zip(SIZES, SIZES[1:])) + 2 * 64 * 64
        assert bytes_per_step < 0.3 * 4 * elements * 2 * (WORLD - 1) / WORLD  # of float32's


def test_a_layer_that_one_rank_uses_moves_on_all(ranks):
    assert torch.equal(*of(ranks, "unused", "extra"))
    assert torch.equal(*of(ranks, "unused", "weight"))
    assert of(ranks, "unused", "moved") == [True, True]
    assert of(ranks, "unused", "never") == [True, True]
    assert of(ranks, "unused", "kept") == [True, True]


def test_ranks_that_began_differently_are_refused(ranks):
    assert [rank["unequal"] for rank in ranks] == ["StateError"] * 2


def test_a_gradient_that_comes_after_its_bucket_is_refused(ranks):
    for rank in ranks:
        assert "overlap=False" in rank["late"]


def test_compiled_graphs_reduce_before_clipping(ranks):
    assert torch.equal(*of(ranks, "compiled", "norms"))
    assert_equal_bits(*of(ranks, "compiled", "state"))


@pytest.mark.skipif("config.getoption('--device') != 'fake_device'", reason="needs a fake driver")
def test_two_ranks_on_one_gpu_are_refused_before_nccl(ranks):
    first, second = (rank["one gpu"] for rank in ranks)
    assert first == ["prepared"] * 2
    assert f"found ranks 0 and 1 on one (fake_device:0, UUID {7:032})" in second[0]
    assert "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))" in second[0]
    assert second[1] == second[0] and second[2:] == ["prepared"] * 3


def test_ddp_is_told_which_parameters_lie_in_slots():
    model, _ = made(msamp("O2"))
    weights = {n for n, p in model.named_parameters() if p.dim() == 2}
    assert set(ddp.ignored_names(model, session(model))) == weights
    model, _ = made(te("delayed"))
    assert ddp.ignored_names(model, session(model)) == []
