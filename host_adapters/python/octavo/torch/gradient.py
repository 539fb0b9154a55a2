"""Gradients in slots, as p.grad.

The backend accumulates the gradient of a weight in its own format. `SlotGradient` represents it for
torch's tools: clip_grad_norm_ reads its norm and scales it, zero_grad drops it. Any other read
gives plain float values. Any other write raises UnsupportedError.
"""
import torch
from torch.utils._pytree import tree_map_only

from .. import _abi
from ..errors import UnsupportedError
from . import ops

aten = torch.ops.aten
_NORMS = {aten.linalg_vector_norm.default, aten.norm.Scalar}
_SCALINGS = {aten.mul_.Tensor: torch.mul, aten.mul_.Scalar: torch.mul,
             aten.div_.Tensor: torch.div, aten.div_.Scalar: torch.div}


class SlotGradient(torch.Tensor):
    """p.grad of a parameter whose gradient is in slots. `factor` (float32 scalar) multiplies the
    stored values; the optimizer applies it."""

    @staticmethod
    def __new__(cls, session, weights):
        p = weights[0].parameter
        return torch.Tensor._make_wrapper_subclass(cls, p.shape, dtype=p.dtype, device=p.device)

    def __init__(self, session, weights):
        self.session = session
        self.weights = weights
        self.begun = set()  # ids of the weights with a gradient since the last zero_grad
        self.factor = torch.ones((), dtype=torch.float32)

    def complete(self):
        """Clears the slots of parts that no backward reached, such as experts without tokens."""
        for w in self.weights:
            if w.id not in self.begun:
                self.session.clear_gradient(w)
                self.begun.add(w.id)

    def plain(self):
        """The values in the dtype and shape of the parameter, including the factor."""
        self.complete()
        p = self.weights[0].parameter
        return self.session.read(p, _abi.ROLE_GRADIENT) * self.factor.to(p.dtype)

    def norm_2(self):
        """The l2 norm, a float32 scalar, computed from the stored format."""
        self.complete()
        return self.session.gradient_sum(self.weights).sqrt().reshape(()) * self.factor.abs()

    def __repr__(self, *, tensor_contents=None):
        return f"SlotGradient(shape={tuple(self.shape)}, factor={self.factor.item()})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, SlotGradient):
            if func in (aten.detach.default, aten.alias.default):
                return first
            if func in _NORMS and (len(args) < 2 or args[1] == 2) and len(args) < 3:
                norm = first.norm_2()
                dtype = kwargs.get("dtype")
                return norm.to(dtype or first.dtype)
            if func in _SCALINGS and not isinstance(args[1], SlotGradient):
                other = torch.as_tensor(args[1])
                if other.numel() == 1:
                    first.factor = _SCALINGS[func](first.factor, other.reshape(()).float())
                    return first
            if func is aten.zero_.default:
                for w in first.weights:
                    first.session.clear_gradient(w)
                first.factor = torch.ones_like(first.factor)
                return first
        if func is aten._foreach_zero_.default:
            return [g.zero_() for g in first] and None
        if func._schema.is_mutable:
            raise UnsupportedError(
                f"{func}: expected an operation that a gradient in FP8 slots supports (a factor, "
                "zero_), found another one; read it with p.grad.plain(), or use "
                "fp8.msamp.gradient_accumulation and clip_grad_norm_")
        return func(*tree_map_only(SlotGradient, SlotGradient.plain, args),
                    **tree_map_only(SlotGradient, SlotGradient.plain, kwargs))


def begin(session, weight):
    """The flags of linear_backward for a weight whose gradient is in a slot.

    The first gradient after zero_grad overwrites the slot; later ones add to it. A compiled graph
    cannot inspect p.grad, so its gradients always add. The op records this, and the optimizer
    clears them.
    """
    if torch.compiler.is_compiling():
        return ops.OF_GRAPH
    p = weight.parameter
    if not isinstance(p.grad, SlotGradient):
        p.grad = SlotGradient(session, session.weights_of(p))
    if weight.id in p.grad.begun:
        return 0
    p.grad.begun.add(weight.id)
    return _abi.BACKWARD_OVERWRITE
