"""ctypes declarations of the structs and functions of octavo/octavo.h that this package uses.

tests/host_adapters/python/abi_test.py compares every size and offset with the C headers.
"""
import ctypes as c

from .errors import InvalidError


class Str(c.Structure):
    _fields_ = [("data", c.c_char_p), ("size", c.c_uint64)]

    @classmethod
    def of(cls, text):
        """Raises InvalidError for a text that has no UTF-8."""
        try:
            data = text.encode()
        except UnicodeEncodeError as e:
            raise InvalidError(f"{text!a:.200}: expected a text of UTF-8, found {e.object[e.start]!a}; give another "
                               "name") from e
        return cls(data, len(data))

    def __str__(self):
        return c.string_at(self.data, self.size).decode("utf-8", "replace") if self.size else ""


class Value(c.Structure):
    _fields_ = [("type", c.c_uint32), ("reserved", c.c_uint32), ("integer", c.c_int64),
                ("real", c.c_double), ("text", Str)]


class OptionValue(c.Structure):
    _fields_ = [("name", Str), ("value", Value)]


class Device(c.Structure):
    _fields_ = [("type", c.c_uint32), ("index", c.c_int32)]


class Diagnostic(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("code", c.c_uint32),
                ("severity", c.c_uint32), ("domain", Str), ("text", Str)]


DIAGNOSE = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Diagnostic))
GET_EXTENSION = c.CFUNCTYPE(c.c_void_p, c.c_void_p, Str)


class Host(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("abi_major", c.c_uint32),
                ("abi_minor", c.c_uint32), ("ctx", c.c_void_p), ("diagnose", DIAGNOSE),
                ("get_extension", GET_EXTENSION)]


class OpenDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("config_path", Str),
                ("config_text", Str), ("overrides", c.POINTER(OptionValue)),
                ("override_count", c.c_uint64), ("plugin_dirs", c.POINTER(Str)),
                ("plugin_dir_count", c.c_uint64), ("device", Device), ("host", c.c_void_p)]


class Verdict(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("level", c.c_uint32),
                ("decision", c.c_uint32), ("reason", c.c_uint32), ("reserved", c.c_uint32),
                ("text", Str), ("evidence", Str), ("remedy", Str),
                ("remedy_key", Str), ("remedy_value", Str), ("remedy_command", Str)]


class ParameterDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("name", Str), ("rows", c.c_int64),
                ("cols", c.c_int64), ("dtype", c.c_uint32), ("gradient_dtype", c.c_uint32),
                ("flags", c.c_uint32), ("reserved", c.c_uint32)]


class LinearDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("name", Str), ("weight", c.c_uint32),
                ("flags", c.c_uint32), ("options", c.c_void_p), ("option_count", c.c_uint64)]


class Setting(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("name", Str), ("value", Value), ("texts", c.POINTER(Str)),
                ("text_count", c.c_uint64), ("origin", Str)]


class PluginInfo(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("id", Str), ("version", Str), ("library", Str),
                ("sha256", Str)]


class KernelsCaps(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("id", Str), ("flags", c.c_uint64),
                ("alignment", c.c_uint64), ("pack_rows", c.c_uint64)]


class SessionDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("device", Device),
                ("host", c.c_void_p), ("kernels", c.c_void_p), ("caps", c.POINTER(KernelsCaps)),
                ("kernels_ctx", c.c_void_p), ("options", c.c_void_p), ("option_count", c.c_uint64),
                ("flags", c.c_uint64)]


class Extent(c.Structure):
    _fields_ = [("row_multiple", c.c_uint64), ("bytes_per_row", c.c_uint64),
                ("fixed_bytes", c.c_uint64)]

    def bytes(self, rows):
        """The size in bytes for this many rows; `rows` may be a symbolic integer."""
        blocks = (rows + self.row_multiple - 1) // self.row_multiple
        return blocks * self.row_multiple * self.bytes_per_row + self.fixed_bytes


class LinearPlan(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("flags", c.c_uint32),
                ("gradient", c.c_uint32), ("saved", Extent), ("forward_workspace", Extent),
                ("backward_workspace", Extent), ("weight_workspace", c.c_uint64)]


