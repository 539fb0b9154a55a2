"""The codes that linears multiply by, as tensors of torch: what octavo.export writes."""
import dataclasses

import torch

from .. import _abi
from .converted import Converted
from .linear import linear

BLOCKS = {_abi.PER_TENSOR: None, _abi.PER_ROW: "row", _abi.BLOCK_128X128: (128, 128), _abi.BLOCK_1X32: (1, 32),
          _abi.BLOCK_32X32: (32, 32)}


@dataclasses.dataclass(frozen=True)
class Codes:
    """The weight of one linear: values = codes * scale_inv of their block."""
    codes: torch.Tensor      # float8_e4m3fn [N, K], a copy on the CPU
    scale_inv: torch.Tensor  # float32, or float8_e8m0fnu for blocks of 32: [1, 1], [N, 1] or a block each
    block: object            # None: one scale; "row"; or (rows, columns)
    x_scale_inv: object      # of the input, a float; None: from the values of each forward

    def values(self):
        """float32 [N, K]."""
        scales = self.scale_inv.float()
        if isinstance(self.block, tuple):
            for dim, size in enumerate(self.block):
                scales = scales.repeat_interleave(size, dim).narrow(dim, 0, self.codes.shape[dim])
        return self.codes.float() * scales


def of_model(model, session):
    """({module: Codes}, {module: why it has none}) of every module of the model that octavo.prepare looked at."""
    found, why = {}, dict(session.left_out)
    why.update({name: str(verdict) for name, verdict in session.verdicts.items() if not verdict.accepted})
    names = {name for name, _ in model.named_modules()}
    if any(name not in names for name in session.sites):  # a wrapper with names of its own is gone
        why = {name: next((r for n, r in why.items() if n.endswith(f".{name}")), "it did not train in FP8")
               for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and not isinstance(m, Converted)}
    uses = _uses(model)
    for name, module in model.named_modules():
        if not isinstance(module, Converted):
            continue
        reason = _reason(session, module, uses)
        if reason is None:
            found[name] = _codes(session, module.octavo_site)
            reason = _outgrown(module.octavo_site.weight, found[name])
        if reason is not None:
            found.pop(name, None)
            why[name] = reason
    return found, why


def _outgrown(weight, codes):
    """Why codes are not the values of their weight: a scale of the step before clips what other code made larger since, by
    more than the 2^-4 that a cast may change."""
    if not weight.is_native or codes.block is not None:
        return None
    most, held = weight.value.detach().abs().max().item(), 448 * codes.scale_inv.item() / (1 - 2**-4)
    return None if most <= held else (f"its largest value {most:.3g} is past {held:.3g}, which the scale of the last step "
                                      "holds: train a step, or call octavo.prepare(model) again")


def _uses(model):
    """{id of a parameter: the number of modules that have it}"""
    uses = {}
    for module in model.modules():
        for p in module._parameters.values():
            if p is not None:
                uses[id(p)] = uses.get(id(p), 0) + 1
    return uses


def _reason(session, module, uses):
    """Why the codes of a converted module are not a weight of their own; None: they are."""
    if not isinstance(module, torch.nn.Linear):
        return f"{type(module).__name__} is no nn.Linear: its weights are several matrices, or transposed"
    weight = module.octavo_site.weight
    if uses[id(weight.parameter)] > 1:
        return "another module reads its weight, which has values there"
    slot = _slot(session, weight)
    if slot is None:
        return f"{session.run.backend} keeps no E4M3 codes of it, row by row, with scales of their own"
    if slot.granularity in (_abi.BLOCK_1X32, _abi.BLOCK_32X32) and session.device.type != "cpu":
        return "the scales of blocks of 32 are in the order of the GPU's products"
    return None


def _slot(session, weight):
    """The codes [N, K] that forwards read; None: there are none."""
    n, k = weight.shape
    for slot in session.slots:
        if (slot.owner_kind == _abi.OWNER_PARAMETER and slot.owner == weight.id and slot.dtype == _abi.E4M3FN
                and slot.role in (_abi.ROLE_WEIGHT, _abi.ROLE_WEIGHT_CACHE) and slot.access[_abi.VERB_FORWARD]
                and slot.rows >= n and slot.cols >= k and slot.scale_slot != _abi.NONE
                and slot.granularity in BLOCKS):
            return slot
    return None


def _codes(session, site):
    n, k = site.weight.shape
    slot = _slot(session, site.weight)
    # A forward of no rows brings the codes up to date, as the next forward would, and records nothing.
    with torch.no_grad():
        weight = None if not site.is_native else site.weight.value
        linear(site, torch.empty((0, k), dtype=site.weight.parameter.dtype, device=session.device), weight)
    scales = session.tensors[slot.scale_slot].cpu()
    if session.slots[slot.scale_slot].dtype == _abi.E8M0FNU:
        scales = scales.view(torch.float8_e8m0fnu)
    codes = _row_major(session, slot).view(torch.float8_e4m3fn)[:n, :k].contiguous()
    return Codes(codes, scales.clone(), BLOCKS[slot.granularity], _x_scale_inv(session, site.name))


def _row_major(session, slot):
    """The codes of a slot on the CPU, whatever order the kernels keep them in."""
    held = session.tensors[slot.id].cpu().contiguous()
    out = torch.empty_like(held)
    session.run.codes(slot.id, held.data_ptr(), out.data_ptr())
    return out


def _x_scale_inv(session, name):
    """1 / the scale of x that the next step uses, where it comes from a history of maxima."""
    for slot in session.slots:
        if slot.name == "x/scale" and slot.role == _abi.ROLE_SCALE and name in slot.labels:
            return 1.0 / session.tensors[slot.id][0, slot.labels.index(name)].item()
    return None
