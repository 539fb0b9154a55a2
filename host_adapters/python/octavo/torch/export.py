"""octavo.export: a trained model as a checkpoint with FP8 weights, for engines that serve it.

Weights are the codes and scales that training multiplies by; nothing is quantized again. Two layouts:

  "fp8"                 transformers' fine-grained FP8, as DeepSeek-V3's checkpoints: weight, weight_scale_inv
  "compressed-tensors"  of the library of that name, which vLLM and llm-compressor use: weight, weight_scale
"""
from __future__ import annotations

import collections
import copy
import dataclasses
import json
import os
import pathlib

import torch

from .. import _abi
from ..errors import InvalidError, UnsupportedError
from ..files import replace
from .layers.converted import Converted
from .layers.linear import linear
from .layers.own_forward import OwnForward
from .models import is_a, session_of


# The codes that linears multiply by, as tensors of torch: what octavo.export writes.

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


def codes_of_model(model, session):
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
    """Why the codes of a converted module are not one whole weight; None: they are."""
    if not isinstance(module, torch.nn.Linear):
        return f"{type(module).__name__} is not an nn.Linear: its weights are several matrices, or transposed"
    weight = module.octavo_site.weight
    if uses[id(weight.parameter)] > 1:
        return "another module reads its weight, which has values there"
    slot = _slot(session, weight)
    if slot is None:
        return f"{session.run.backend} keeps no E4M3 codes of it, row by row, with separate scales"
    if slot.granularity in (_abi.BLOCK_1X32, _abi.BLOCK_32X32) and session.device.type != "cpu":
        return "the scales of blocks of 32 are in the order of the GPU's products"
    return None


def _slot(session, weight):
    """The codes [N, K] that forwards read; None without them."""
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


WEIGHTS, CONFIG = "model.safetensors", "config.json"


def safetensors(where):
    """The module safetensors.torch. Raises UnsupportedError, which names the caller, without the package."""
    try:
        import safetensors.torch
    except ImportError as e:
        raise UnsupportedError(f"{where}: expected the package safetensors, found none; run pip install safetensors") from e
    return safetensors.torch


def export(model: torch.nn.Module, folder: str | os.PathLike[str], layout: str = "fp8") -> dict[str, str]:
    """Writes <folder>/model.safetensors and <folder>/config.json, which say how to read it in their `quantization_config`.

    A transformers model gets its own config, so that from_pretrained(folder) loads it; without a GPU transformers multiplies
    the codes out. Other modules get a config.json with the quantization only. All other tensors keep their dtypes and values.
    Files appear whole or not at all. The model does not change, nor does the next step.

    Args:
        model: The result of octavo.prepare, in one process.
        folder: Where the two files are written.
        layout: "fp8", transformers' FineGrainedFP8Config, or "compressed-tensors".

    Returns:
        {linear: reason} of the layers that are written with plain values: those that did not train in FP8, and those whose codes
        the layout cannot hold.

    Raises:
        InvalidError: Another layout.
        UnsupportedError: No layer has codes for it, ranks share the weights, adapters of PEFT are not merged, or safetensors is
            missing.
        StateError: The model was not prepared.

    Example:
        >>> octavo.export(model, "served", layout="compressed-tensors")
    """
    if layout not in _LAYOUTS:
        raise InvalidError(f"octavo.export: layout: expected {' or '.join(map(repr, _LAYOUTS))}, found {layout!r}")
    save = safetensors("octavo.export").save
    model = _unwrapped(model)
    session = session_of(model)
    if any(w.is_sharded or w.parallel is not None for w in session.weights):
        raise UnsupportedError("octavo.export: expected a model whose weights are whole in this process, found shards; "
                               "load its checkpoint into an unsharded model and export that")
    found, why = codes_of_model(model, session)
    fits = _LAYOUTS[layout]
    for name, codes in list(found.items()):
        reason = fits.reason(codes)
        if isinstance(model.get_submodule(name), OwnForward):
            reason = "its class has its own forward, which a reader may replace by another"
        if reason:
            why[name] = reason
            del found[name]
    why.update(_of_another_kind(found))
    found = {name: codes for name, codes in found.items() if name not in why}
    if not found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(why.items())[:4])
        raise UnsupportedError(f"octavo.export: expected a layer whose codes the layout {layout!r} can hold, found none "
                               f"({reasons}); choose a recipe or a layout that page export lists")
    plain = sorted(name for name, module in model.named_modules()
                   if isinstance(module, torch.nn.Linear) and name not in found)
    # A config says once for all linears whether x has a scale of its own (static) or one of each forward.
    static = all(c.x_scale_inv is not None for c in found.values())
    tensors = _state(model, found, lambda c: fits.tensors(c, static))
    config = _config_of(model)
    if config and not config.get("dtype"):  # transformers derives it from dtypes of the file, of which it knows some
        config["dtype"] = str(next(t.dtype for t in model.state_dict().values() if t.is_floating_point())).removeprefix("torch.")
    config["quantization_config"] = fits.config(next(iter(found.values())), plain, static)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in ((WEIGHTS, save(tensors, metadata={"format": "pt"})),
                       (CONFIG, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())):
        replace(folder / name, lambda partial, data=data: pathlib.Path(partial).write_bytes(data))
    return why


