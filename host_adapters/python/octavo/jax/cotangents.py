"""Dtypes of what is recorded: how JAX combines the cotangents of an array that is used more than once.

JAX adds cotangents. A record of maxima has flax's fm32, a float32 whose cotangents are combined by
maximum, also those of uses in a loop; flax made it for the scales of its own FP8 ops
(https://github.com/google/flax, flax/linen/fp8_ops.py). A gradient slot holds codes, which have no sum.
"""
import functools

import jax.numpy as jnp
import numpy as np
from flax.linen.fp8_ops import Fp8MetaTyRules, fm32, fp8_meta_dtype_wrapper
from jax import lax

from ..errors import UnsupportedError

MAXIMUM = fm32


class _Once(Fp8MetaTyRules):
    @staticmethod
    def add(dtype, x, y):
        raise UnsupportedError(
            "a linear whose backend keeps gradients in slots: expected one use in a differentiated "
            "function, found two, or one in a loop; JAX would add the FP8 codes of its gradient slot: use "
            "a backend whose gradients are the host's (fp8.backend = \"te\"), or call value_and_grad for "
            "each micro-batch")

    @staticmethod
    def zero(dtype):
        return lax.convert_element_type(np.zeros((), dtype.float_dtype), dtype)


@functools.lru_cache(maxsize=None)
def once(dtype):
    """The dtype of a gradient slot of this dtype: a second cotangent is an UnsupportedError."""
    return fp8_meta_dtype_wrapper(jnp.dtype(dtype), _rules=_Once)


def array_of(value):
    """The numbers of an array of such a dtype."""
    return lax.convert_element_type(value, value.dtype.float_dtype)
