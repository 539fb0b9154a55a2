"""A training host in Python without an ML library: cffi reads Octavo's headers, nothing is declared twice.

  python3 train.py LIBOCTAVO INCLUDE_DIR [key=value ...]       train.py ... fp8.backend=msamp

Two linears, forward, backward, an optimizer step. A backend that owns weights steps them; otherwise
this program does, by gradient descent. Needs python3-cffi and a C compiler, whose preprocessor it uses.
"""
import math
import re
import subprocess
import sys

import cffi

ROWS, SIZES, STEPS = 64, (32, 64, 16), 100


def load(library, include):
    """(ffi, library, constants): all that the headers declare, as the compiler's preprocessor leaves it."""
    source = '#include "octavo/draft/optimizer.h"\n#include "octavo/octavo.h"\n'
    def preprocess(option):
        return subprocess.run(["cc", "-E", option, "-DOCTAVO_DECLARATIONS_ONLY", f"-I{include}", "-xc", "-"],
                              input=source, capture_output=True, text=True, check=True).stdout
    ffi = cffi.FFI()
    ffi.cdef(preprocess("-P"))
    constants = {name: int(value.rstrip("u"), 0) for name, value in re.findall(
        r"^#define OCTAVO_(\w+) (0x\w+|\d+u?)$", preprocess("-dM"), re.M)}
    return ffi, ffi.dlopen(library), constants


class Host:
    """A run with its store, and calls by name: the C functions with struct fields as keywords."""

    def __init__(self, library, include, settings):
        self.ffi, self.lib, self.constants = load(library, include)
        self.kept = []  # what C holds a pointer to
        self.diagnose = self.ffi.callback("void(void *, const octavo_diagnostic *)", self.print_diagnostic)
        self.extension = self.ffi.callback("const void *(void *, octavo_str)", lambda ctx, name: self.ffi.NULL)
        self.host = self.struct("host", abi_major=self.constants["ABI_MAJOR"],
                                abi_minor=self.constants["ABI_MINOR"], diagnose=self.diagnose,
                                get_extension=self.extension)
        config = "".join(f"{key} = {value}\n" for key, value in settings.items())
        desc = self.struct("open_desc", config_text=self.text(config), host=self.host,
                           device={"type": self.lib.OCTAVO_DEVICE_CPU, "index": 0})
        self.run = self.result("octavo_run *", self.lib.octavo_open, desc)

    def print_diagnostic(self, ctx, d):
        if d.severity >= self.lib.OCTAVO_SEVERITY_WARNING:
            print(self.string(d.domain), self.string(d.text), sep=": ", file=sys.stderr)

    def keep(self, value):
        self.kept.append(value)
        return value

    def text(self, string):
        data = string.encode()
        return {"data": self.keep(self.ffi.new("char[]", data)), "size": len(data)}

    def string(self, s):
        return self.ffi.unpack(s.data, s.size).decode() if s.size else ""

    def struct(self, struct_name, /, **fields):
        """A new octavo_<struct_name> with its size and kind."""
        name = f"KIND_{struct_name.upper()}"  # of octavo/draft: a constant of the preprocessor
        kind = self.constants[name] if name in self.constants else getattr(self.lib, f"OCTAVO_{name}")
        size = self.ffi.sizeof(f"octavo_{struct_name}")
        return self.keep(self.ffi.new(f"octavo_{struct_name} *", {"size": size, "kind": kind, **fields}))

    def check(self, status, what):
        if status != self.constants["OK"]:
            sys.exit(f"train.py: {what}: status {status}")

    def result(self, kind, function, *arguments):
        """The value that a function writes through its last argument."""
        out = self.ffi.new(f"{kind} *")
        self.check(function(*arguments, out), function)
        return out[0]

    def floats(self, count, values=None):
        return self.memory(4 * count, "float *", values)

    def memory(self, size, kind="void *", values=None):
        """Zeros or these floats, at a multiple of 64 bytes, as octavo/tensor.h asks."""
        block = self.keep(self.ffi.new("char[]", size + 64))
        address = int(self.ffi.cast("uintptr_t", block))
        data = self.ffi.cast(kind, block + -address % 64)
        for i, value in enumerate(values or ()):
            data[i] = value
        return data

    def tensor(self, data, rows, cols):
        return self.keep(self.ffi.new("octavo_tensor *", {"data": data, "rows": rows, "cols": cols, "stride": cols,
                                                          "dtype": self.constants["F32"]}))

    def slots(self, verb, kind, owner):
        return self.lib.octavo_store_slots(self.store, getattr(self.lib, f"OCTAVO_VERB_{verb}"),
                                          getattr(self.lib, f"OCTAVO_OWNER_{kind}"), owner)

    def slot(self, role, owner):
        """The slot of this role that belongs to a parameter; None without one."""
        for i in range(self.lib.octavo_run_slot_count(self.run)):
            s = self.lib.octavo_run_slot(self.run, i)
            if (s.owner_kind, s.owner, s.role) == (self.lib.OCTAVO_OWNER_PARAMETER, owner, role):
                return s
        return None


