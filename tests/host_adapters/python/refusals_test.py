"""What octavo cannot follow is refused by name, with what to do: never torch's own text, and never
in silence. What torch.func can do with a linear works."""
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

import octavo
import staged
from conftest import kind, msamp, session, te
from guide_parts import mlp

BACKENDS = {"te": te("current"), "msamp": msamp("O2")}
each = pytest.mark.parametrize("overrides", BACKENDS.values(), ids=BACKENDS)


def made(overrides=BACKENDS["te"]):
    torch.manual_seed(3)
    return octavo.prepare(mlp(32, 64, 16), overrides=overrides)[0]


X = torch.randn(8, 32, generator=torch.Generator().manual_seed(1))


# Inputs that are no dense tensors ---------------------------------------------------------------


def rows(layout):
    return torch.nested.nested_tensor([torch.randn(3, 32), torch.randn(5, 32)], layout=layout)


OTHER_INPUTS = {
    "a nested tensor": lambda: rows(torch.strided), "a nested tensor of": lambda: rows(torch.jagged),
    "torch.sparse_coo": lambda: X.to_sparse(), "torch.sparse_csr": lambda: X.to_sparse_csr(),
    "torch.sparse_csc": lambda: X.to_sparse_csc(), "torch.sparse_bsr": lambda: X.to_sparse_bsr((4, 4)),
    "torch._mkldnn": lambda: X.to_mkldnn(), "without memory": lambda: X.to("meta"), "a list": lambda: X.tolist(),
    "a NoneType": lambda: None}


@each
@pytest.mark.parametrize("found", OTHER_INPUTS)
@pytest.mark.parametrize("gradients", [True, False])
def test_an_input_that_is_no_dense_tensor(found, gradients, overrides):
    model = made(overrides)
    with torch.set_grad_enabled(gradients), pytest.raises(
            octavo.InvalidError, match=f"x: expected a dense tensor with memory, found .*{found.removesuffix(' of')}.*filter"):
        model[0](OTHER_INPUTS[found]())
    model(X).sum().backward()  # nothing is left behind


@pytest.mark.parametrize("found", ["a nested tensor of", "torch.sparse_coo", "torch._mkldnn"])
def test_evaluation_in_the_hosts_precision_takes_what_torch_takes(found):
    model = made().eval()
    with torch.no_grad():
        assert model[0](OTHER_INPUTS[found]()) is not None


# Models that would not be converted -------------------------------------------------------------


@each
def test_model_without_linears(overrides):
    with pytest.raises(octavo.UnsupportedError, match="found none .it has no linear layers"):
        octavo.prepare(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), overrides=overrides)
    with pytest.raises(octavo.UnsupportedError, match="0: excluded by module_filter"):
        octavo.prepare(nn.Sequential(nn.Linear(4, 4)), overrides=overrides, module_filter=lambda m, n: False)


@pytest.mark.parametrize("engine", ["mpi", "nccl"])
def test_engine_of_ranks_that_are_no_frameworks(engine, tmp_path):
    path = tmp_path / "octavo.toml"
    path.write_text(f'[distributed]\nengine = "{engine}"\n')
    with pytest.raises(octavo.InvalidError, match=f'toml:2:1: distributed.engine: expected "threads".*found "{engine}"'):
        octavo.prepare(mlp(32, 64, 16), config=str(path))
    with pytest.raises(octavo.InvalidError, match="override: distributed.engine"):
        octavo.prepare(mlp(32, 64, 16), overrides={"distributed.engine": engine})
    path.write_text('[distributed]\nengine = "threads"\ntimeout_s = 60\n')
    assert octavo.prepare(mlp(32, 64, 16), config=str(path))


