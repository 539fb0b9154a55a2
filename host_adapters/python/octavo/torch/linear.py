"""y = x w^T + bias through a backend: the function with its gradient, and the module.

The function has the arguments and results of torch.nn.functional.linear. x is float32, bfloat16 or
float16, and y has the dtype of x. Under autocast, both have the dtype of autocast.
"""
import torch

from .. import _abi
from ..errors import InvalidError, StateError, from_op
from . import ddp, gradient, ops
from .converted import Converted
from .slots import MARKED

# Bound here, because torch.compiler.is_compiling would be two look-ups in each call.
is_compiling = torch.compiler.is_compiling
is_grad_enabled = torch.is_grad_enabled
are_transforms_active = torch._C._are_functorch_transforms_active


class _Linear(torch.autograd.Function):
    """The autograd function. `weight` is an argument for its gradient only: the backend reads its
    values through the slot lists, from a native slot or as codes."""

    @staticmethod
    def forward(ctx, x, weight, bias, site):
        lists = site.forward.fill()
        y, saved = ops.linear_forward(site.run, site.id, 0, x, bias, lists.read, lists.accumulate)
        ctx.site = site
        if site.needs_x:
            ctx.save_for_backward(saved, x)
        else:
            ctx.save_for_backward(saved)
        return y

    @staticmethod
    def backward(ctx, dy):
        if is_compiling():
            return _gradients(ctx, dy)
        try:
            # Only create_graph enables gradients here. The result is then not differentiable.
            return _recorded(ctx, dy) if is_grad_enabled() else _gradients(ctx, dy)
        except RuntimeError as e:
            raise_typed(e)


def _gradients(ctx, dy):
    """The gradients of x, weight and bias; None where they are not needed."""
    site = ctx.site
    saved, *x = ctx.saved_tensors
    need_x, need_w, need_b, _ = ctx.needs_input_grad
    wanted = (ops.WANT_DX if need_x else 0) | (ops.WANT_DW if need_w else 0) | (
        ops.WANT_DB if need_b else 0)
    in_slot = need_w and site.gradient == _abi.GRADIENT_SLOT
    flags = _abi.BACKWARD_OVERWRITE
    if in_slot:
        flags = gradient.begin(site.session, site.weight)
    elif need_w and site.gradient == _abi.GRADIENT_NONE:
        raise StateError(f"{site.weight.name}: expected requires_grad=False, as it was at "
                         "octavo.prepare, found True; set it before octavo.prepare")
    flag = None
    if dy.dtype == torch.float16 and not site.session.needs_own_optimizer:
        flag = site.session.nonfinite
    if flag is not None:
        earlier = flag.clone()
        flag.zero_()
    lists = site.backward.fill()
    dx, dw, db = ops.linear_backward(site.run, site.id, flags, wanted, dy, x[0] if x else None,
                                     saved, lists.read, lists.accumulate, lists.update)
    if in_slot and not is_compiling():
        ddp.produced(site.session, site.weight)
    if in_slot or not need_w:
        dw = None
    if flag is not None:
        # A saturating cast hides Inf from GradScaler, which inspects gradients: put a NaN in one.
        marked = dx if dw is None else dw
        marked.view(-1)[:1].masked_fill_(flag.view(-1) > 0, float("nan"))
        flag.copy_(torch.maximum(earlier, flag * MARKED))
    if dw is not None and site.weight.transposed:
        dw = dw.t()
    return (dx if need_x else None, dw, db if need_b else None, None)


_recorded = torch.autograd.function.once_differentiable(_gradients)

# Function.apply without its handling of functorch, which costs as much as a small product.
_apply = super(torch.autograd.Function, _Linear).apply


def raise_typed(raised):
    """Raises an exception of an octavo op as an exception of this package."""
    typed = from_op(raised)
    if typed is raised:
        raise raised
    raise typed from None


def linear(site, x, weight, bias=None, training=True):
    """x weight^T + bias through the backend.

    site: the use of the weight; x: [..., K]; weight: the torch parameter or a differentiable part
    of it; bias: [N] or None. Returns [..., N] in the dtype of x. Thread-safe, unless two threads
    train one layer at once. Raises InvalidError for another dtype or K, and if the model was moved
    or cast after octavo.prepare; raises StateError after close, and if the parameter was replaced.
    """
    if is_compiling():
        return _product(site, _operand(site, x), weight, bias, training, _Linear.apply)
    w = site.weight
    if w.piece is None and weight is not w.parameter:
        raise StateError(f"{w.name}: expected the parameter that octavo.prepare saw, found another "
                         "one in its place; change values in place (weight.copy_), or prepare the "
                         "model after replacing it")
    try:
        if w.version != w.parameter._version:
            site.session.quantize(w)
        apply = _Linear.apply if are_transforms_active() else _apply
        return _product(site, _operand(site, x), weight, bias, training, apply)
    except RuntimeError as e:
        raise_typed(e)


def _operand(site, x):
    """x in the dtype of the product. Raises InvalidError for a dtype that ops do not support."""
    kind = "cpu" if x.is_cpu else x.device.type
    if torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    if x.dtype not in ops.DTYPES:
        raise InvalidError(f"{site.name}: x: expected float32, bfloat16 or float16, found {x.dtype}; "
                           "cast the input")
    return x


def _product(site, x, weight, bias, training, apply):
    if is_grad_enabled() and (x.requires_grad or weight.requires_grad or
                              (bias is not None and bias.requires_grad)):
        return apply(x, weight, bias, site)
    flags = ops.NO_BACKWARD | (0 if training else _abi.FORWARD_EVALUATION)
    return ops.linear_forward(site.run, site.id, flags, x, bias, site.forward.fill().read, [])[0]


class Linear(Converted, torch.nn.Linear):
    """torch.nn.Linear whose product is computed by a backend. octavo.prepare makes it from a plain
    one in place; parameters, hooks and names do not change."""

    def forward(self, x):
        return linear(self.octavo_site, x, self.weight, self.bias, self.training)
