"""Linears under torch.func: vmap and grad work where the weights are torch's own; what cannot work
is an error with the name of the layer."""
import torch

from ..errors import UnsupportedError
from . import ops
from .backward import gradients


def _refuse_second(name):
    raise UnsupportedError(f"{name}: expected first derivatives only, found a second one: FP8 casts "
                           "have none; exclude the layer with the filter of octavo.prepare")


class _Once(torch.autograd.Function):
    """Passes gradients on; their own gradient is an error."""

    @staticmethod
    def forward(ctx, name, _, *given):
        ctx.name = name
        return tuple(t.view_as(t) for t in given)

    @staticmethod
    def backward(ctx, *_):
        _refuse_second(ctx.name)


def once(name, found):
    """Gradients that can be used in a graph, but not be differentiated."""
    given = [t for t in found if t is not None]
    passed = iter(_Once.apply(name, torch.zeros((), requires_grad=True), *given))
    return tuple(None if t is None else next(passed) for t in found)


class _Transformed(torch.autograd.Function):
    """The same product for functorch, which wants the context apart from the forward."""

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
                               "for which backends have no verb; use torch.func.vjp or grad")


class _Gradients(torch.autograd.Function):
    """The backward of _Transformed, which vmap may batch, too."""

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
            "gradient; per-sample gradients need a product a sample: exclude the layer with the "
            "filter of octavo.prepare")


def _refuse_batched(site, dims):
    if any(d is not None for d in dims):
        raise UnsupportedError(f"{site.name}: expected one weight for the whole batch, found "
                               "torch.func.vmap over weights (an ensemble); exclude the layer with "
                               "the filter of octavo.prepare")


def linear(site, x, weight, bias):
    """x weight^T + bias under a transform of torch.func. Raises UnsupportedError for a weight in
    slots, which transforms cannot follow."""
    if not site.is_native:
        raise UnsupportedError(
            f"{site.name}: expected a backend that leaves weights in the model, found "
            f"{site.session.run.backend} under torch.func; use te, or exclude the layer")
    return _Transformed.apply(x, weight, bias, site)[0]
