"""Usage patterns: weights that are computed or masked, before and after octavo.prepare."""
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from conftest import session
from patterns import PLAIN, adamw, compare, learn, network, pattern, start, values

AREA = "Parametrizations and pruning"


def computed(change, is_before):
    """A weight that a parametrization computes, registered before or after octavo.prepare."""
    def loop(p):
        model = network()
        if is_before:
            change(model)
            model, optimizer = start(p, model)
        else:
            model, _ = start(p, model, optimizer=None)
            change(model)
            optimizer = adamw(model)
        kept = values(model)
        losses = learn(model, optimizer)
        assert any(not torch.equal(v, kept[k]) for k, v in values(model).items()
                   if "weight" in k and k.startswith("0."))
        return losses
    return lambda prepare: compare(prepare, loop)


COMPUTED = {
    "weight_norm": lambda m: parametrizations.weight_norm(m[0]),
    "spectral_norm": lambda m: parametrizations.spectral_norm(m[0]),
    "an orthogonal parametrization": lambda m: parametrizations.orthogonal(m[0]),
    "pruning (prune.l1_unstructured)": lambda m: prune.l1_unstructured(m[0], "weight", 0.5),
    "the old torch.nn.utils.weight_norm": lambda m: nn.utils.weight_norm(m[0]),
}
for name, change in COMPUTED.items():
    pattern(AREA, f"{name} before octavo.prepare")(computed(change, True))
    pattern(AREA, f"{name} after octavo.prepare")(computed(change, False))


@pattern(AREA, "pruning made permanent (prune.remove), then octavo.prepare")
def pruned(prepare):
    def loop(p):
        model = network()
        prune.l1_unstructured(model[0], "weight", 0.5)
        prune.remove(model[0], "weight")
        return learn(*start(p, model))
    compare(prepare, loop)


@pattern(AREA, "a parametrization removed, then octavo.prepare again")
def parametrization_removed(prepare):
    def loop(p):
        model = network()
        parametrizations.weight_norm(model[0])
        model, optimizer = start(p, model)
        losses = learn(model, optimizer, 5)
        parametrize.remove_parametrizations(model[0], "weight")
        model, optimizer = p.again(model, adamw(model))
        assert p is PLAIN or "0" in session(model).sites
        return losses + learn(model, optimizer, 15)
    compare(prepare, loop)
