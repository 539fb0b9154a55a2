# The backend that cpp.cmake built trains train_gpt: to the losses of reference in every bit, since
# both have the same arithmetic, and to within 1 % of float32. One seed, as in the tests of the
# samples. 450 steps take a minute, since three models train to the end.
cmake_minimum_required(VERSION 3.25)
set(plugins "${WORK}/../cpp-work/plugins-0")
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")
set(ENV{OCTAVO_PLUGIN_PATH} "${plugins}")

run("train_gpt" "${TRAIN_GPT}" --out "${WORK}/out" --run fp32 current reference --steps ${STEPS})
file(STRINGS "${WORK}/out/metrics.jsonl" metrics)
foreach(line IN LISTS metrics)
  if(line MATCHES "validation_loss")
    string(JSON name GET "${line}" run)
    string(JSON loss_${name} GET "${line}" validation_loss)
  endif()
endforeach()
message(STATUS "validation loss: fp32 ${loss_fp32}, current ${loss_current}")
if(NOT loss_current STREQUAL loss_reference)
  message(FATAL_ERROR "expected the loss of reference, ${loss_reference}, found ${loss_current}")
endif()
if(loss_current STREQUAL loss_fp32)
  message(FATAL_ERROR "current did not run in FP8: its loss is that of fp32")
endif()
# Within 1 %, in millionths, since CMake computes with whole numbers.
foreach(name IN ITEMS fp32 current)
  string(REGEX REPLACE "^([0-9]+)\\.([0-9][0-9][0-9][0-9][0-9][0-9]).*" "\\1\\2" micro_${name}
         "${loss_${name}}")
endforeach()
math(EXPR apart "(${micro_current} - ${micro_fp32}) * 100")
if(apart GREATER micro_fp32 OR apart LESS -${micro_fp32})
  message(FATAL_ERROR "expected a loss within 1 % of fp32's ${loss_fp32}, found ${loss_current}")
endif()
