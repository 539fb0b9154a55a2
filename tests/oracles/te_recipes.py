"""The configurations that te_recipes_test.py gives to Transformer Engine and to Octavo.

A row is (recipe, fields of TE's class, difference). difference is None where both must give the same
answer, else the reason why one accepts what the other refuses. "@E4M3" stands for Format.E4M3;
"split" and "fast" for MMParams with and without the split accumulator.
"""

CLASSES = {
    "delayed": "DelayedScaling",
    "current": "Float8CurrentScaling",
    "block": "Float8BlockScaling",
    "mx": "MXFP8BlockScaling",
    "nvfp4": "NVFP4BlockScaling",
    "custom": "CustomRecipe",
}

# TE's field -> the option of [fp8.te], where the names differ.
OPTIONS = {
    "use_power_2_scales": "current_scaling_power_2_scales",
    "use_f32_scales": "block_scaling_fp32_scales",
    "enable_2d_quantization": "mxfp8_2d_quantization",
}


def function(*_):
    """Stands for a user's own amax or scale algorithm."""


NEGATIVE_MARGIN = "TE takes any integer; a negative margin lets the largest values overflow"
LARGE_MARGIN = "TE takes any integer; 2^31 and more leaves nothing of a tensor above subnormals"
EMPTY_HISTORY = "TE takes any integer and fails later; a history holds at least one step"
LONG_HISTORY = "TE takes any integer; 65536 steps are the limit here"
FUNCTION = "a configuration file cannot hold a function"
ATTENTION = "this backend has linear layers only, so FP8 attention is refused instead of ignored"
IGNORED = "TE's class ignores keywords that it does not know; every unknown key is an error here"
NO_EFFECT = "TE ignores it with this recipe; here an option without effect is refused"
NO_FP4 = "TE's class lets the FP4 format through; here the recipe nvfp4 alone has it"
PRODUCTS = "TE chooses the accumulator of cuBLAS; products accumulate in fp32 always here"
TILES = "TE chooses between 1D and 2D blocks; here they are those of its default"

ONE_FORMAT = "nvfp4 has one format of codes, so there is no option for it"
NOT_HERE = "a variant of NVFP4 that is not here"

