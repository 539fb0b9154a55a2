"""The op to inject where a model takes a dot_general, as flax's layers do."""
import dataclasses

import jax
import numpy as np
from jax import lax

from ..errors import StateError, UnsupportedError
from .gradients import current, discovery, is_declined
from .linear import linear


@dataclasses.dataclass(frozen=True)
class dot_general:
    """Called as jax.lax.dot_general, for a product of activations [..., K] with a weight [K, N], by the
    linear `name` of the State in use. One that the backend declined is computed by JAX. Raises
    UnsupportedError for any other product, StateError outside of octavo.jax.use and value_and_grad."""
    name: str

    def __call__(self, lhs, rhs, dimension_numbers, precision=None, preferred_element_type=None,
                 **options):
        def plain():
            return lax.dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type,
                                   **options)

        (contracted, leading), batch_dims = dimension_numbers
        count = len(contracted)
        is_linear = not any(map(len, batch_dims)) and 0 < count < rhs.ndim and (
            tuple(contracted) == tuple(range(lhs.ndim - count, lhs.ndim))
            and tuple(leading) == tuple(range(count)))
        if not is_linear:
            raise UnsupportedError(
                f"dot_general {self.name}: expected the last dimensions of activations times the first "
                f"of a weight, without batch dimensions, found {dimension_numbers}; leave "
                "jax.lax.dot_general in this place")
        k, n = int(np.prod(rhs.shape[:count])), int(np.prod(rhs.shape[count:]))
        found = discovery()
        if found is not None:
            found[self.name] = jax.ShapeDtypeStruct((n, k), rhs.dtype)
            return plain()
        if is_declined(self.name):
            return plain()
        y = linear(site_of(self.name, is_host_weight=True), lhs.reshape(*lhs.shape[:lhs.ndim - count], k),
                   rhs.reshape(k, n).T)
        y = y.reshape(*lhs.shape[:lhs.ndim - count], *rhs.shape[count:])
        return y if preferred_element_type is None else y.astype(preferred_element_type)


def site_of(name, is_host_weight=False):
    """The Site of this name in use."""
    site = current().get(name)
    if site is None:
        raise StateError(f"linear {name}: expected a State in use that has it, found "
                         f"{', '.join(current()) or 'none'}; call the model in the function given to "
                         "octavo.jax.value_and_grad, or inside of octavo.jax.use(state)")
    if is_host_weight and site.spec.owns_weight:
        raise UnsupportedError(f"linear {name}: expected a backend that reads the model's own weight, found "
                               "one that keeps it in slots; use octavo.jax.Linear or octavo.jax.Dense in "
                               "place of flax's layer, or fp8.backend = \"te\"")
    return site
