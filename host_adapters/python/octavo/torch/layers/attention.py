"""torch.nn.MultiheadAttention with its four linear products computed by a backend.

The projections of q, k and v are row ranges of one parameter [3E, E], or three parameters if keys
or values have their own widths. torch reads these parameters and the weight of out_proj without
calling a module. The counterpart therefore computes the whole attention.
"""
import math

import torch
from torch.nn import functional

from ...errors import InvalidError
from ..models import check_weight
from .converted import Converted, computed, counterpart, set_class
from .linear import Linear, is_compiling, product
from .own_forward import refuses

PARTS = ("q", "k", "v")


def _heads(x, batch_first, head_dim):
    """[N, L, E] or [L, N, E] -> [N, heads, L, head_dim]"""
    x = x.unflatten(-1, (-1, head_dim))
    return x.transpose(1, 2) if batch_first else x.permute(1, 2, 0, 3)


def _joined(x, batch_first):
    """[N, heads, L, head_dim] -> [N, L, E] or [L, N, E]"""
    return (x.transpose(1, 2) if batch_first else x.permute(2, 0, 1, 3)).flatten(2)


def _addend(mask, name, dtype):
    """The tensor that a mask adds to the scores: minus infinity where a bool mask is True."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)
    if not mask.is_floating_point():
        raise InvalidError(f"{name}: expected a bool or floating-point tensor, found {mask.dtype}")
    return mask.to(dtype)


def _check(name, tensor, expected):
    if tuple(tensor.shape) not in expected:
        raise InvalidError(f"{name}: expected shape {' or '.join(map(str, expected))}, found "
                           f"{tuple(tensor.shape)}")


class MultiheadAttention(Converted):
    """Mixin for torch.nn.MultiheadAttention, with the same arguments and results up to rounding.

    need_weights=False uses scaled_dot_product_attention. The is_causal hint then replaces
    attn_mask, unless keys are appended (add_bias_kv, add_zero_attn) or key_padding_mask is given.
    Raises InvalidError for nested tensors, for a different number of dimensions of query, key and
    value, for masks of another shape or dtype, and for is_causal without attn_mask.
    """

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        if query.is_nested or key.is_nested or value.is_nested:
            raise InvalidError("MultiheadAttention: expected dense tensors, found a nested one; "
                               "pad it and pass key_padding_mask")
        if is_causal and attn_mask is None:
            raise InvalidError("MultiheadAttention: is_causal: expected this hint together with "
                               "attn_mask, found None; pass the causal mask as well")
        batched = query.dim() == 3
        if not (query.dim() == key.dim() == value.dim() and query.dim() in (2, 3)):
            raise InvalidError("MultiheadAttention: query, key, value: expected all 2-D or all "
                               f"3-D, found {query.dim()}-D, {key.dim()}-D, {value.dim()}-D")
        batch_first = self.batch_first or not batched
        q, k, v = self._project(query, key, value)
        if not batched:
            q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        q, k, v = (_heads(x, batch_first, self.head_dim) for x in (q, k, v))
        mask = self._mask(q, k, attn_mask, key_padding_mask)
        k, v, extra = self._appended(k, v)
        causal = is_causal and key_padding_mask is None and not need_weights and not extra
        if causal:
            mask = None
        elif mask is not None and extra:
            mask = functional.pad(mask, (0, extra))
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q * math.sqrt(1.0 / self.head_dim) @ k.transpose(-2, -1)
            weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
            if dropout > 0.0:
                weights = functional.dropout(weights, p=dropout)
            y = weights @ v
            if average_attn_weights:
                weights = weights.mean(dim=1)
        else:
            y = functional.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        y = product(self.octavo_sites["out_proj"], _joined(y, batch_first), self.out_proj.weight,
                    self.out_proj.bias, self.training)
        if not batched:
            y, weights = y.squeeze(0), None if weights is None else weights.squeeze(0)
        return y, weights

    def _project(self, query, key, value):
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [product(self.octavo_sites[part], x, weight, bias, self.training)
                for part, x, weight, bias in zip(PARTS, (query, key, value), self._parts(),
                                                 biases)]

    def _parts(self):
        """The weights of the three projections; None where they are in slots."""
        sites = [self.octavo_sites[part] for part in PARTS]
        if self._qkv_same_embed_dim:
            own = [self.in_proj_weight] * 3
        else:
            own = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        for site, parameter in zip(sites, own):
            if site and not is_compiling() and parameter is not site.weight.value:
                check_weight(site, parameter)
        if any(site and not site.is_native for site in sites):
            return (None,) * 3
        return self.in_proj_weight.chunk(3) if self._qkv_same_embed_dim else own

    def _mask(self, q, k, attn_mask, key_padding_mask):
        """Both masks as one tensor to add to the scores, which broadcasts to [N, heads, L, S]; None
        without masks."""
        n, heads, rows = q.shape[:3]
        cols = k.shape[2]
        if attn_mask is not None:
            _check("attn_mask", attn_mask, ((rows, cols), (n * heads, rows, cols)))
            attn_mask = _addend(attn_mask, "attn_mask", q.dtype)
            if attn_mask.dim() == 3:
                attn_mask = attn_mask.view(n, heads, rows, cols)
        if key_padding_mask is None:
            return attn_mask
        _check("key_padding_mask", key_padding_mask, ((n, cols),))
        padding = _addend(key_padding_mask, "key_padding_mask", q.dtype)[:, None, None, :]
        padding = padding.expand(n, heads, 1, cols)
        return padding if attn_mask is None else attn_mask + padding

    def _appended(self, k, v):
        """Returns keys and values with bias_k, bias_v and zeros appended, and how many were
        appended."""
        before = k.shape[2]
        if self.bias_k is not None:
            shape = (k.shape[0], self.num_heads, 1, self.head_dim)
            k, v = (torch.cat([x, b.view(1, self.num_heads, 1, -1).expand(shape).to(x.dtype)], 2)
                    for x, b in ((k, self.bias_k), (v, self.bias_v)))
        if self.add_zero_attn:
            k, v = functional.pad(k, (0, 0, 0, 1)), functional.pad(v, (0, 0, 0, 1))
        return k, v, k.shape[2] - before


class _AttentionConverter:
    """Converts torch.nn.MultiheadAttention and subclasses that do not override forward."""

    def matches(self, module):
        return isinstance(module, torch.nn.MultiheadAttention)

    def refuses(self, module):
        reason = refuses(module, torch.nn.MultiheadAttention.forward)
        if reason is not None:
            return reason
        out = module.out_proj
        if not isinstance(out, torch.nn.Linear) or type(out).forward is not torch.nn.Linear.forward:
            return f"its out_proj is a {type(out).__module__}.{type(out).__name__}"
        names = (("in_proj_weight",) if module._qkv_same_embed_dim else
                 tuple(f"{part}_proj_weight" for part in PARTS))
        return computed(module, *names) or computed(out, "weight")

    def inner(self, module):
        """torch reads out_proj without calling it, so no inner module is a candidate itself."""
        return tuple(module.modules())[1:]

    def linears(self, module):
        e = module.embed_dim
        if module._qkv_same_embed_dim:
            found = [(part, dict(parameter=module.in_proj_weight, of="in_proj_weight",
                                 piece=(i * e, i * e + e))) for i, part in enumerate(PARTS)]
        else:
            found = [(part, dict(parameter=getattr(module, f"{part}_proj_weight"),
                                 of=f"{part}_proj_weight")) for part in PARTS]
        out = module.out_proj
        return found + [("out_proj", dict(parameter=out.weight, of="out_proj.weight", module=out))]

    def apply(self, module, sites):
        module.octavo_sites = {part: sites.get(part) for part in (*PARTS, "out_proj")}
        set_class(module, counterpart(type(module), MultiheadAttention))
        if module.octavo_sites["out_proj"] is not None:
            out = module.out_proj
            out.octavo_site = module.octavo_sites["out_proj"]
            out.__class__ = counterpart(type(out), Linear)


MULTIHEAD_ATTENTION = _AttentionConverter()


def fast_paths(model, converted):
    """The changes that stop torch's encoder layers from computing a whole layer from its raw
    weights: [(module, attribute, value)]. torch does so in evaluation without gradients if these
    attributes allow it, and the encoder then passes nested tensors.

    converted: the modules that run through a backend. Encoders without any are not changed.
    """
    ids = {id(m) for m in converted}
    found = []
    for module in model.modules():
        if isinstance(module, torch.nn.TransformerEncoderLayer):
            attribute, value = "activation_relu_or_gelu", 0
        elif isinstance(module, torch.nn.TransformerEncoder):
            attribute, value = "use_nested_tensor", False
        else:
            continue
        if any(id(m) in ids for m in module.modules()):
            found.append((module, attribute, value))
    return found
