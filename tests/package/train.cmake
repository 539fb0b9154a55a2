# The backends that cpp.cmake built train train_gpt to within 1 % of float32, and current to the
# losses of reference in every bit, since both have the same arithmetic. One seed, as in
# TrainGptThird, where the bound comes from. 150 steps take half a minute, since four models train.
cmake_minimum_required(VERSION 3.25)
set(plugins "${WORK}/../cpp-work/plugins-0")
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")
set(ENV{OCTAVO_PLUGIN_PATH} "${plugins}")

run("train_gpt" "${TRAIN_GPT}" --out "${WORK}/out" --run fp32 current reference rowwise --steps ${STEPS})
file(STRINGS "${WORK}/out/metrics.jsonl" metrics)
foreach(line IN LISTS metrics)
  if(line MATCHES "validation_loss")
    string(JSON name GET "${line}" run)
    string(JSON loss_${name} GET "${line}" validation_loss)
    # In millionths, since CMake computes with whole numbers.
    string(REGEX REPLACE "^([0-9]+)\\.([0-9][0-9][0-9][0-9][0-9][0-9]).*" "\\1\\2" micro_${name}
           "${loss_${name}}")
    message(STATUS "validation loss of ${name}: ${loss_${name}}")
  endif()
endforeach()
if(NOT loss_current STREQUAL loss_reference)
  message(FATAL_ERROR "expected the loss of reference, ${loss_reference}, found ${loss_current}")
endif()
foreach(name IN ITEMS current rowwise)
  if(loss_${name} STREQUAL loss_fp32)
    message(FATAL_ERROR "${name} did not run in FP8: its loss is that of fp32")
  endif()
  math(EXPR apart "(${micro_${name}} - ${micro_fp32}) * 100")
  if(apart GREATER micro_fp32 OR apart LESS -${micro_fp32})
    message(FATAL_ERROR "${name}: expected a loss within 1 % of fp32's ${loss_fp32}, found "
                        "${loss_${name}}")
  endif()
endforeach()