CONFIGURATIONS = [
    ("delayed", {}, None),
    ("delayed", {"fp8_format": "@HYBRID"}, None),
    ("delayed", {"fp8_format": "@E4M3"}, None),
    ("delayed", {"fp8_format": "@E5M2"}, None),
    ("delayed", {"fp8_format": "@E2M1"}, NO_FP4),
    ("delayed", {"margin": 0}, None),
    ("delayed", {"margin": 4}, None),
    ("delayed", {"margin": 30}, None),
    ("delayed", {"margin": 31}, LARGE_MARGIN),
    ("delayed", {"margin": -3}, NEGATIVE_MARGIN),
    ("delayed", {"margin": 1.5}, None),
    ("delayed", {"margin": "three"}, None),
    ("delayed", {"amax_history_len": 1}, None),
    ("delayed", {"amax_history_len": 16}, None),
    ("delayed", {"amax_history_len": 1024}, None),
    ("delayed", {"amax_history_len": 65536}, None),
    ("delayed", {"amax_history_len": 65537}, LONG_HISTORY),
    ("delayed", {"amax_history_len": 0}, EMPTY_HISTORY),
    ("delayed", {"amax_history_len": -1}, EMPTY_HISTORY),
    ("delayed", {"amax_history_len": 2.5}, None),
    ("delayed", {"amax_compute_algo": "max"}, None),
    ("delayed", {"amax_compute_algo": "most_recent"}, None),
    ("delayed", {"amax_compute_algo": "min"}, None),
    ("delayed", {"amax_compute_algo": function}, FUNCTION),
    ("delayed", {"scaling_factor_compute_algo": None}, None),
    ("delayed", {"scaling_factor_compute_algo": function}, FUNCTION),
    ("delayed", {"scaling_factor_compute_algo": "max"}, None),
    ("delayed", {"reduce_amax": True}, None),
    ("delayed", {"reduce_amax": False}, None),
    ("delayed", {"reduce_amax": "maybe"}, None),
    ("delayed", {"fp8_dpa": False, "fp8_mha": False}, None),
    ("delayed", {"fp8_dpa": True}, ATTENTION),
    ("delayed", {"fp8_mha": True}, ATTENTION),
    ("delayed", {"fp8_dpa": True, "fp8_mha": True}, ATTENTION),
    ("delayed", {"backward_override": None}, None),
    ("delayed", {"backward_override": "high_precision"}, None),
    ("delayed", {"backward_override": "dequantized"}, None),
    ("delayed", {"backward_override": "bf16"}, None),
    ("delayed", {"interval": 1}, None),
    ("delayed", {"interval": 16}, IGNORED + "; the interval is gone from TE"),
    ("delayed", {"amax_histroy_len": 16}, IGNORED),
    ("delayed", {"use_power_2_scales": True}, NO_EFFECT),
    ("delayed", {"margin": 2, "amax_history_len": 32, "fp8_format": "@E4M3"}, None),
    ("delayed", {"margin": 2, "amax_compute_algo": "most_recent", "reduce_amax": False}, None),
    ("current", {}, None),
    ("current", {"fp8_format": "@HYBRID"}, None),
    ("current", {"fp8_format": "@E4M3"}, None),
    ("current", {"fp8_format": "@E5M2"}, None),
    ("current", {"fp8_format": "@E2M1"}, NO_FP4),
    ("current", {"use_power_2_scales": True}, None),
    ("current", {"use_power_2_scales": False, "fp8_format": "@E4M3"}, None),
    ("current", {"use_power_2_scales": "often"}, None),
    ("current", {"backward_override": None}, None),
    ("current", {"backward_override": "high_precision"}, None),
    ("current", {"backward_override": "dequantized"}, None),
    ("current", {"backward_override": "bf16"}, None),
    ("current", {"fp8_dpa": True}, ATTENTION),
    ("current", {"fp8_gemm_fprop": "split"}, PRODUCTS),
    ("current", {"amax_history_len": 16}, None),
    ("current", {"margin": 2}, NO_EFFECT),
    ("current", {"use_f32_scales": True}, NO_EFFECT),
    ("block", {}, None),
    ("block", {"fp8_format": "@E4M3"}, None),
    ("block", {"fp8_format": "@HYBRID"}, None),
    ("block", {"fp8_format": "@E5M2"}, None),
    ("block", {"use_f32_scales": True}, None),
    ("block", {"use_f32_scales": False, "fp8_format": "@HYBRID"}, None),
    ("block", {"backward_override": "high_precision"}, None),
    ("block", {"backward_override": "dequantized"}, None),
    ("block", {"backward_override": "bf16"}, None),
    ("block", {"fp8_dpa": True}, None),
    ("block", {"fp8_mha": True}, None),
    ("block", {"fp8_gemm_wgrad": "fast"}, None),
    ("block", {"x_block_scaling_dim": 3}, None),
    ("block", {"x_block_scaling_dim": 2, "w_block_scaling_dim": 2}, None),
    ("block", {"w_block_scaling_dim": 2, "grad_block_scaling_dim": 2}, None),
    ("block", {"w_block_scaling_dim": 1}, TILES),
    ("block", {"margin": 2}, NO_EFFECT),
    ("block", {"use_power_2_scales": True}, NO_EFFECT),
    ("mx", {}, None),
    ("mx", {"fp8_format": "@E4M3"}, None),
    ("mx", {"fp8_format": "@HYBRID"}, None),
    ("mx", {"fp8_format": "@E5M2"}, None),
    ("mx", {"enable_2d_quantization": True}, None),
    ("mx", {"enable_2d_quantization": False, "fp8_format": "@HYBRID"}, None),
    ("mx", {"backward_override": "high_precision"}, None),
    ("mx", {"backward_override": "dequantized"}, None),
    ("mx", {"backward_override": "bf16"}, None),
    ("mx", {"margin": 0}, None),
    ("mx", {"margin": 2}, "TE's class has the field, but its scales ignore it; refused here"),
    ("mx", {"fp8_dpa": True}, ATTENTION),
    ("nvfp4", {}, None),
    ("nvfp4", {"disable_rht": True}, None),
    ("nvfp4", {"disable_stochastic_rounding": True}, None),
    ("nvfp4", {"disable_2d_quantization": True}, None),
    ("nvfp4", {"disable_rht": True, "disable_stochastic_rounding": True, "disable_2d_quantization": True}, None),
    ("nvfp4", {"disable_rht": "often"}, None),
    ("nvfp4", {"fp8_format": "@E4M3"}, None),
    ("nvfp4", {"fp8_format": "@HYBRID"}, None),
    ("nvfp4", {"fp8_format": "@E5M2"}, None),
    ("nvfp4", {"fp4_format": "@E2M1"}, ONE_FORMAT),
    ("nvfp4", {"fp4_format": "@E4M3"}, None),
    ("nvfp4", {"backward_override": "high_precision"}, None),
    ("nvfp4", {"backward_override": "dequantized"}, None),
    ("nvfp4", {"backward_override": "bf16"}, None),
    ("nvfp4", {"row_scaled_activation": True}, NOT_HERE),
    ("nvfp4", {"nvfp4_4over6": "weights"}, NOT_HERE),
    ("nvfp4", {"fp8_dpa": True}, ATTENTION),
    ("nvfp4", {"amax_history_len": 16}, None),
    ("nvfp4", {"margin": 2}, NO_EFFECT),
    ("mx", {"disable_rht": True}, NO_EFFECT),
    ("custom", {"qfactory": function}, FUNCTION),
]
