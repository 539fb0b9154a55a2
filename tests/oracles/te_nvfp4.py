"""Transformer Engine's reference of NVFP4, loaded by path.

pytorch/custom_recipes/reference_nvfp4.py of the published package computes casts and products in torch,
on a CPU. Nothing else of the package is imported: modules with the names that the file asks for stand in
for what needs CUDA.
"""

import importlib.util
import pathlib
import sys
import types

import numpy
import torch

PACKAGE = "transformer_engine.pytorch"


def load():
    folder = pathlib.Path(sys.prefix, "apart/transformer_engine/pytorch/custom_recipes")

    class Storage:
        """Of a quantized tensor; the reference adds the fields."""

    class Quantizer:
        def __init__(self, *, rowwise, columnwise):
            self.rowwise_usage, self.columnwise_usage = rowwise, columnwise

    def stand_in(name, **members):
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
        return module

    stand_in("transformer_engine")
    stand_in(PACKAGE)
    stand_in(f"{PACKAGE}.tensor")
    stand_in(f"{PACKAGE}.tensor.utils", is_custom=lambda _: True)
    stand_in(f"{PACKAGE}.quantized_tensor", QuantizedTensorStorage=Storage, Quantizer=Quantizer)
    recipes = stand_in(f"{PACKAGE}.custom_recipes")
    for name in ("gemm", "reference_utils", "reference_nvfp4"):
        spec = importlib.util.spec_from_file_location(f"{recipes.__name__}.{name}", folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        setattr(recipes, name, module)
        spec.loader.exec_module(module)
    return recipes


class Reference:
    """Casts and products of matrices as torch tensors."""

    def __init__(self):
        self.recipes = load()

    def cast(self, values, square=False, transforms=False):
        """Both forms of a matrix: data and scale of its rows, data_t and scale_t of its columns."""
        quantizer = self.recipes.reference_nvfp4.NVFP4QuantizerRef(
            dtype=self.recipes.reference_utils.Fp4Formats.E2M1, with_rht=transforms,
            quant_tile_shape=(16, 16) if square else (1, 16))
        return quantizer.quantize(values)

    def product(self, a, b, kind, dtype=torch.float32):
        """y = a b^T of what the product `kind` reads: rows of both, or columns of one or both."""
        types_ = self.recipes.gemm.GEMMType
        left, right = {"fprop": (0, 0), "dgrad": (0, 1), "wgrad": (1, 1)}[kind]
        codes = [(q.data, q.scale) if side == 0 else (q.data_t, q.scale_t)
                 for q, side in ((a, left), (b, right))]
        return a._quantizer.qgemm(
            codes[0][0], codes[1][0], None, dtype, codes[0][1], codes[1][1],
            gemm_type=types_.WGRAD if kind == "wgrad" else types_.FPROP, qresult_x=a, qresult_w=b)


def scale_codes(scale):
    """E4M3 codes as bytes."""
    return scale.contiguous().view(torch.uint8).numpy()


def amax_of(q, column):
    return numpy.float32(float(q.global_amax_col if column else q.global_amax_row))
