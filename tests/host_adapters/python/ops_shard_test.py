"""The ops of octavo.shard/1: ranks that cast some rows each leave the codes of the whole weight."""
import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te
from octavo import _abi
from octavo.torch import ops
from octavo.torch.slots import CODES
from ops_arguments_test import raised

N, K, M = 256, 160, 32
OPS = torch.ops.octavo
RECIPES = ("delayed", "current", "block", "mx")
RANKS = (1, 2)


def prepared(recipe="current", **options):
    torch.manual_seed(0)
    model = nn.Linear(K, N, bias=False)
    octavo.prepare(model, overrides=te(recipe, **options))
    s = session(model)
    return s, s.weights[0], torch.randn(M, K), torch.randn(M, N)


def planned(s, w, rows):
    packet_bytes, refusal = ops.plan_shard(s.number, w.id, rows)
    assert refusal is None
    return packet_bytes


def packets_of(s, w, ranks):
    """What an all-gather of the packets gives, and the maximum."""
    parts = w.parameter.detach().chunk(ranks)
    size = planned(s, w, parts[0].shape[0])
    maxima = torch.zeros(ranks)
    for rank, part in enumerate(parts):
        OPS.shard_measure(s.number, [w.id], [part], maxima[rank:rank + 1])
    amax = maxima.max().reshape(1)
    assert amax == w.parameter.abs().max()
    packets = torch.zeros(ranks * size, dtype=torch.uint8)
    for part, packet in zip(parts, packets.chunk(ranks)):
        OPS.shard_cast(s.number, w.id, part, amax, packet)
    return packets, amax


def forward(s, x, weight=None, version=ops.PACKED, flags=0):
    return OPS.linear_forward(s.number, 0, flags, version, x, weight, None)


def backward(s, dy, saved, weight=None, flags=ops.OF_PACKED):
    flags |= _abi.BACKWARD_OVERWRITE
    return OPS.linear_backward(s.number, 0, flags, ops.WANT_DX | ops.WANT_DW, dy, None, saved, weight, None)


def slots(s):
    return {slot.name: s.tensors[slot.id].clone() for slot in s.slots if s.tensors[slot.id] is not None}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_packets_leave_what_the_whole_weight_leaves(recipe, ranks):
    """Slots, results and gradients of two steps, the second with the scales of the first."""
    s, w, x, dy = prepared(recipe)
    t, v, _, _ = prepared(recipe)
    for step in range(2):
        OPS.shard_gathered(s.number, w.id, *packets_of(s, w, ranks))
        y, saved = forward(s, x)
        expected, kept = forward(t, x, v.parameter.detach(), ops.ASK_TORCH)
        assert torch.equal(y, expected)
        for a, b in zip(backward(s, dy, saved)[:2], backward(t, dy, kept, v.parameter.detach(), 0)):
            assert torch.equal(a, b)
        for found in (s, t):
            OPS.end_step(found.number)
        assert slots(s).keys() == slots(t).keys()
        for name, value in slots(s).items():
            assert torch.equal(value, slots(t)[name]), (step, name)
    assert ops.calls(s.number, _abi.VERB_QUANTIZE_WEIGHT) == 2


def test_packets_serve_one_step():
    s, w, x, dy = prepared()
    for _ in range(2):
        text = raised(octavo.StateError, forward, s, x)
        assert "weight: expected codes that were gathered since the last step, found none" in text
        OPS.shard_gathered(s.number, w.id, *packets_of(s, w, 2))
        _, saved = forward(s, x)
        OPS.end_step(s.number)
    assert "reshard()" in raised(octavo.StateError, backward, s, dy, saved)
    OPS.shard_gathered(s.number, w.id, *packets_of(s, w, 2))
    nothing = torch.empty(0, dtype=torch.uint8)
    OPS.shard_gathered(s.number, w.id, nothing, nothing)
    raised(octavo.StateError, forward, s, x)


