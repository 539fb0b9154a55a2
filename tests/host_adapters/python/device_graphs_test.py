"""What CUDA graphs of torch.compile(mode="reduce-overhead") ask of a prepared model, without a GPU:
inductor's own classification of its graphs, addresses that stay, and what replays leave to the host."""
import copy

import pytest
import torch
from torch import nn
from torch._dynamo.utils import detect_fake_mode
from torch._inductor import compile_fx, cudagraph_utils
from torch._inductor.debug import DebugContext
from torch._inductor.fx_passes.post_grad import post_grad_passes
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import get_first_incompatible_cudagraph_node
from torch._inductor.virtualized import V
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._pytree import tree_map_only

import octavo
from conftest import msamp, session, te
from device_test import capturing, equal, made, values  # noqa: F401 (a fixture)
from octavo.torch import ops
from octavo.torch.weights.parameter import _use_count

pytestmark = pytest.mark.skipif("not config.getoption('--device') == 'fake_device'",
                                reason="needs --device fake_device: the CPU is no device of this kind")

EACH = pytest.mark.parametrize("overrides", [te(), msamp()], ids=["te", "msamp"])


@pytest.fixture(autouse=True)
def no_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def lowered(gm, inputs, device, is_backward, is_inference):
    """(fx graph, inductor's graph) as if the fake device were another, which need not exist."""
    mode, there = detect_fake_mode(inputs), copy.deepcopy(gm)
    moved = lambda d: device if d.type == "fake_device" else d  # noqa: E731
    with mode:
        inputs = tree_map_only(torch.Tensor, lambda t: torch.empty_strided(
            t.shape, t.stride(), dtype=t.dtype, device=moved(t.device)), list(inputs))
    for node in there.graph.nodes:
        node.args, node.kwargs = tree_map_only(torch.device, moved, (node.args, node.kwargs))
    compile_fx.view_to_reshape(there)
    with V.set_fake_mode(mode):
        FakeTensorProp(there, mode).propagate(*inputs)
        compile_fx.record_original_output_strides(there)
        post_grad_passes(there, is_inference)
        FakeTensorProp(there, mode).propagate_dont_convert_inputs(*inputs)
        graph = GraphLowering(there, example_inputs=inputs, shape_env=mode.shape_env,
                              is_inference=is_inference, is_backward=is_backward)
        with V.set_graph_handler(graph), V.set_debug_handler(DebugContext()):
            graph.run(*inputs)
            if device.type == "cpu":  # finds mutations; on a GPU it would ask for triton first
                graph._update_scheduler()
    return there, graph


def reasons(gm, inputs, static, is_backward, is_inference):
    """Why torch would not make a CUDA graph of it, by the functions that decide this in compile_fx and
    output_code. Without graph_partition, which would cut a graph where it is refused."""
    with torch._inductor.config.patch(graph_partition=False):
        there, graph = lowered(gm, inputs, torch.device("cuda:0"), is_backward, is_inference)
        node = get_first_incompatible_cudagraph_node(there)
        found = [node and f"incompatible op {node.target}", graph.disable_cudagraphs_reason,
                 cudagraph_utils.check_lowering_disable_cudagraph(graph.device_node_mapping)]
        there, graph = lowered(gm, inputs, torch.device("cpu"), is_backward, is_inference)
        found.append(cudagraph_utils.check_for_mutation_ignore_cuda_graph_managed_tensor(
            there, graph.mutated_inputs, graph.mutated_input_idxs, static))
    return [reason for reason in found if reason]


def classified(found):
    """A backend as inductor, up to its code: adds (is_backward, reasons) and runs the graph."""
    def inner(gm, inputs, static_input_idxs=(), is_backward=False, is_inference=False, **options):
        found.append((is_backward, reasons(gm, inputs, static_input_idxs, is_backward, is_inference)))
        call = lambda arguments: gm(*arguments)  # noqa: E731
        call._boxed_call = True
        return call
    return lambda gm, inputs: compile_fx.compile_fx(gm, inputs, inner_compile=inner)


