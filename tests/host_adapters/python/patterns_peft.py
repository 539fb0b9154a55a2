"""Usage patterns: adapters of PEFT."""
import tempfile

import peft
import torch
from torch import nn

from conftest import session
from patterns import (PLAIN, STEPS, adamw, batch, compare, error, learn, near, network, pattern,
                      start, values)

AREA = "PEFT"


class Net(nn.Module):
    """The two linears of the other patterns, with names that PEFT can target."""

    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = network()

    def forward(self, x):
        return self.down(self.act(self.up(x)))


def adapted(model=None, **options):
    """Adapters start at random values. From PEFT's zeros, lora_B grows by a multiple in each of the
    first steps, which delayed scales, those of the step before, saturate: the losses lag."""
    torch.manual_seed(5)
    return peft.get_peft_model(model or Net(), peft.LoraConfig(**{
        "r": 8, "lora_alpha": 16, "target_modules": ["up", "down"], "init_lora_weights": False,
        **options}))


def lora_adamw(model):
    return adamw(model, 1e-2)


def every_loss(model, optimizer):
    """As learn(), for models some of whose layers never run."""
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = error(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_base(model, before):
    """Adapters moved, nothing else did."""
    for name, value in values(model).items():
        moved = not torch.equal(value, before[name])
        assert moved == ("lora_" in name), name


def trains(**options):
    def loop(p):
        model, optimizer = start(p, adapted(**options), lora_adamw)
        before = values(model)
        losses = learn(model, optimizer)
        check_base(model, before)
        return losses
    return lambda prepare: compare(prepare, loop)


pattern(AREA, "LoRA, then octavo.prepare")(trains())
pattern(AREA, "rsLoRA with a rank of 5, then octavo.prepare")(trains(r=5, use_rslora=True))
pattern(AREA, "DoRA, then octavo.prepare")(trains(use_dora=True))


@pattern(AREA, "LoRA after octavo.prepare, then octavo.prepare of the base model again")
def lora_again(prepare):
    def loop(p):
        base, _ = start(p, Net(), None)
        model = adapted(base)
        base, optimizer = p.again(base, lora_adamw(model))
        assert p is PLAIN or "up.lora_A.default" in session(base).sites
        return learn(model, optimizer)
    compare(prepare, loop)


def merged_weights(model):
    base = model.get_base_model()
    return {f"{n}.weight": (layer.base_layer.weight + layer.get_delta_weight("default")
                            ).detach().clone()
            for n, layer in (("up", base.up), ("down", base.down))}


@pattern(AREA, "merge_and_unload after training, then model.eval()")
def merged(prepare):
    model, optimizer = start(prepare, adapted(), lora_adamw)
    learn(model, optimizer)
    expected, loss = merged_weights(model), error(model).item()
    plain = model.merge_and_unload().eval()
    for name, weight in expected.items():
        # as a write to msamp: half a unit in the last place of f16 with a scale
        found = plain.state_dict()[name]
        assert (found - weight).abs().max() <= 2**-11 * weight.abs().max(), name
    twin = Net()
    twin.load_state_dict(plain.state_dict())
    with torch.no_grad():
        near(plain(batch()[0]), twin(batch()[0]), 0.2)
    assert abs(error(plain).item() - loss) < 0.05


@pattern(AREA, "merge_adapter for evaluation, unmerge_adapter for training")
def merged_and_back(prepare):
    model, optimizer = start(prepare, adapted(), lora_adamw)
    learn(model, optimizer)
    before, loss = values(model), error(model).item()
    model.merge_adapter()
    largest = max(v.abs().max() for v in values(model).values())
    assert abs(error(model.eval()).item() - loss) < 0.05
    model.unmerge_adapter()
    for name, value in values(model).items():  # two writes, as in merged()
        assert (value - before[name]).abs().max() <= 2 * 2**-11 * largest, name
    assert learn(model.train(), optimizer, 5)[-1] < loss


@pattern(AREA, "disable_adapter()")
def disabled(prepare):
    plain = Net()
    model, optimizer = start(prepare, adapted(), lora_adamw)
    learn(model, optimizer)
    with torch.no_grad(), model.disable_adapter():
        near(model(batch()[0]), plain(batch()[0]))


@pattern(AREA, "save_pretrained of adapters, loaded into a prepared model")
def saved(prepare):
    model, optimizer = start(prepare, adapted(), lora_adamw)
    learn(model, optimizer)
    twin, _ = start(prepare, adapted(), lora_adamw)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        state = peft.load_peft_weights(folder)
    assert not peft.set_peft_model_state_dict(twin, state).unexpected_keys
    with torch.no_grad():
        near(twin(batch()[0]), model(batch()[0]))
    assert abs(error(twin).item() - error(model).item()) < 0.05


@pattern(AREA, "a second adapter (add_adapter) and set_adapter")
def second(prepare):
    def loop(p):
        model, _ = start(p, adapted(), None)
        torch.manual_seed(6)
        model.add_adapter("other", peft.LoraConfig(r=4, target_modules=["up", "down"]))
        model.set_adapter("other")
        before = values(model)
        losses = every_loss(model, lora_adamw(model))
        for name, value in values(model).items():
            assert torch.equal(value, before[name]) == ("other" not in name), name
        return losses
    compare(prepare, loop)


@pattern(AREA, "modules_to_save: a layer that trains in full next to adapters")
def modules_to_save(prepare):
    def loop(p):
        model, optimizer = start(p, adapted(target_modules=["up"], modules_to_save=["down"]))
        kept = model.get_base_model().down.modules_to_save["default"].weight.detach().clone()
        losses = every_loss(model, optimizer)
        assert not torch.equal(
            kept, model.get_base_model().down.modules_to_save["default"].weight)
        return losses
    compare(prepare, loop)


@pattern(AREA, "LoRA after octavo.prepare: the adapters are plain")
def lora_after(prepare):
    def loop(p):
        base, _ = start(p, Net(), None)
        model = adapted(base)
        before = values(model)
        losses = learn(model, lora_adamw(model), late=1)
        check_base(model, before)
        return losses
    compare(prepare, loop)


@pattern(AREA, "DoRA after octavo.prepare")
def dora_after(prepare):
    def loop(p):
        base, _ = start(p, Net(), None)
        model = adapted(base, use_dora=True)
        return learn(model, lora_adamw(model), late=1)
    compare(prepare, loop)
