"""y = x w^T + bias through a backend: the function with its gradient, and the module.

The function has the arguments and results of torch.nn.functional.linear. x is float32, bfloat16 or
float16, and y has the dtype of x. Under autocast, both have the dtype of autocast.
"""
import torch

from .. import _abi
from ..errors import InvalidError, StateError, UnsupportedError, from_op
from . import ops, transforms
from .backward import gradients
from .converted import Converted
from .foreign import check_weight
from .parameter import SlotParameter
from .slots import BACKWARD, HOST, TO_END
from .weight_copy import version as version_of

# Bound here, because torch.compiler.is_compiling would be two look-ups in each call.
plain_linear = torch.nn.functional.linear
is_compiling = torch.compiler.is_compiling
is_grad_enabled = torch.is_grad_enabled
are_transforms_active = torch._C._are_functorch_transforms_active
is_tracing = torch._C._get_tracing_state


class _Linear(torch.autograd.Function):
    """The autograd function. weight: torch's tensor, or the anchor of a weight in slots."""

    @staticmethod
    def forward(ctx, x, weight, bias, site):
        native, version = _native(site, weight)
        y, saved = ops.linear_forward(site.run, site.id, 0 if is_compiling() else ops.ASKED, version, x, native, bias)
        ctx.site = site
        if not site.is_native and not is_compiling():
            ctx.version = version_of(site.weight.parameter)
        # Saving the weight gives torch's own error for a weight that changes before backward.
        ctx.save_for_backward(saved, native, x if site.needs_x else None)
        return y

    @staticmethod
    def backward(ctx, dy):
        saved, weight, x = ctx.saved_tensors
        need_x, need_w, need_b, _ = ctx.needs_input_grad
        if not ctx.site.is_native and not is_compiling():
            _expect_unchanged(ctx)
        try:
            if is_compiling() or not is_grad_enabled():
                found = gradients(ctx.site, dy, saved, weight, x, need_x, need_w, need_b)
            else:  # create_graph
                with torch.no_grad():
                    found = gradients(ctx.site, dy, saved, weight, x, need_x, need_w, need_b)
                found = transforms.once(ctx.site.name, found)
        except RuntimeError as e:
            raise_typed(e)
        return (*found, None)


def _expect_unchanged(ctx):
    """For a weight in slots, as torch does it for the weights that it saves."""
    weight = ctx.site.weight
    now, then = version_of(weight.parameter), getattr(ctx, "version", None)
    if then is not None and now != then:
        raise StateError(f"{weight.name}: one of the variables needed for gradient computation has been modified by an "
                         f"inplace operation: expected version {then} of this weight, as in the forward, found {now}; "
                         "call backward before code changes the weight")


# Function.apply without its handling of functorch, which costs as much as a small product.
_apply = super(torch.autograd.Function, _Linear).apply


def _native(site, weight):
    """What the op takes of torch's: (weight or None, its version, if it can be asked for here; otherwise
    the op asks)."""
    w = site.weight
    if not site.is_native:
        return None, 0
    if w.is_sharded and (is_compiling() or weight is w.value or weight._base is w.value):
        return (None, ops.PACKED) if w.is_packed else (weight, ops.GATHERED)
    if is_compiling():
        return weight, ops.ASK_TORCH
    return weight, ops.NO_VERSION if weight.is_inference() else weight._version


def raise_typed(raised):
    """Raises an exception of an octavo op as an exception of this package."""
    typed = from_op(raised)
    if typed is raised:
        raise raised
    raise typed from None


def linear(site, x, weight, bias=None, training=True):
    """x weight^T + bias through the backend.

    site: the use of the weight; x: [..., K]; weight: the torch parameter, a differentiable part of
    it, or another tensor of its shape to multiply by; for a weight in slots the parameter, or None.
    bias: [N] or None; float32 is rounded to the dtype of x, as autocast does. training: whether the module
    trains; outside of training it is torch's own linear where the backend's options say so, and casts
    record only where a gradient flows. Returns [..., N] in the dtype of x. Thread-safe, unless two threads
    train one layer at once. Raises InvalidError for another dtype or K, and if the model was moved or cast
    after octavo.prepare; raises StateError after close.
    """
    w = site.weight
    if not training and site.evaluates_in_host and not w.is_packed:
        return _in_host(site, x, weight, bias)
    if is_compiling():
        return _product(site, _operand(site, x), weight, bias, training, _Linear.apply)
    if weight is not w.value and w.piece is None and weight is not None:
        check_weight(site, weight)
    elif not site.is_native and type(w.parameter) is not SlotParameter:  # torch.utils.swap_tensors
        check_weight(site, w.parameter)
    if is_tracing() is not None:
        raise UnsupportedError(f"{site.name}: expected eager code or torch.compile, found "
                               "torch.jit.trace; use torch.export or torch.compile")
    try:
        since = site.flags.since
        if site.flags.weights[w.id] & HOST or since[BACKWARD] or since[TO_END]:
            _ask_host(site, x, weight, bias, training)
        if are_transforms_active():
            return transforms.linear(site, _operand(site, x), weight, bias)
        return _product(site, _operand(site, x), weight, bias, training, _apply)
    except (AttributeError, RuntimeError) as e:
        _check_kind(site, x)
        raise_typed(e)


