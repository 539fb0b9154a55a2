"""torch.nn.MultiheadAttention: the same function as torch's, with four products in FP8."""
import copy
import io

import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, on_every_device, session, te
from octavo import _abi
from octavo.torch import ops
from octavo.torch.layers.attention import MULTIHEAD_ATTENTION

E, HEADS, N, L, S = 32, 4, 3, 7, 5


def on_host(attention):
    """A copy whose forward is the counterpart's, with every product left to torch."""
    other = copy.deepcopy(attention)
    MULTIHEAD_ATTENTION.apply(other, {})
    return other


def inputs(batch_first, same, kdim=E, vdim=E):
    def one(length, width):
        return torch.randn(*((N, length) if batch_first else (length, N)), width)
    query = one(L, E)
    return (query, query, query) if same else (query, one(S, kdim), one(S, vdim))


def masks(kind, cols):
    """(attn_mask, key_padding_mask) for L rows."""
    padding = torch.zeros(N, cols, dtype=torch.bool)
    padding[1, -2:] = True
    flat, deep = torch.rand(L, cols) < 0.3, torch.rand(N * HEADS, L, cols) < 0.3
    flat[:, 0], deep[:, :, 0] = False, False
    return {"none": (None, None), "padding": (None, padding),
            "bool 2-D": (flat, None), "bool 3-D": (deep, padding),
            "float 2-D": (torch.randn(L, cols), None),
            "float 3-D": (torch.randn(N * HEADS, L, cols), padding.float() * -1e4)}[kind]


def compare(attention, arguments, **options):
    """Results and every gradient of torch's module and of the counterpart."""
    attention.zero_grad()
    other, results = on_host(attention), []
    for module in (attention, other):
        leaves = {id(x): x.clone().requires_grad_() for x in arguments}
        torch.manual_seed(5)
        y, weights = module(*[leaves[id(x)] for x in arguments], **options)
        (y.square().sum() + (0 if weights is None else weights.square().sum())).backward()
        results.append([y, weights, *(x.grad for x in leaves.values()),
                        *(p.grad for p in module.parameters())])
    assert len(results[0]) == len(results[1])
    for torchs, own in zip(*results):
        if torchs is None:
            assert own is None
        else:
            torch.testing.assert_close(own, torchs, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kind", ["none", "padding", "bool 2-D", "bool 3-D", "float 2-D",
                                  "float 3-D"])
def test_equals_torch_with_every_mask(kind, need_weights):
    for batch_first in (False, True):
        for same in (False, True):
            attn_mask, padding = masks(kind, L if same else S)
            compare(nn.MultiheadAttention(E, HEADS, batch_first=batch_first),
                    inputs(batch_first, same), need_weights=need_weights, attn_mask=attn_mask,
                    key_padding_mask=padding)


@pytest.mark.parametrize("options", [dict(bias=False), dict(add_bias_kv=True),
                                     dict(add_zero_attn=True), dict(kdim=12, vdim=20),
                                     dict(add_bias_kv=True, add_zero_attn=True, kdim=12),
                                     dict(dropout=0.3)], ids=str)
def test_equals_torch_with_every_option(options):
    attention = nn.MultiheadAttention(E, HEADS, **options)
    arguments = inputs(False, False, options.get("kdim", E), options.get("vdim", E))
    attn_mask, padding = masks("bool 2-D", S)[0], masks("padding", S)[1]
    for need_weights in (False, True):
        compare(attention, arguments, need_weights=need_weights, average_attn_weights=False,
                attn_mask=attn_mask, key_padding_mask=padding)


@pytest.mark.parametrize("need_weights", [False, True])
def test_equals_torch_causal_and_unbatched(need_weights):
    causal = nn.Transformer.generate_square_subsequent_mask(L)
    attention = nn.MultiheadAttention(E, HEADS, batch_first=True)
    compare(attention, inputs(True, True), attn_mask=causal, is_causal=True,
            need_weights=need_weights)
    x = torch.randn(L, E)
    compare(attention, (x, x, x), attn_mask=causal, need_weights=need_weights)
    compare(attention, (x, torch.randn(S, E), torch.randn(S, E)), need_weights=need_weights,
            key_padding_mask=torch.tensor([False] * (S - 1) + [True]))


def test_bad_arguments_are_typed():
    attention, x = on_host(nn.MultiheadAttention(E, HEADS)), torch.randn(L, N, E)
    for options in (dict(is_causal=True), dict(attn_mask=torch.zeros(L, L + 1)),
                    dict(attn_mask=torch.zeros(L, L, dtype=torch.int64)),
                    dict(key_padding_mask=torch.zeros(L, N, dtype=torch.bool))):
        with pytest.raises(octavo.InvalidError, match="expected .* found"):
            attention(x, x, x, **options)


def train(model, optimizer, steps=30):
    generator = torch.Generator().manual_seed(2)
    x, target = torch.randn(2, N, L, E, generator=generator)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x, x, x, need_weights=False)[0], target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("backend", [te(), te("current"), te("mx"), msamp("O1"), msamp("O2")],
                         ids=lambda o: "-".join(map(str, o.values())))
