"""The ops to inject where a model takes a dot_general or an einsum, as flax's layers do."""
import dataclasses

import jax.numpy as jnp
import numpy as np

from ..errors import UnsupportedError
from .layout import Site
from .linear import linear


def sides(shape, contracted):
    """([N, K] of a weight of this shape, its axes in the order of N and K). contracted: its axes in the product."""
    contracted = sorted(contracted)
    free = [axis for axis in range(len(shape)) if axis not in contracted]
    size = lambda axes: int(np.prod([shape[axis] for axis in axes]))  # noqa: E731
    return (size(free), size(contracted)), free, contracted


def _name(site):
    return site if isinstance(site, str) else site.spec.name


@dataclasses.dataclass(frozen=True)
class dot_general:
    """Called as jax.lax.dot_general, for a product of activations with a weight without batch dimensions, by a linear of a
    state: dot_general(state["up"]), or its name. Raises UnsupportedError for any other product."""
    site: Site | str

    def __call__(self, lhs, rhs, dimension_numbers, precision=None, preferred_element_type=None, **options):
        (of_lhs, of_rhs), batch_dims = dimension_numbers
        if any(map(len, batch_dims)) or not 0 < len(of_rhs) < rhs.ndim:
            raise UnsupportedError(
                f"linear {_name(self.site)}: expected a product of activations with a weight, without batch dimensions, "
                f"found {dimension_numbers}; leave jax.lax.dot_general in this place")
        (n, k), free, contracted = sides(rhs.shape, of_rhs)
        pairs = dict(zip(of_rhs, of_lhs))
        rows = [axis for axis in range(lhs.ndim) if axis not in of_lhs]
        x = lhs.transpose(*rows, *(pairs[axis] for axis in contracted)).reshape(*(lhs.shape[axis] for axis in rows), k)
        y = linear(self.site, x, rhs.transpose(*free, *contracted).reshape(n, k))
        y = y.reshape(*y.shape[:-1], *(rhs.shape[axis] for axis in free))
        return y if preferred_element_type is None else y.astype(preferred_element_type)


@dataclasses.dataclass(frozen=True)
class Equation:
    """An einsum of activations and a weight that is a linear: each label of the weight is either contracted or free."""
    x: str        # labels, "." for dimensions that the equation leaves open
    weight: str
    y: str

    @staticmethod
    def of(text):
        """Reads "...d,dhk->...hk". Returns it, or the reason why it is not a linear."""
        operands, _, y = text.replace(" ", "").replace("...", ".").partition("->")
        x, _, weight = operands.partition(",")
        if "." in weight or any(len(set(labels)) < len(labels) for labels in (x, weight, y)):
            return f"{text}: its weight has open or repeated dimensions"
        contracted = set(x) & set(weight)
        if contracted & set(y):
            return f"{text}: a batch dimension {min(contracted & set(y))} is in both operands and the result"
        if not contracted or set(y) != (set(x) | set(weight)) - contracted:
            return f"{text}: a dimension of one operand is summed up"
        return Equation(x, weight, y)

    @property
    def contracted(self):
        """Axes of the weight."""
        return [i for i, label in enumerate(self.weight) if label not in self.y]


@dataclasses.dataclass(frozen=True)
class einsum:
    """Called as jnp.einsum, for an Equation of activations and a weight, by a linear of a state."""
    site: Site | str

    def __call__(self, text, x, weight, precision=None, preferred_element_type=None, **options):
        found = Equation.of(text)
        if isinstance(found, str):
            raise UnsupportedError(f"linear {_name(self.site)}: expected activations times a weight, found {found}; leave "
                                   "jax.numpy.einsum in this place")
        open_ = "".join(chr(0xE000 + i) for i in range(x.ndim - len(found.x.replace(".", ""))))
        of_x, of_y = found.x.replace(".", open_), found.y.replace(".", open_)
        contracted = [label for label in found.weight if label not in of_y]
        dims = tuple(of_x.index(c) for c in contracted), tuple(found.weight.index(c) for c in contracted)
        y = dot_general(self.site)(x, weight, (dims, ((), ())), preferred_element_type=preferred_element_type)
        order = [c for c in of_x if c not in contracted] + [c for c in found.weight if c not in contracted]
        return jnp.transpose(y, [order.index(c) for c in of_y])
