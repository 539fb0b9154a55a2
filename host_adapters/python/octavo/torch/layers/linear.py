"""y = x w^T + bias through a backend: the function with its gradient, and the module.

The function has the arguments and results of torch.nn.functional.linear. x is float32, bfloat16 or
float16, and y has the dtype of x. Under autocast, both have the dtype of autocast.
"""
import torch

from ... import _abi
from ...errors import InvalidError, StateError, UnsupportedError, from_op
from .. import ops
from ..models import check_weight, open_sessions
from ..ranks import ddp
from ..slots import BACKWARD, HOST, MARKED, TO_END
from ..weights import gradient
from ..weights.parameter import SlotParameter, version as version_of
from .converted import Converted


# The gradients of a linear, and where they go: to torch, or to a slot.

is_compiling = torch.compiler.is_compiling
_library = torch.library.Library("octavo", "FRAGMENT")
_library.define("mark_met(int run, Tensor(a!)? dx, Tensor(b!)? dw, Tensor(c!)? db) -> ()")


@torch.library.impl(_library, "mark_met", "CompositeExplicitAutograd")
def _mark_met_of(run, *gradients):
    for session in open_sessions():
        if session.number == run:
            _mark_met(session.nonfinite, gradients)


@torch.library.register_fake("octavo::mark_met", lib=_library)
def _(run, *gradients):
    return None


def _mark_met(flag, gradients):
    """A saturating cast hides Inf from GradScaler, which inspects gradients, and from other ranks, which
    get their mean. If casts met Inf or NaN since the last call, also in forward passes, these gradients become NaN; dx passes
    it to the gradients of every layer before."""
    met = flag.view(-1) > MARKED
    for g in gradients:
        if g is not None:
            g.view(-1)[:1].masked_fill_(met, float("nan"))
    flag.clamp_(max=MARKED)


def gradients(site, dy, saved, weight, x, need_x, need_w, need_b):
    """The gradients of x, weight and bias; None where they are not needed."""
    if need_w and site.gradient == _abi.GRADIENT_SLOT and not is_compiling():
        need_w = site.is_reached()
    wanted = (ops.WANT_DX if need_x else 0) | (ops.WANT_DW if need_w else 0) | (
        ops.WANT_DB if need_b else 0)
    in_slot = need_w and site.gradient == _abi.GRADIENT_SLOT
    flags = _abi.BACKWARD_OVERWRITE
    if in_slot:
        flags = gradient.begin(site.session, site.weight)
    elif need_w and site.gradient == _abi.GRADIENT_NONE:
        raise StateError(f"{site.weight.name}: expected requires_grad=False, as it was at "
                         "octavo.prepare, found True; call octavo.prepare again, which takes the "
                         "model as it is now")
    elif site.weight.is_sharded:
        flags |= ops.OF_PACKED if site.weight.is_packed and weight is None else ops.OF_GATHERED
    dx, dw, db = ops.linear_backward(site.run, site.id, flags, wanted, dy, x, saved, weight,
                                     site.token if in_slot and is_compiling() else None)
    if in_slot and not is_compiling():
        gradient.began(site.weight)
        ddp.produced(site.session, site.weight)
    if in_slot or not need_w:
        dw = None
    session = site.session
    # On the CPU the op does so in every dtype.
    if session.device.type != "cpu" and (dy.dtype == torch.float16 or session.is_silent) and (
            session.nonfinite is not None and not session.needs_own_optimizer):
        found = (dx if need_x else None, dw, db if need_b else None)
        if is_compiling():  # which would compute with the flag as it was before
            torch.ops.octavo.mark_met(site.run, *found)
        else:
            _mark_met(session.nonfinite, found)
    if dw is not None and site.weight.transposed:
        dw = dw.t()
    return dx if need_x else None, dw, db if need_b else None


# Linears under torch.func: vmap and grad work where the weights are torch's own; what cannot work
# is an error with the name of the layer.


def _refuse_second(name):
    raise UnsupportedError(f"{name}: expected first derivatives only, found a second one: FP8 casts "
                           "have none; exclude the layer with module_filter of octavo.prepare")


class _Once(torch.autograd.Function):
    """Passes gradients on; their own gradient is an error."""

    @staticmethod
    def forward(ctx, name, _, *given):
        ctx.name = name
        return tuple(t.view_as(t) for t in given)

    @staticmethod
    def backward(ctx, *_):
        _refuse_second(ctx.name)


def first_order(name, found):
    """Gradients that can be used in a graph, but not be differentiated."""
    given = [t for t in found if t is not None]
    passed = iter(_Once.apply(name, torch.zeros((), requires_grad=True), *given))
    return tuple(None if t is None else next(passed) for t in found)