def _check_kind(site, x):
    """Raises InvalidError for an x that is no dense tensor with memory, of which no op knows."""
    kind = f"a {type(x).__name__}" if not isinstance(x, torch.Tensor) else "a nested tensor" if x.is_nested else \
        "a tensor without memory (meta)" if x.is_meta else f"the layout {x.layout}" if x.layout != torch.strided else None
    if kind is not None:
        raise InvalidError(f"{site.name}: x: expected a dense tensor with memory, found {kind}; convert it (to_dense, "
                           "to_padded_tensor, values), or exclude the layer with the filter of octavo.prepare") from None


def _operand(site, x):
    """x in the dtype of the product. Raises InvalidError for a dtype that ops do not support."""
    kind = "cpu" if x.is_cpu else x.device.type
    if torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    if x.dtype not in ops.DTYPES:
        raise InvalidError(f"{site.name}: x: expected float32, bfloat16 or float16, found {x.dtype}; "
                           "cast the input")
    return x


def _in_host(site, x, weight, bias):
    """torch's own linear. Without autocast a weight of another dtype is cast to that of x, as autocast does."""
    if weight.dtype != x.dtype and x.dtype in ops.DTYPES and not torch.is_autocast_enabled(x.device.type):
        weight = weight.to(x.dtype)
        bias = None if bias is None else bias.to(x.dtype)
    return plain_linear(x, weight.transpose(-1, -2) if site.weight.transposed else weight, bias)


def _flows(site, x, weight, bias):
    """Whether a gradient does through this product."""
    weight = weight if site.is_native else site.anchor
    return is_grad_enabled() and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad))


def _ask_host(site, x, weight, bias, training):
    """What the op would ask the host for, before it: here an exception, such as that of a signal, ends the call as
    itself."""
    session, w = site.session, site.weight
    if site.flags.weights[w.id] & HOST:
        session.before_forward(w)
    if (training or _flows(site, x, weight, bias)) and session.is_combining():
        native, version = _native(site, weight)
        address = 0 if native is None or version == ops.GATHERED else native.data_ptr()
        if ops.is_due(session.number, w.id, address, version):
            session.combine()
            session.end_step()


def _product(site, x, weight, bias, training, apply):
    if not site.is_native:
        weight = site.anchor
    if is_grad_enabled() and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)):
        return apply(x, weight, bias, site)
    flags = ops.NO_BACKWARD if training else ops.NO_BACKWARD | ops.QUIET | _abi.FORWARD_EVALUATION
    if not is_compiling():
        flags |= ops.ASKED
    native, version = _native(site, weight)
    return ops.linear_forward(site.run, site.id, flags, version, x, native, bias)[0]


class Linear(Converted, torch.nn.Linear):
    """torch.nn.Linear whose product is computed by a backend. octavo.prepare makes it from a plain
    one in place; parameters, hooks and names do not change."""
    _octavo_made_of = (torch.nn.Linear, None)

    def forward(self, x):
        site = getattr(self, "octavo_site", None)
        if site is None:  # a wrapper around this forward outlived octavo.restore
            return torch.nn.Linear.forward(self, x)
        if not self.training and site.evaluates_in_host and not site.weight.is_packed:
            weight = self.weight
            if weight.dtype is x.dtype:
                return plain_linear(x, weight, self.bias)
            return _in_host(site, x, weight, self.bias)
        weight = self.weight if site.is_native or not is_compiling() else None
        return linear(site, x, weight, self.bias, self.training)

    def octavo_product(self, name, x, bias):
        """The product that a forward on the instance computes by this weight; see own_products."""
        return linear(self.octavo_site, x, self.weight, bias, self.training)