class Slot(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("id", c.c_uint32),
                ("owner_kind", c.c_uint32), ("owner", c.c_uint32), ("role", c.c_uint32),
                ("dtype", c.c_uint32), ("flags", c.c_uint32), ("combine", c.c_uint32),
                ("shard", c.c_uint32), ("scale_slot", c.c_uint32), ("granularity", c.c_uint32),
                ("rows", c.c_int64), ("cols", c.c_int64), ("initial", c.c_double),
                ("access", c.c_uint8 * 32), ("name", Str), ("labels", c.POINTER(Str))]


class SlotUse(c.Structure):
    _fields_ = [("owner_kind", c.c_uint32), ("owner", c.c_uint32), ("slot", c.c_uint32),
                ("first", c.c_uint32), ("count", c.c_uint32), ("reserved", c.c_uint32)]


class OptimizerDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("algorithm", Str), ("hyper", Str * 8)]


class Optimizer(c.Structure):
    """The head of octavo_optimizer: what this package calls itself."""
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32),
                ("describe", c.CFUNCTYPE(c.c_uint32, c.c_void_p, c.POINTER(OptimizerDesc)))]


# The C name of each struct, for the comparison with the headers.
STRUCTS = {"octavo_str": Str, "octavo_value": Value, "octavo_option_value": OptionValue,
           "octavo_device": Device, "octavo_diagnostic": Diagnostic, "octavo_host": Host,
           "octavo_open_desc": OpenDesc, "octavo_verdict": Verdict,
           "octavo_parameter_desc": ParameterDesc, "octavo_linear_desc": LinearDesc,
           "octavo_setting": Setting, "octavo_plugin_info": PluginInfo, "octavo_kernels_caps": KernelsCaps,
           "octavo_session_desc": SessionDesc, "octavo_extent": Extent,
           "octavo_linear_plan": LinearPlan, "octavo_slot": Slot, "octavo_slot_use": SlotUse,
           "octavo_optimizer_desc": OptimizerDesc}

INTERFACES = {"optimizer": "octavo.optimizer/2", "gradients": "octavo.gradients/1", "fused": "octavo.fused/1"}
NONE = 0xFFFFFFFF
KIND_DIAGNOSTIC, KIND_VERDICT, KIND_HOST = 1, 2, 4
KIND_PARAMETER_DESC, KIND_LINEAR_DESC, KIND_OPEN_DESC = 12, 13, 42
KIND_OPTIMIZER_DESC = 0x801D
ABI_MAJOR, ABI_MINOR = 1, 0
SEVERITY_WARNING = 2
VALUE_INT, VALUE_REAL, VALUE_BOOL, VALUE_TEXT, VALUE_LIST = 1, 2, 3, 4, 5
DECLINE = 0
DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA = 0, 1, 2
PARAMETER_LINEAR_WEIGHT, PARAMETER_FROZEN = 1, 2
OWNER_SESSION, OWNER_PARAMETER, OWNER_LINEAR = 1, 2, 3
(VERB_QUANTIZE_WEIGHT, VERB_FORWARD, VERB_BACKWARD, VERB_END_STEP, VERB_OPTIMIZER_STEP,
 VERB_REDUCE) = range(6)
ACCESS_NONE, ACCESS_READ, ACCESS_WRITE, ACCESS_UPDATE, ACCESS_ACCUMULATE = range(5)
COMBINE_MAX, COMBINE_SUM = 1, 2
SHARD_WHOLE = 1
PER_TENSOR, PER_ROW, BLOCK_1X128, BLOCK_128X128, BLOCK_1X32, _, BLOCK_32X32 = range(7)
SLOT_CHECKPOINT, SLOT_NATIVE, SLOT_REDUCE, SLOT_PACKED = 1, 2, 4, 8
GRADIENT_NONE, GRADIENT_TENSOR, GRADIENT_SLOT = 0, 1, 2
LINEAR_NEEDS_X, LINEAR_EVALUATES_IN_HOST = 1, 2
LINEAR_DECLINES_F32, LINEAR_DECLINES_BF16, LINEAR_DECLINES_F16 = 4, 8, 16
FORWARD_EVALUATION = 1
BACKWARD_OVERWRITE, BACKWARD_SKIP_WEIGHT = 1, 2
(ROLE_WEIGHT, ROLE_MASTER_WEIGHT, ROLE_GRADIENT, ROLE_EXP_AVG, ROLE_EXP_AVG_SQ, ROLE_SCALE,
 ROLE_SCALE_INV, ROLE_AMAX, ROLE_AMAX_HISTORY, ROLE_COUNTER, ROLE_WEIGHT_CACHE, ROLE_NONFINITE,
 ROLE_OTHER, ROLE_SATURATED, ROLE_UNDERFLOW, ROLE_SIGNAL, ROLE_NOISE) = range(1, 18)
