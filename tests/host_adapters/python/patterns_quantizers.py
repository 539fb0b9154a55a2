"""Usage patterns: quantizers of other libraries around octavo.prepare."""
import bitsandbytes
import torch
import torchao.quantization as ao
from torch import nn
from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

import octavo
from patterns import batch, compare, learn, near, network, pattern, plain_output, start

AREA = "Quantizers of other libraries"
# int8 with a scale a row: half of 1/127 of the largest value, which is about three times the root
# mean square: 1 % of the norm for weights, as much for activations where they are cast, two layers.
INT8 = 0.05


def trained(prepare):
    model, optimizer = start(prepare)
    learn(model, optimizer, 10)
    return model, plain_output(model, batch()[0])


def serves(model, expected):
    """It computes the trained function, and no longer in float32."""
    with torch.no_grad():
        found = model.eval()(batch()[0])
    near(found, expected, INT8)
    assert not torch.equal(found, expected)


CHANGES = {
    "torchao quantize_, int8 weights": lambda m: ao.quantize_(m, ao.Int8WeightOnlyConfig()),
    "torchao quantize_, int8 weights and activations": lambda m: ao.quantize_(
        m, ao.Int8DynamicActivationInt8WeightConfig()),
    "torch.ao.quantization.quantize_dynamic": lambda m: torch.ao.quantization.quantize_dynamic(
        m, {nn.Linear}, inplace=True),
}


def quantizing(change, restores):
    def run(prepare):
        model, expected = trained(prepare)
        if restores and prepare.overrides:
            octavo.restore(model)
        serves(change(model.eval()) or model, expected)
    return run


for name, change in CHANGES.items():
    pattern(AREA, f"{name}, after octavo.prepare")(quantizing(change, False))
    pattern(AREA, f"{name}, after octavo.restore")(quantizing(change, True))


@pattern(AREA, "torch.ao.quantization.prepare_qat, after octavo.prepare")
def qat_after(prepare):
    model, _ = start(prepare)
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
    torch.ao.quantization.prepare_qat(model.train(), inplace=True)
    assert "qat" in type(model[0]).__module__


@pattern(AREA, "torch.ao.quantization.prepare_qat, then octavo.prepare")
def qat_before(prepare):
    model = network()
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
    torch.ao.quantization.prepare_qat(model.train(), inplace=True)
    model, optimizer = start(prepare, model)
    losses = learn(model, optimizer)
    assert losses[-1] < 0.9 * losses[0]


def bnb_layers(make):
    def run(prepare):
        model = network()
        model[0] = make()
        model, optimizer = start(prepare, model)
        before = model[2].weight.detach().clone()
        losses = learn(model, optimizer)
        assert losses[-1] < 0.9 * losses[0] and not torch.equal(model[2].weight, before)
        text = octavo.report(model) if prepare.overrides else ""
        assert " fp8 " in text
    return run


def frozen(layer):
    layer.load_state_dict(network()[0].state_dict())
    return layer.requires_grad_(False).to("cpu")


pattern(AREA, "a bitsandbytes Linear4bit in the model, before octavo.prepare")(bnb_layers(
    lambda: frozen(bitsandbytes.nn.Linear4bit(32, 64, compute_dtype=torch.float32))))
pattern(AREA, "a bitsandbytes Linear8bitLt in the model, before octavo.prepare")(bnb_layers(
    lambda: frozen(bitsandbytes.nn.Linear8bitLt(32, 64, has_fp16_weights=False))))


@pattern(AREA, "a bitsandbytes Linear4bit instead of a layer, after octavo.prepare")
def bnb_after(prepare):
    model, expected = trained(prepare)
    plain = model[0].weight.detach().clone(), model[0].bias.detach().clone()
    model[0] = bitsandbytes.nn.Linear4bit(32, 64, compute_dtype=torch.float32)
    model[0].load_state_dict({"weight": plain[0], "bias": plain[1]})
    model[0] = model[0].to("cpu")
    with torch.no_grad():
        found = model(batch()[0])
    # 4 bits: about 10 % of the norm of a product
    near(found, expected, 0.3)
    assert not torch.equal(found, expected)


def torchao_qat(model):
    """Weights are rounded to int8 in each forward."""
    ao.quantize_(model, QATConfig(step="prepare", weight_config=IntxFakeQuantizeConfig(
        torch.int8, granularity=ao.PerAxis(0))))
    assert type(model[0]).__name__ == "FakeQuantizedLinear"
    return model


@pattern(AREA, "torchao QAT (QATConfig), then octavo.prepare")
def torchao_before(prepare):
    compare(prepare, lambda p: learn(*start(p, torchao_qat(network()))))
