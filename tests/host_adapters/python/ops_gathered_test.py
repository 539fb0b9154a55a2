"""Weights that are gathered into memory that comes and goes, at the level of the ops: codes whose
memory was released and came back elsewhere, and the flags in the place of a version."""
import pytest
import torch
from torch import nn

import octavo
from conftest import session, te
from octavo import _abi
from octavo.torch import ops
from octavo.torch.slots import hold_codes, release_codes
from octavo.torch.slots import CODES, MOVED

N, K, M = 64, 32, 32
RECIPES = ("delayed", "current", "mx")
OPS = torch.ops.octavo


def prepared(recipe="delayed"):
    model = nn.Linear(K, N, bias=False)
    octavo.prepare(model, overrides=te(recipe))
    s = session(model)
    return s, s.weights[0], torch.randn(M, K), torch.randn(M, N)


def forward(s, x, weight, flags=0, version=ops.GATHERED):
    return OPS.linear_forward(s.number, 0, flags, version, x, weight, None)


def backward(s, dy, saved, weight, flags=ops.OF_GATHERED):
    flags |= _abi.BACKWARD_OVERWRITE
    return OPS.linear_backward(s.number, 0, flags, ops.WANT_DX | ops.WANT_DW, dy, None, saved, weight, None)


def quantized(s):
    return ops.calls(s.number, _abi.VERB_QUANTIZE_WEIGHT)


@pytest.mark.parametrize("recipe", RECIPES)
def test_codes_come_back_elsewhere_before_a_forward_and_before_a_backward(recipe):
    s, w, x, dy = prepared(recipe)
    weight = w.parameter.detach().clone()
    y, saved = forward(s, x, weight)
    expected = backward(s, dy, saved, weight)
    before = {slot.id: s.tensors[slot.id].data_ptr() for slot in s.caches[w.id]}
    kept = []
    for run in (lambda: [forward(s, x, weight)[0]], lambda: backward(s, dy, saved, weight)[:2]):
        release_codes(s, [w])
        assert all(s.tensors[id].untyped_storage().nbytes() == 0 for id in before)
        kept += [torch.full((N, K), 255, dtype=torch.uint8) for _ in range(8)]  # takes what was freed
        hold_codes(s, [w])
        count = quantized(s)
        for a, b in zip(run(), [y] if len(kept) == 8 else expected):
            assert torch.equal(a, b)
        assert quantized(s) == count + 1
    assert any(s.tensors[id].data_ptr() != address for id, address in before.items())


def test_flags_alone_say_that_a_gathered_weight_is_another_one():
    s, w, x, _ = prepared("current")
    weight = w.parameter.detach().clone()
    y = forward(s, x, weight)[0]
    other = torch.randn(N, K)
    assert torch.equal(forward(s, x, other)[0], y)  # another address is no other weight
    weight.mul_(3)                                   # nor is another version
    assert torch.equal(forward(s, x, weight)[0], y)
    s.flags.set(w.id, CODES)
    scaled = forward(s, x, weight)[0]
    assert not torch.equal(scaled, y)
    assert quantized(s) == 2
    s.flags.set(w.id, CODES | MOVED)
    assert torch.equal(forward(s, x, weight)[0], scaled)


def test_a_weight_that_moved_since_a_backward_is_a_boundary_and_one_gathered_again_is_none():
    s, w, x, dy = prepared()
    weight = w.parameter.detach().clone()
    steps = []
    for flags in (CODES, CODES, CODES | MOVED):
        s.flags.set(w.id, flags)
        _, saved = forward(s, x, weight)
        backward(s, dy, saved, weight)
        steps.append(ops.calls(s.number, _abi.VERB_END_STEP))
    assert steps == [0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_narrower_gathered_weight_is_widened_and_gives_its_dtype_to_the_gradient(dtype):
    s, w, x, dy = prepared("current")
    narrow = w.parameter.detach().to(dtype)
    y, saved = forward(s, x, narrow)
    dx, dw, _ = backward(s, dy, saved, narrow)
    t, u, _, _ = prepared("current")
    wide, saved = forward(t, x, narrow.float())
    dx_wide, dw_wide, _ = backward(t, dy, saved, narrow.float())
    assert torch.equal(y, wide) and torch.equal(dx, dx_wide)
    assert dw.dtype == dtype and torch.equal(dw, dw_wide.to(dtype))
    with pytest.raises(RuntimeError, match="expected 2048 elements of float32"):
        forward(t, x, narrow, version=ops.ASK_TORCH)


def test_released_memory_is_an_error_and_no_crash():
    s, w, x, dy = prepared()
    weight = w.parameter.detach().clone()
    _, saved = forward(s, x, weight)
    weight.untyped_storage().resize_(0)
    s.flags.set(w.id, CODES)
    for run in (lambda: forward(s, x, weight), lambda: backward(s, dy, saved, weight)):
        with pytest.raises(RuntimeError, match="octavo status 3.*expected its values, found memory that was "
                                               "released.*set_unshard_in_backward"):
            run()
    release_codes(s, [w])
    with pytest.raises(RuntimeError, match="octavo status 3.*expected memory for its codes.*to_empty"):
        forward(s, x, w.parameter.detach())


def test_slots_of_no_run_and_no_slots_of_a_run():
    s, _, _, _ = prepared()
    for slot, tensor, found in ((len(s.slots), torch.zeros(1), f"slot {len(s.slots)}: expected the number of a slot"),
                                (0, torch.zeros(3), "slot .*: expected [0-9]+ bytes without gaps")):
        with pytest.raises(octavo.InvalidError, match=found):
            ops.run("hold_slots", s.number, [slot], [tensor])
    s.close()
    with pytest.raises(octavo.StateError, match="expected the number of an open run"):
        ops.run("hold_slots", s.number, [0], [s.tensors[0]])


@pytest.mark.skipif("config.getoption('--device') != 'cpu'",
                    reason="share_memory_ and set_ leave the memory of a device where it is")
@pytest.mark.parametrize("move", [lambda t: t.share_memory_(), lambda t: t.set_(t.clone()),
                                  lambda t: t.untyped_storage().resize_(2 * t.untyped_storage().nbytes())],
                         ids=["share_memory_", "set_", "resize_"])
def test_ops_look_for_slots_where_they_are(move):
    """Other code moved the memory of every slot, and wrote over what was there."""
    found = []
    for moves in (False, True):
        torch.manual_seed(0)
        s, w, x, dy = prepared()
        kept = []
        for t in s.tensors if moves else ():
            if t is not None and t.numel():
                address = t.data_ptr()
                move(t)
                assert t.data_ptr() != address
                kept += [torch.full(t.shape, 255, dtype=torch.uint8) for _ in range(8)]  # takes what was freed
        y, saved = forward(s, x, w.parameter.detach())
        s.end_step()
        found.append((y, *backward(s, dy, saved, w.parameter.detach()), *forward(s, x, w.parameter.detach()),
                      *(t.clone() for t in s.tensors if t is not None)))
    assert kept
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
