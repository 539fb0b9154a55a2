"""Transformer Engine's reference of NVFP4, loaded by path.

pytorch/custom_recipes/reference_nvfp4.py of the published package computes casts and products in torch,
on a CPU. Nothing else of the package is imported: modules with the names that the file asks for stand in
for what needs CUDA.

Usage: te_nvfp4.py FOLDER   writes the golden vectors of the family nvfp4, for tests/data/pack.py
"""

import importlib.util
import json
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


# ---- The vectors of tests/data/packs/vectors/nvfp4. ----

WAYS = {"plain": {}, "square": {"square": True}, "hadamard": {"transforms": True}}
# The part of a cast: its file, and what is in it.
PARTS = {"codes": "codes of the rows, two in a byte, the first one in the low half",
         "scales": "E4M3 scales of 16 elements of a row; of 16x16 elements, repeated for each row",
         "codes_t": "codes of the transposed matrix", "scales_t": "scales of the transposed matrix",
         "amax": "fp32 bits of the amax of the matrix and of its transposed or transformed form"}


def cases():
    """(name, matrix). The first two have multiples of 1/64 and of 1/8, so fp32 rounds no sum of their
    transform."""
    random = numpy.random.default_rng(2509)
    normal = random.standard_normal((64, 256)) * numpy.exp2(random.integers(-3, 4, (64, 256)))
    yield "normal_bf16", torch.from_numpy(numpy.round(normal * 64) / 64).to(torch.bfloat16)
    yield "grid_fp32", torch.from_numpy(random.integers(-128, 129, (48, 96)).astype(numpy.float32) / 8)
    yield "heavy_fp32", torch.from_numpy(random.standard_t(1.5, (32, 64)).astype(numpy.float32))
    for name, scale in (("tiny", 1e-40), ("small", 1e-34), ("huge", 3.4e38)):
        values = (random.uniform(-1, 1, (16, 32)) * scale).astype(numpy.float32)
        yield f"{name}_fp32", torch.from_numpy(values)
    yield "zeros_fp32", torch.zeros(16, 32)


def arrays(reference, values, way):
    q = reference.cast(values, **WAYS[way])
    return {"codes": q.data.numpy(), "scales": scale_codes(q.scale), "codes_t": q.data_t.numpy(),
            "scales_t": scale_codes(q.scale_t),
            "amax": numpy.array([amax_of(q, 0), amax_of(q, 1)]).view(numpy.uint32)}


def vectors():
    """{path: content} of the family, and {path: (dtype, shape)} of its arrays."""
    reference = Reference()
    files, listed = {}, {}
    source = "TransformerEngine 2.20.2 NVFP4QuantizerRef with torch 2.11.0"
    for name, values in cases():
        about = {}

        def add(file, array, meaning, oracle):
            dtype = {1: "u8", 2: "u16", 4: "u32"}[array.itemsize]
            files[f"{name}/{file}.bin"] = array.tobytes()
            listed[f"{name}/{file}.bin"] = (dtype, array.shape)
            about[f"{file}.bin"] = {"dtype": dtype, "shape": list(array.shape), "meaning": meaning,
                                    "oracle": oracle}

        bits = values.view(torch.int16 if values.dtype == torch.bfloat16 else torch.int32).numpy()
        add("x", bits, "bit patterns of the input", "numpy generator")
        for way in WAYS:
            # The sums of the transform have no order in the reference.
            if way == "hadamard" and name not in ("normal_bf16", "grid_fp32", "zeros_fp32"):
                continue
            for part, array in arrays(reference, values, way).items():
                add(f"{way}_{part}", array, PARTS[part], source)
        manifest = {"byte_order": "little", "layout": "row-major", "files": about}
        files[f"{name}/manifest.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    return files, listed


def write(folder):
    """Writes the family, and prints its rows of tests/vectors/index.csv."""
    files, listed = vectors()
    for name, content in files.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name in sorted(listed):
        dtype, shape = listed[name]
        print(f"nvfp4/{name},{dtype},{'x'.join(map(str, shape))}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1])
