# Levels avx512 and avx512_bf16 on any processor with AVX2: SIMDe computes each instruction of AVX-512
# (emulated_avx512.h). The programs are those of the plain tests, linked with these levels, which come before
# the library's own; levels.cpp finds every instruction set. What a compiler makes of real instructions is
# only seen on a processor that has them.
# This processor's, if it has them: then the plain tests run both levels, and tests/soak.py runs these programs.
file(STRINGS /proc/cpuinfo native REGEX "avx512_bf16" LIMIT_COUNT 1)
find_path(OCTAVO_SIMDE_INCLUDE simde/x86/avx512.h)
if(NOT OCTAVO_SIMDE_INCLUDE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  octavo_add_skipped(KernelsEmulated.levels rest
    "AVX-512 is emulated with GCC and SIMDe; apt-get install libsimde-dev")
  return()
endif()

set(objects "")
# octavo_add_emulated(<name> <source in kernels/cpu> <compiler flags...>)
function(octavo_add_emulated name source)
  add_library(kernels_emulated_${name} OBJECT "${PROJECT_SOURCE_DIR}/kernels/cpu/${source}")
  target_compile_options(kernels_emulated_${name} PRIVATE -ffp-contract=off -fno-trapping-math -O1 ${ARGN})
  target_link_libraries(kernels_emulated_${name} PRIVATE octavo::abi octavo_format)
  set(objects ${objects} $<TARGET_OBJECTS:kernels_emulated_${name}> PARENT_SCOPE)
endfunction()

# -Wno-psabi: vectors of 64 bytes stay inside of these files.
set(level_flags -mavx2 -mfma -mf16c -Wno-psabi "SHELL:-include ${CMAKE_CURRENT_SOURCE_DIR}/emulated_avx512.h")
octavo_add_emulated(avx512 level.cpp -DOCTAVO_LEVEL=avx512 ${level_flags})
octavo_add_emulated(avx512_bf16 level.cpp -DOCTAVO_LEVEL=avx512_bf16 -DOCTAVO_EMULATED_BF16 ${level_flags})
octavo_add_emulated(levels levels.cpp -DOCTAVO_X86_LEVELS "-D__builtin_cpu_supports(name)=true")

foreach(name IN ITEMS
    ability adam adam_levels adam_one_pass adam_states dequantize dequantize_blocks expanded_levels
    gemm gemm_blocks gemm_layout gemm_rows golden_block golden_cast golden_linear golden_optim golden_scale
    golden_trace guard_adam guard_blocks guard_dequantize guard_gemm guard_pack guard_prologue guard_quantize
    guard_rows guard_sums levels levels_sums nan_codes pack prologue prologue_quantize quantize quantize_blocks
    quantize_levels quantize_rows quantize_stats round_codes rounding state_blocks sums sums_levels)
  set(program kernels_${name}_emulated_test)
  add_executable(${program} $<TARGET_OBJECTS:kernels_${name}_test> ${objects})
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_link_libraries(${program} PRIVATE ${libraries} octavo_vector_files GTest::gmock GTest::gtest_main)
  add_test(NAME KernelsEmulated.${name} COMMAND ${program} --gtest_brief=1)
  # A test that asks for levels fails where one of these does not run, so none is left out in silence.
  set_tests_properties(KernelsEmulated.${name} PROPERTIES LABELS unit TIMEOUT 600
    ENVIRONMENT "OMP_NUM_THREADS=1;OCTAVO_TEST_LEVELS=baseline avx512 avx512_bf16")
  if(NOT native)
    octavo_run_in(rest KernelsEmulated.${name} TARGETS ${program})
  endif()
endforeach()