@pytest.mark.parametrize("overrides, dtype", [
    (te(), torch.float32), (te("current"), torch.bfloat16), (te(reduce_amax=False), torch.float32),
    (te(), torch.float16), (msamp(), torch.float32)],
    ids=["te", "te bf16", "te silent", "te f16", "msamp"])
def test_torch_would_make_cuda_graphs(overrides, dtype):
    model, optimizer = octavo.prepare(nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 16)).to(dtype),
                                      overrides=overrides)
    found = []
    call = torch.compile(model, fullgraph=True, backend=classified(found))
    call(torch.randn(8, 32, dtype=dtype)).square().mean().backward()
    with torch.no_grad():
        call(torch.randn(8, 32, dtype=dtype))
    assert found == [(False, []), (True, []), (False, [])]


@pytest.mark.parametrize("plain, why", [
    (lambda x: (x.to("cpu") * 2).to(x.device), "cpu device"),
    (lambda x: x.mul_(2), "mutated inputs"),
    (lambda x: x.nonzero().sum(), "incompatible op"),
], ids=["cpu", "mutation", "size"])
def test_torch_would_refuse(plain, why):
    """The functions above see what they are there for."""
    found = []
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.compile(plain, fullgraph=True, backend=classified(found))(torch.randn(8, 32))
    assert any(why in reason for _, all in found for reason in all), found


@EACH
def test_addresses_stay(overrides, tmp_path):
    """A replay reads and writes where the capture did: after steps, and after loading states."""
    model, optimizer = made(overrides, fused=True)
    x = torch.randn(8, 32)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    def addresses():
        s = session(model)
        own = [t for t in s.tensors if t is not None]
        own += [t for site in s.sites.values() for t in (site.anchor, site.token)]
        own += [p.detach() for p, w in ((p, s.weights_of(p)) for p in model.parameters()) if w[0].is_native]
        return [t.data_ptr() for t in own]

    step()
    moments = [t.data_ptr() for state in optimizer.state.values() for t in state.values()
               if isinstance(t, torch.Tensor)]
    before = addresses()
    for _ in range(2):
        step()
    assert addresses() == before and len(before) > 10
    assert [t.data_ptr() for state in optimizer.state.values() for t in state.values()
            if isinstance(t, torch.Tensor)] == moments
    kept, plain = octavo.state_dict(model), {k: v.clone() for k, v in model.state_dict().items()}
    kept = {k: v.clone() for k, v in kept.items()}
    step()
    model.load_state_dict(plain)
    octavo.load_state_dict(model, kept)
    step()
    assert addresses() == before


def test_a_captured_backward_counts_in_each_replay(capturing):
    """A replay adds to gradient slots and runs no code of the host: here its notes are undone."""
    model, optimizer = made(msamp())
    call = torch.compile(model, fullgraph=True, backend="aot_eager")
    flags, x = session(model).flags.gradients, torch.randn(8, 32)

    def step():
        optimizer.zero_grad()
        before, notes = values(model), bytes(flags)
        call(x).square().mean().backward()
        flags[:] = notes
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        return not equal(values(model), before)

    capturing(True)
    call(x).square().mean().backward()
    capturing(False)
    optimizer.step()
    assert step() and step()
    optimizer.zero_grad()
    largest = max(t.cpu().abs().max() for t in session(model).gradient_slots.values() if t.dtype == torch.uint8)
    assert largest == 0, "zero_grad clears the slots"
    copied = copy.deepcopy(model)
    assert not any(session(copied).flags.gradients), "the graph is not the copy's"


@pytest.mark.parametrize("is_captured", [False, True], ids=["eager", "captured"])
def test_a_graph_keeps_no_memory(is_captured, capturing):
    """A weight that a graph computes is in its own memory, which torch counts after a capture."""
    model, _ = made(te())
    weight = model[0].weight.detach() * 2
    holders = lambda: _use_count(weight.untyped_storage()._cdata)  # noqa: E731
    before, s = holders(), session(model)
    capturing(is_captured)
    ops.linear_forward(s.number, 0, 0, ops.ASK_TORCH, torch.randn(8, 32), weight, None)
    capturing(False)
    assert holders() - before == (0 if is_captured else 1)