I32, U8, F16, F32, BF16 = 0 | 32 << 8, 1 | 8 << 8, 2 | 16 << 8, 2 | 32 << 8, 4 | 16 << 8
DECLINES = {F32: LINEAR_DECLINES_F32, BF16: LINEAR_DECLINES_BF16, F16: LINEAR_DECLINES_F16}
E4M3FN, E5M2, E8M0FNU = 10 | 8 << 8, 12 | 8 << 8, 14 | 8 << 8

LINE = c.CFUNCTYPE(None, c.c_void_p, Str)
TAKE_SETTING = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Setting))


def declare(library):
    """Sets the prototypes of liboctavo's functions on a loaded library."""
    pointer, run = c.POINTER, c.c_void_p
    text = [pointer(OpenDesc), Str, LINE, c.c_void_p]
    prototypes = {
        "octavo_version": (Str, []),
        "octavo_open": (c.c_uint32, [pointer(OpenDesc), pointer(run)]),
        "octavo_close": (None, [run]),
        "octavo_explain": (c.c_uint32, text),
        "octavo_list": (c.c_uint32, text),
        "octavo_probe": (c.c_uint32, text),
        "octavo_check_config": (c.c_uint32, text),
        "octavo_settings": (c.c_uint32, [pointer(OpenDesc), TAKE_SETTING, c.c_void_p]),
        "octavo_report": (c.c_uint32, [run, Str, LINE, c.c_void_p]),
        "octavo_add_parameter": (c.c_uint32, [run, pointer(ParameterDesc), pointer(Verdict),
                                             pointer(c.c_uint32)]),
        "octavo_add_linear": (c.c_uint32, [run, pointer(LinearDesc), pointer(Verdict),
                                          pointer(c.c_uint32)]),
        "octavo_seal": (c.c_uint32, [run]),
        "octavo_run_slot_count": (c.c_uint32, [run]),
        "octavo_run_slot": (pointer(Slot), [run, c.c_uint32]),
        "octavo_run_slot_key": (Str, [run, c.c_uint32]),
        "octavo_run_setting": (pointer(Setting), [run, Str]),
        "octavo_run_option_count": (c.c_uint32, [run, c.c_uint32]),
        "octavo_run_option": (pointer(Setting), [run, c.c_uint32, c.c_uint32]),
        "octavo_run_plugin": (pointer(PluginInfo), [run]),
        "octavo_run_codes": (c.c_uint32, [run, c.c_uint32, c.c_void_p, c.c_void_p]),
        "octavo_run_use_count": (c.c_uint32, [run, c.c_uint32, c.c_uint32]),
        "octavo_run_use": (pointer(SlotUse), [run, c.c_uint32, c.c_uint32, c.c_uint32]),
        "octavo_run_plan": (pointer(LinearPlan), [run, c.c_uint32]),
        "octavo_run_session_desc": (pointer(SessionDesc), [run]),
        "octavo_run_interface": (c.c_void_p, [run, Str]),
        "octavo_run_session": (c.c_void_p, [run]),
        "octavo_run_precision": (Str, [run]),
        "octavo_run_backend_id": (Str, [run]),
        "octavo_store_open_sharded": (c.c_uint32, [run, c.c_uint32, c.c_uint32, pointer(c.c_void_p)]),
        "octavo_store_over": (c.c_uint32, [run, pointer(c.c_void_p), pointer(Str), pointer(c.c_void_p)]),
        "octavo_store_save": (c.c_uint32, [c.c_void_p, Str, c.c_uint64]),
        "octavo_store_load": (c.c_uint32, [c.c_void_p, Str, pointer(c.c_uint64)]),
        "octavo_store_owner": (c.c_uint32, [c.c_void_p, c.c_uint32]),
        "octavo_store_close": (None, [c.c_void_p]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