class Linear:
    """y = x w^T by the backend."""

    def __init__(self, host, name, n, k, random):
        self.host, self.n, self.k = host, n, k
        self.weight = host.floats(n * k, [random() * math.sqrt(3 / k) for _ in range(n * k)])
        self.x, self.dx = host.floats(ROWS * k), host.floats(ROWS * k)
        self.y, self.dy, self.dw = host.floats(ROWS * n), host.floats(ROWS * n), host.floats(n * k)
        f32 = host.constants["F32"]
        desc = host.struct("parameter_desc", name=host.text(name), rows=n, cols=k, dtype=f32, gradient_dtype=f32,
                           flags=host.lib.OCTAVO_PARAMETER_LINEAR_WEIGHT)
        self.parameter = host.result("uint32_t", host.lib.octavo_add_parameter, host.run, desc, host.ffi.NULL)
        desc = host.struct("linear_desc", name=host.text(name), weight=self.parameter)
        self.linear = host.result("uint32_t", host.lib.octavo_add_linear, host.run, desc, host.ffi.NULL)
        if host.constants["NONE"] in (self.parameter, self.linear):
            sys.exit(f"train.py: {name} is not converted, see the report; this sample has no matrix product itself")

    def bind(self):
        host, lib = self.host, self.host.lib
        self.owned = []
        for role, tensor in ((lib.OCTAVO_ROLE_WEIGHT, self.weight), (lib.OCTAVO_ROLE_GRADIENT, self.dw)):
            slot = host.slot(role, self.parameter)
            if slot is not None and slot.flags & lib.OCTAVO_SLOT_NATIVE:
                host.check(lib.octavo_store_native(host.store, self.parameter, role, tensor), "octavo_store_native")
            elif slot is not None:
                self.owned.append(role)
        plan = lib.octavo_run_plan(host.run, self.linear)
        def space(extent):
            rows = -(-ROWS // extent.row_multiple) * extent.row_multiple
            return host.memory(rows * extent.bytes_per_row + extent.fixed_bytes)
        forward, saved = host.slots("FORWARD", "LINEAR", self.linear), space(plan.saved)
        x, y = host.tensor(self.x, ROWS, self.k), host.tensor(self.y, ROWS, self.n)
        self.quantize = host.struct(
            "weight_call", parameter=self.parameter, workspace=host.memory(plan.weight_workspace),
            slots=host.slots("QUANTIZE_WEIGHT", "PARAMETER", self.parameter))
        self.forward = host.struct("forward_call", linear=self.linear, x=x, y=y, slots=forward, saved=saved,
                                   workspace=space(plan.forward_workspace))
        is_tensor = plan.gradient == lib.OCTAVO_GRADIENT_TENSOR
        self.backward = host.struct(
            "backward_call", linear=self.linear, x=x, dy=host.tensor(self.dy, ROWS, self.n), saved=saved,
            flags=lib.OCTAVO_BACKWARD_OVERWRITE if is_tensor else 0,
            dx=host.tensor(self.dx, ROWS, self.k), workspace=space(plan.backward_workspace),
            dw=host.tensor(self.dw, self.n, self.k) if is_tensor else host.ffi.NULL,
            slots=host.slots("BACKWARD", "LINEAR", self.linear))


class Adam:
    """The backend's optimizer for the weights that it owns."""

    def __init__(self, host, layers):
        self.host = host
        table = host.lib.octavo_run_interface(host.run, host.text("octavo.optimizer/2"))
        self.optimizer = host.ffi.cast("const octavo_optimizer *", table)
        self.hyper = host.floats(host.lib.OCTAVO_HYPER_COUNT, [3e-3, 0.9, 0.99, 1e-8, 0, 1])
        self.items = host.keep(host.ffi.new("octavo_parameter_item[]", len(layers)))
        for item, layer in zip(self.items, layers):
            item.parameter, item.hyper = layer.parameter, self.hyper
            item.slots = host.slots("OPTIMIZER_STEP", "PARAMETER", layer.parameter)
        ids = host.ffi.new("uint32_t[]", [layer.parameter for layer in layers])
        size = host.result("uint64_t", self.optimizer.workspace_bytes, host.session, ids, len(layers))
        workspace = host.memory(size)
        self.call = host.struct("optimizer_call", items=self.items, count=len(layers), workspace=workspace)
        for item, layer in zip(self.items, layers):
            write = host.struct("parameter_call", parameter=layer.parameter, role=host.lib.OCTAVO_ROLE_WEIGHT,
                                plain=host.tensor(layer.weight, layer.n, layer.k), slots=item.slots, workspace=workspace)
            if host.lib.OCTAVO_ROLE_WEIGHT in layer.owned:
                host.check(self.optimizer.write_parameter(host.session, write), "write_parameter")

    def step(self):
        host = self.host
        host.check(self.optimizer.optimizer_step(host.session, self.call), "optimizer_step")
        host.check(host.lib.octavo_store_clear(host.store, host.lib.OCTAVO_ROLE_GRADIENT), "octavo_store_clear")


def uniform(seed):
    """Numbers in [-1, 1), equal on every machine."""
    def random():
        nonlocal seed
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        return (seed >> 40) / 2**23 - 1
    return random


def train(library, include, settings):
    host = Host(library, include, settings)
    lib, random = host.lib, uniform(1)
    fc1, fc2 = layers = [Linear(host, f"fc{i + 1}", n, k, random) for i, (k, n) in enumerate(zip(SIZES, SIZES[1:]))]
    host.check(lib.octavo_seal(host.run), "octavo_seal")
    host.session, host.store = lib.octavo_run_session(host.run), host.result("octavo_store *", lib.octavo_store_open, host.run)
    for layer in layers:
        layer.bind()
    backend, owned = lib.octavo_run_backend(host.run), [layer for layer in layers if layer.owned]
    adam = Adam(host, owned) if owned else None
    end = host.struct("step_call", slots=host.slots("END_STEP", "SESSION", 0))
    teacher = [[random() * math.sqrt(3 / SIZES[0]) for _ in range(SIZES[0])] for _ in range(SIZES[2])]
    for step in range(1, STEPS + 1):
        rows = [[random() for _ in range(SIZES[0])] for _ in range(ROWS)]
        wanted = [sum(a * b for a, b in zip(row, w)) for row in rows for w in teacher]
        fc1.x[0:ROWS * SIZES[0]] = [value for row in rows for value in row]
        for layer in layers:
            host.check(backend.quantize_weight(host.session, layer.quantize), "quantize_weight")
        host.check(backend.linear_forward(host.session, fc1.forward), "linear_forward")
        fc2.x[0:ROWS * fc2.k] = hidden = [max(v, 0) for v in host.ffi.unpack(fc1.y, ROWS * fc1.n)]
        host.check(backend.linear_forward(host.session, fc2.forward), "linear_forward")
        errors = [y - w for y, w in zip(host.ffi.unpack(fc2.y, ROWS * fc2.n), wanted)]
        fc2.dy[0:ROWS * fc2.n] = [2 * e / ROWS for e in errors]
        host.check(backend.linear_backward(host.session, fc2.backward), "linear_backward")
        fc1.dy[0:ROWS * fc1.n] = [d if h > 0 else 0 for d, h in zip(host.ffi.unpack(fc2.dx, ROWS * fc2.k), hidden)]
        host.check(backend.linear_backward(host.session, fc1.backward), "linear_backward")
        if adam:
            adam.step()
        for layer in (each for each in layers if each not in owned):
            for i in range(layer.n * layer.k):
                layer.weight[i] -= 0.3 * layer.dw[i]
        host.check(backend.end_step(host.session, end), "end_step")
        if step in (1, STEPS) or step % 25 == 0:
            print(f"step {step:3}  loss {sum(e * e for e in errors) / len(errors):.6f}")
    lib.octavo_store_close(host.store)
    lib.octavo_close(host.run)


if __name__ == "__main__":
    if len(sys.argv) < 3 or not all("=" in setting for setting in sys.argv[3:]):
        sys.exit(__doc__)
    chosen = {"mixed_precision": '"fp8"', "layers.min_gain": '"off"'}
    for setting in sys.argv[3:]:
        key, value = setting.split("=", 1)
        chosen[key] = value if re.fullmatch(r"true|false|-?[\d.]+", value) else f'"{value}"'
    train(sys.argv[1], sys.argv[2], chosen)