def test_trains_with_four_products(backend):
    model = on_every_device(lambda: nn.MultiheadAttention(E, HEADS, batch_first=True))
    plain = copy.deepcopy(model)
    reference = train(plain, torch.optim.AdamW(plain.parameters(), lr=1e-2))
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2),
                                      overrides=backend)
    losses = train(model, optimizer)
    own = session(model)
    assert sorted(own.sites) == ["k", "out_proj", "q", "v"] and not own.left_out
    assert ops.calls(own.number, _abi.VERB_FORWARD) == 4 * 30
    assert ops.calls(own.number, _abi.VERB_BACKWARD) == 4 * 30
    assert losses != reference and losses[-1] == pytest.approx(reference[-1], abs=0.01)
    assert losses[-1] < 0.1 * losses[0]


def test_gradient_of_the_packed_parameter_is_near_torchs():
    model, x = nn.MultiheadAttention(E, HEADS), torch.randn(L, N, E)
    plain = copy.deepcopy(model)
    model, _ = octavo.prepare(model, None, overrides=te("current"))
    for module in (plain, model):
        module(x, x, x)[0].square().sum().backward()
    for (name, p), (_, q) in zip(plain.named_parameters(), model.named_parameters()):
        error = (p.grad - q.grad).norm() / p.grad.norm().clamp(min=1e-3)
        assert error < 0.15, name


@pytest.mark.parametrize("backend", [te(), msamp("O2")], ids=["te", "msamp"])
@pytest.mark.parametrize("skipped", ["q", "v", "out_proj"])
def test_one_declined_product_runs_in_torch(skipped, backend):
    model = nn.MultiheadAttention(E, HEADS, batch_first=True)
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2),
                                      overrides={**backend, "layers.skip": [skipped]})
    losses = train(model, optimizer)
    own = session(model)
    assert skipped not in own.sites and len(own.sites) >= 1
    assert own.verdicts.keys() | own.left_out.keys() >= {"q", "k", "v", "out_proj"}
    assert ops.calls(own.number, _abi.VERB_FORWARD) == len(own.sites) * 30
    assert losses[-1] < 0.9 * losses[0]


def test_filter_keeps_the_whole_module_or_its_output():
    model = nn.MultiheadAttention(E, HEADS)
    with_filter, _ = octavo.prepare(nn.ModuleDict({"a": model, "b": nn.Linear(E, E)}),
                                    overrides=te(), module_filter=lambda m, name: name != "a")
    assert list(session(with_filter).sites) == ["b"]
    assert session(with_filter).left_out == {"a": "excluded by module_filter"}
    assert type(with_filter.a) is nn.MultiheadAttention
    other, _ = octavo.prepare(nn.ModuleDict({"a": nn.MultiheadAttention(E, HEADS)}), overrides=te(),
                              module_filter=lambda m, name: name != "a.out_proj")
    assert sorted(session(other).sites) == ["a.k", "a.q", "a.v"]


@pytest.mark.parametrize("converted", ["everything", "linears only"])
@pytest.mark.parametrize("padded", [False, True])
def test_evaluation_does_not_bypass_fp8(converted, padded):
    """torch computes whole encoder layers from raw weights in evaluation without gradients."""
    layer = nn.TransformerEncoderLayer(E, HEADS, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)
    keeps = (lambda m, name: not name.endswith("self_attn")) if converted != "everything" else None
    model, _ = octavo.prepare(model, module_filter=keeps,
                              overrides=te("current", use_autocast_during_eval=True))
    model.eval()
    padding = None
    if padded:
        padding = torch.zeros(N, L, dtype=torch.bool)
        padding[1, -2:] = True
    x, number, each = torch.randn(N, L, E), session(model).number, 6 if keeps is None else 2
    with torch.no_grad():
        without = model(x, src_key_padding_mask=padding)
    assert ops.calls(number, _abi.VERB_FORWARD) == 2 * each
    with_gradients = model(x, src_key_padding_mask=padding)
    assert ops.calls(number, _abi.VERB_FORWARD) == 4 * each
    torch.testing.assert_close(without, with_gradients, rtol=0, atol=0.1)


def test_encoders_without_fp8_keep_torchs_fast_path():
    model = nn.ModuleDict({"a": nn.TransformerEncoderLayer(E, HEADS, 64), "b": nn.Linear(E, E)})
    model, _ = octavo.prepare(model, overrides=te(), module_filter=lambda m, name: name == "b")
    assert model.a.activation_relu_or_gelu == 1


@pytest.mark.parametrize("backend", [te(), msamp("O2")], ids=["te", "msamp"])
def test_copies_and_pickles(backend):
    class_before = nn.MultiheadAttention
    model, _ = octavo.prepare(nn.Sequential(nn.MultiheadAttention(E, HEADS)), overrides=backend)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    x = torch.randn(L, N, E)
    expected = model[0](x, x, x)[0]
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert isinstance(other[0], class_before) and type(other[0]) is type(model[0])
        assert torch.equal(other[0](x, x, x)[0], expected)
        assert session(other) is not session(model)
        assert ops.calls(session(other).number, _abi.VERB_FORWARD) == 4


@pytest.mark.parametrize("backend", [te(), msamp("O2")], ids=["te", "msamp"])
def test_state_dict_has_plain_values(backend):
    plain = nn.MultiheadAttention(E, HEADS)
    model, _ = octavo.prepare(copy.deepcopy(plain), overrides=backend)
    state = model.state_dict()
    assert list(state) == list(plain.state_dict())
    for name, value in plain.state_dict().items():
        assert (state[name] - value).abs().max() <= 0.07 * value.abs().max()
    nn.MultiheadAttention(E, HEADS).load_state_dict(state)
    model.load_state_dict(plain.state_dict())