class _Transformed(torch.autograd.Function):
    """The same product for functorch, which needs the context apart from the forward."""

    @staticmethod
    def forward(x, weight, bias, site):
        version = ops.GATHERED if site.weight.is_sharded else ops.ASK_TORCH
        if site.weight.is_packed:
            weight, version = None, ops.PACKED
        return ops.linear_forward(site.run, site.id, ops.ASKED, version, x, weight, bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _, site = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.site = site
        weight = None if site.weight.is_packed else weight
        ctx.save_for_backward(output[1], weight, x if site.needs_x else None)

    @staticmethod
    def backward(ctx, dy, _):
        saved, weight, x = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return (*_Gradients.apply(dy, saved, weight, x, ctx.site, *needs[:3]), None)

    @staticmethod
    def vmap(info, in_dims, x, weight, bias, site):
        _refuse_batched(site, in_dims[1:3])
        x = x.movedim(in_dims[0], 0)
        return _Transformed.apply(x, weight, bias, site), (0, None)

    @staticmethod
    def jvp(ctx, *_):
        raise UnsupportedError(f"{ctx.site.name}: expected reverse mode, found forward mode (jvp), "
                               "which backends do not have; use torch.func.vjp or grad")


class _Gradients(torch.autograd.Function):
    """The backward of _Transformed, which vmap may also batch."""

    @staticmethod
    def forward(dy, saved, weight, x, site, need_x, need_w, need_b):
        return gradients(site, dy, saved, weight, x, need_x, need_w, need_b)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.site = inputs[4]

    @staticmethod
    def backward(ctx, *_):
        _refuse_second(ctx.site.name)

    @staticmethod
    def vmap(info, in_dims, dy, saved, weight, x, site, need_x, need_w, need_b):
        raise UnsupportedError(
            f"{site.name}: expected the gradient of a whole batch, found torch.func.vmap over a "
            "gradient; per-sample gradients need a product a sample: exclude the layer with "
            "module_filter of octavo.prepare")


def _refuse_batched(site, dims):
    if any(d is not None for d in dims):
        raise UnsupportedError(f"{site.name}: expected one weight for the whole batch, found "
                               "torch.func.vmap over weights (an ensemble); exclude the layer with "
                               "module_filter of octavo.prepare")


def transformed(site, x, weight, bias):
    """x weight^T + bias under a transform of torch.func. Raises UnsupportedError for a weight in
    slots, which transforms cannot follow."""
    if not site.is_native:
        raise UnsupportedError(
            f"{site.name}: expected a backend that leaves weights in the model, found "
            f"{site.session.run.backend} under torch.func; use te, or exclude the layer")
    return _Transformed.apply(x, weight, bias, site)[0]


# Bound here, because torch.compiler.is_compiling would be two look-ups in each call.
plain_linear = torch.nn.functional.linear
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
                found = first_order(ctx.site.name, found)
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
    """The op's arguments for torch's tensors: (weight or None, its version, if it can be asked for here; otherwise
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
            return transformed(site, _operand(site, x), weight, bias)
        return _product(site, _operand(site, x), weight, bias, training, _apply)
    except (AttributeError, RuntimeError) as e:
        _check_kind(site, x)
        raise_typed(e)


def _check_kind(site, x):
    """Raises InvalidError for an x that is not a dense tensor with memory, which ops do not know."""
    kind = f"a {type(x).__name__}" if not isinstance(x, torch.Tensor) else "a nested tensor" if x.is_nested else \
        "a tensor without memory (meta)" if x.is_meta else f"the layout {x.layout}" if x.layout != torch.strided else None
    if kind is not None:
        raise InvalidError(f"{site.name}: x: expected a dense tensor with memory, found {kind}; convert it (to_dense, "
                           "to_padded_tensor, values), or exclude the layer with module_filter of octavo.prepare") from None


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
    """torch's own linear. Without autocast a weight of another dtype is cast to x's, as autocast does."""
    if weight.dtype != x.dtype and x.dtype in ops.DTYPES and not torch.is_autocast_enabled(x.device.type):
        weight = weight.to(x.dtype)
        bias = None if bias is None else bias.to(x.dtype)
    return plain_linear(x, weight.transpose(-1, -2) if site.weight.transposed else weight, bias)


def _flows(site, x, weight, bias):
    """Whether a gradient does through this product."""
    weight = weight if site.is_native else site.anchor
    return is_grad_enabled() and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad))


def _ask_host(site, x, weight, bias, training):
    """The host's work that the op would start, before it: here an exception, such as a signal's, ends the call as itself."""
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


def product(site, x, weight, bias, training):
    """x weight^T + bias, computed by the backend, or by torch if site is None.

    x: [..., K]; weight: [N, K], a parameter or a differentiable part of one; bias: [N] or None.
    Returns [..., N].
    """
    if site is None:
        return torch.nn.functional.linear(x, weight, bias)
    return linear(site, x, weight, bias, training)


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
        """The product that a forward on the instance computes by this weight; see converted.Products."""
        return linear(self.octavo_site, x, self.weight, bias, self.training)