def test_packets_are_placed_again_where_a_weight_would_be_quantized_again():
    s, w, x, dy = prepared()
    packets, amax = packets_of(s, w, 2)
    OPS.shard_gathered(s.number, w.id, packets, amax)
    y = forward(s, x)[0]
    other = w.parameter.detach() * 3
    assert not torch.equal(forward(s, x, other, ops.ASK_TORCH)[0], y)  # has taken the place of the codes
    assert torch.equal(forward(s, x)[0], y)
    packets.zero_()
    assert torch.equal(forward(s, x)[0], y)
    s.flags.set(w.id, CODES)
    assert not torch.equal(forward(s, x)[0], y)


def test_an_evaluation_in_the_hosts_precision_reads_the_weight():
    s, w, x, _ = prepared()
    OPS.shard_gathered(s.number, w.id, *packets_of(s, w, 2))
    flags = ops.NO_BACKWARD | ops.QUIET | _abi.FORWARD_EVALUATION
    text = raised(octavo.UnsupportedError, forward, s, x, None, ops.PACKED, flags)
    assert "use_autocast_during_eval = true" in text and 'gather="values"' in text
    t, v, _, _ = prepared(use_autocast_during_eval=True)
    OPS.shard_gathered(t.number, v.id, *packets_of(t, v, 2))
    assert torch.equal(forward(t, x, None, ops.PACKED, flags)[0], forward(s, x)[0])


def test_what_a_backend_refuses():
    s, w, _, _ = prepared("block")
    packet_bytes, refusal = ops.plan_shard(s.number, w.id, 64)
    assert packet_bytes is None and "expected shards of a multiple of 128 rows" in refusal
    model = nn.Linear(K, N)
    octavo.prepare(model, overrides=msamp("O1"))
    assert ops.plan_shard(session(model).number, 0, N)[1] == "octavo.torch: octavo.shard/1: the backend has none"
    with pytest.raises(octavo.InvalidError, match="one row or more, found 0"):
        ops.plan_shard(s.number, w.id, 0)
    with pytest.raises(octavo.InvalidError, match="parameter 1: expected a number below 1"):
        ops.plan_shard(s.number, 1, 128)
    s.close()
    with pytest.raises(octavo.StateError, match="number of an open run"):
        ops.plan_shard(s.number, w.id, 128)


def test_wrong_arguments():
    s, w, _, _ = prepared()
    part, one = w.parameter.detach()[:128], torch.zeros(1)
    packet = torch.zeros(1 << 16, dtype=torch.uint8)
    text = raised(octavo.StateError, OPS.shard_cast, s.number, w.id, part, one, packet)
    assert "expected a plan of its shards" in text
    size = planned(s, w, 128)
    packet = torch.zeros(size, dtype=torch.uint8)
    for id in (-1, 99):
        assert f"parameter {id}" in raised(octavo.InvalidError, OPS.shard_cast, s.number, id, part, one, packet)
    for shard in (part[:, 1:], part[:, 1:].contiguous(), part.double(), part.bfloat16(), w.parameter.detach(),
                  part[0]):
        assert "shard: expected" in raised(octavo.InvalidError, OPS.shard_cast, s.number, w.id, shard, one, packet)
    for amax in (one.double(), one[:0]):
        assert "amax: expected at least 1" in raised(octavo.InvalidError, OPS.shard_cast, s.number, w.id, part,
                                                     amax, packet)
    for bad in (packet[1:], packet[:0], packet.float(), torch.zeros(2 * size, dtype=torch.uint8)):
        assert "packet" in raised(octavo.InvalidError, OPS.shard_cast, s.number, w.id, part, one, bad)
    assert "expected 2 shards, found 1" in raised(octavo.InvalidError, OPS.shard_measure, s.number, [w.id] * 2,
                                                  [part], torch.zeros(2))
    misplaced = torch.zeros(2 * size + 1, dtype=torch.uint8)[1:]
    assert "at a multiple of" in raised(octavo.InvalidError, OPS.shard_gathered, s.number, w.id, misplaced, one)
    OPS.shard_gathered(s.number, w.id, packet, one)  # of one rank of two
    with pytest.raises(RuntimeError, match="expected packets for all of its 256 rows, found 1 for 128"):
        forward(s, torch.randn(M, K))