def _unwrapped(model):
    """The model inside of wrappers that change the names of its weights. Raises UnsupportedError for adapters of PEFT, whose
    layers no reader of the file knows."""
    while is_a(model, "DistributedDataParallel") or is_a(model, "DataParallel") or is_a(model, "OptimizedModule"):
        model = model._orig_mod if is_a(model, "OptimizedModule") else model.module
    adapters = [name for name, m in model.named_modules() if is_a(m, "PeftModel") or is_a(m, "BaseTunerLayer")]
    if adapters:
        raise UnsupportedError(f"octavo.export: expected a model without adapters, found PEFT's in {len(adapters)} modules "
                               f"({', '.join(name or type(model).__name__ for name in adapters[:3])} ...); call "
                               "model = model.merge_and_unload() and export that")
    return model


def _of_another_kind(found):
    """A config names one kind of scales for all linears: {linear: reason} of those that have not the most common one."""
    kinds = collections.Counter((codes.block, codes.scale_inv.dtype) for codes in found.values())
    if len(kinds) < 2:
        return {}
    kept = kinds.most_common(1)[0][0]
    first = next(name for name, codes in found.items() if (codes.block, codes.scale_inv.dtype) == kept)
    return {name: f"its codes have other scales than {first} and more layers, and a config names one kind for all"
            for name, codes in found.items() if (codes.block, codes.scale_inv.dtype) != kept}


def _state(model, found, tensors_of):
    """The tensors of the file: each memory once, under its first name."""
    state, seen = {}, set()
    for key, value in model.state_dict().items():
        module, _, leaf = key.rpartition(".")
        if leaf == "weight" and module in found:
            state.update({f"{module}.{name}": t for name, t in tensors_of(found[module]).items()})
            continue
        if not isinstance(value, torch.Tensor):
            continue
        place = (value.data_ptr(), value.shape, value.stride())
        if value.numel() and place in seen:
            continue
        seen.add(place)
        state[key] = value.detach().cpu().contiguous()
    # Two tensors over one memory, such as a buffer that is a view: safetensors refuses them.
    return {key: t.clone() if t.untyped_storage().nbytes() != t.nbytes else t for key, t in state.items()}


def _config_of(model):
    if not hasattr(getattr(model, "config", None), "to_dict"):
        return {}
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    return json.loads(config.to_json_string())


class _FineGrained:
    """transformers.FineGrainedFP8Config."""

    @staticmethod
    def reason(c):
        if c.block == "row":
            return "the layout 'fp8' has no scale of a whole row; use 'compressed-tensors'"
        if isinstance(c.block, tuple) and any(size % part for size, part in zip(c.codes.shape, c.block)):
            return f"readers of the layout 'fp8' expect whole blocks of {c.block[0]} x {c.block[1]}, found a weight " \
                   f"{list(c.codes.shape)}"
        return None

    @staticmethod
    def tensors(c, static):
        scale = c.scale_inv if c.block else c.scale_inv.reshape(())
        out = {"weight": c.codes.cpu(), "weight_scale_inv": scale.cpu()}
        if static:
            out["activation_scale"] = torch.tensor(c.x_scale_inv)
        return out

    @staticmethod
    def config(c, plain, static):
        return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "static" if static else "dynamic",
                "weight_block_size": list(c.block) if c.block else None, "modules_to_not_convert": plain,
                "scale_fmt": "ue8m0" if c.scale_inv.dtype == torch.float8_e8m0fnu else "float"}


class _CompressedTensors:
    """compressed_tensors.QuantizationConfig with the format float-quantized."""

    @staticmethod
    def reason(c):
        if c.scale_inv.dtype != torch.float32:
            return "the format float-quantized of 'compressed-tensors' has float32 scales, found blocks of 32 with " \
                   "powers of two; use 'fp8'"
        return None

    @staticmethod
    def tensors(c, static):
        out = {"weight": c.codes.cpu(), "weight_scale": (c.scale_inv if c.block else c.scale_inv.reshape(1)).cpu()}
        if static:
            out["input_scale"] = torch.tensor([c.x_scale_inv])
        return out

    @staticmethod
    def config(c, plain, static):
        eight = {"num_bits": 8, "type": "float", "symmetric": True}
        weights = {**eight, "strategy": {None: "tensor", "row": "channel"}.get(c.block, "block"), "dynamic": False}
        inputs = {**eight, "strategy": "tensor", "dynamic": False} if static else \
            {**eight, "strategy": "token", "dynamic": True}
        if isinstance(c.block, tuple):
            weights["block_structure"] = list(c.block)
            inputs.update(strategy="group", group_size=c.block[1])
        return {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}},
                "ignore": plain}


_LAYOUTS = {"fp8": _FineGrained, "compressed-tensors": _CompressedTensors}