@pytest.fixture
def one_rank(tmp_path):
    dist.init_process_group(staged.backend(kind()), f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_fsdp1_afterwards(one_rank):
    from torch.distributed.fsdp import FullyShardedDataParallel
    model = made()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
        with pytest.raises(octavo.OctavoError, match="flat|shard"):
            wrapped(X)


# Quantizers that come after ---------------------------------------------------------------------


@each
def test_quantization_aware_training(overrides):
    ao = pytest.importorskip("torch.ao.quantization")
    model = made(overrides)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.qconfig = ao.get_default_qat_qconfig("x86")
        with pytest.raises(octavo.UnsupportedError, match="qconfig.*octavo.restore"):
            ao.prepare_qat(model.train())


@each
def test_dynamic_quantization(overrides):
    ao = pytest.importorskip("torch.ao.quantization")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(octavo.OctavoError, match="qconfig.*octavo.restore|octavo.restore"):
            ao.quantize_dynamic(made(overrides), {nn.Linear})
        restored = octavo.restore(made(overrides))
        ao.quantize_dynamic(restored, {nn.Linear}, inplace=True)
    assert "Dynamic" in type(restored[0]).__module__ + type(restored[0]).__name__ or (
        "dynamic" in type(restored[0]).__module__)


class Quantized(torch.Tensor):
    """A stand-in for the weight classes of torchao and bitsandbytes."""


@each
def test_weight_of_another_class(overrides):
    model = made(overrides)
    model[0].weight = nn.Parameter(torch.randn(64, 32).as_subclass(Quantized), requires_grad=False)
    with pytest.raises(octavo.UnsupportedError, match="^0.weight: .*Quantized.*octavo.restore"):
        model(X)


# torch.func -------------------------------------------------------------------------------------


def test_vmap_over_a_batch_gives_the_batch():
    model = made()
    with torch.no_grad():
        assert torch.equal(torch.func.vmap(model)(X), model(X))
        assert torch.equal(torch.func.vmap(model, in_dims=1, out_dims=1)(X.t().contiguous()),
                           model(X).t())


def test_grad_and_vjp_of_torch_func():
    model = made()
    values = {k: p.detach() for k, p in model.named_parameters()}

    def loss(given, x):
        return torch.func.functional_call(model, given, (x,)).square().mean()

    found = torch.func.grad(loss)(values, X)
    model(X).square().mean().backward()
    for name, p in model.named_parameters():
        assert torch.equal(found[name], p.grad), name
    y, pull = torch.func.vjp(lambda x: model(x), X)
    x = X.clone().requires_grad_()
    model(x).backward(torch.ones_like(y))
    assert torch.equal(pull(torch.ones_like(y))[0], x.grad)


def refused(call, match, kind=octavo.UnsupportedError):
    with pytest.raises(kind, match=match):
        call()


def test_transforms_that_cannot_work():
    model = made()
    values = {k: p.detach() for k, p in model.named_parameters()}

    def loss(given, x):
        return torch.func.functional_call(model, given, (x,)).square().mean()

    refused(lambda: torch.func.jvp(model, (X,), (X,)), r"^0: .*forward mode")
    refused(lambda: torch.func.vmap(torch.func.grad(loss), (None, 0))(values, X), r": .*vmap")
    stacked = {k: torch.stack([p, p]) for k, p in values.items()}
    refused(lambda: torch.func.vmap(loss, (0, None))(stacked, X), r"^0: .*ensemble")
    refused(lambda: torch.func.hessian(lambda x: model(x).sum())(X[0]), r": expected")


def test_transforms_of_weights_in_slots():
    model = made(msamp())
    refused(lambda: torch.func.vmap(model)(X), "^0: .*msamp under torch.func")


@each
def test_second_derivatives(overrides):
    model, x = made(overrides), X.clone().requires_grad_()
    gradient, = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    refused(lambda: gradient.square().sum().backward(), r"^[02]: expected first derivatives")


@each
def test_gradient_penalty_as_a_wgan_computes_it(overrides):
    model, x = made(overrides), X.clone().requires_grad_()
    gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    refused(lambda: ((gradient.norm(dim=1) - 1) ** 2).mean().backward(), "first derivatives")


@each
def test_jit_trace(overrides):
    model = made(overrides)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(lambda: torch.jit.trace(model, X), "^0: .*torch.jit.trace")


@each
def test_jit_script(overrides):
    model = made(overrides)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(lambda: torch.jit.script(model), "torch.jit.script")


@each
def test_preparing_inside_of_a_wrapper(overrides, one_rank):
    model = mlp(32, 64, 16)
    wrapped = nn.parallel.DistributedDataParallel(model)
    if overrides is BACKENDS["msamp"]:
        refused(lambda: octavo.prepare(wrapped.module, overrides=overrides), "then wrap the model",
                octavo.StateError)
    else:
        octavo.prepare(wrapped.module, overrides=overrides)
    wrapped(X).sum().backward()
    wrapped(X).sum().backward()


# Casts and moves --------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [nn.Module.bfloat16, nn.Module.half, nn.Module.double])
@each
def test_cast_afterwards_names_the_layer(overrides, change):
    """te at the forward; msamp, whose slots cannot follow, at the cast."""
    model = mlp(32, 64, 16)
    adam = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    model, optimizer = octavo.prepare(model, adam, overrides=overrides)
    with pytest.raises(octavo.OctavoError) as e:
        model = change(model)
        model(X.to(next(model.parameters()).dtype)).sum().backward()
        optimizer.step()
    text = str(e.value)
    assert "0.weight" in text or "0.bias" in text or "0: x: expected float32" in text, text


def test_cast_and_prepared_again_works():
    model = made().bfloat16()
    octavo.prepare(model)
    model(X.bfloat16()).sum().backward()
    assert session(model).sites["0"].weight.parameter.dtype == torch.bfloat16


def test_move_to_meta_names_the_layer():
    model = made()
    with pytest.raises(octavo.OctavoError, match="0"):
        model.to("meta")(X.to("meta"))
