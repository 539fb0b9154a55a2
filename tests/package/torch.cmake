# octavo::torch as a third party meets it: installed, moved, found by CMake with the user's own torch,
# and refused with the reason where that torch is missing or another one. It takes over half a minute,
# since it compiles programs with torch's headers.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")
use_ccache()

run("install" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/staging")
file(RENAME "${WORK}/staging" "${WORK}/prefix")
file(COPY "${SOURCE}/tests/package/torch_consumer" DESTINATION "${WORK}")

# Where this machine has torch and CUDA is the program's business.
find_program(readelf readelf REQUIRED)
file(GLOB library "${WORK}/prefix/lib*/liboctavo_torch.so")
run("readelf" "${readelf}" -d "${library}")
if(NOT run_output MATCHES "R(UN)?PATH[^[]*\\[\\$ORIGIN[^]:]*\\]")
  message(FATAL_ERROR "liboctavo_torch.so: expected $ORIGIN alone in RPATH, found\n${run_output}")
endif()

set(configure "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
    "-DCMAKE_BUILD_TYPE=Debug" "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -S "${WORK}/torch_consumer")

# refused(<what> <pattern> <options...>): the configuration must fail and say what the pattern says.
function(refused what pattern)
  execute_process(COMMAND ${configure} -B "${WORK}/refused" ${ARGN} RESULT_VARIABLE status
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  file(REMOVE_RECURSE "${WORK}/refused")
  string(REGEX REPLACE "[ \n]+" " " output "${output}")  # CMake wraps lines
  if(status EQUAL 0 OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "${what}: expected a failure that says '${pattern}', found exit code "
                        "${status}\n${output}")
  endif()
  message(STATUS "${what}: refused, as expected")
endfunction()

refused("no torch" "expected the torch folder of a wheel in OCTAVO_TORCH_ROOT")
set(other "${WORK}/other/torch")
file(WRITE "${other}/include/torch/headeronly/version.h"
     "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 99\n#define TORCH_VERSION_PATCH 1\n")
file(WRITE "${other}/lib/libtorch_cpu.so" "")
file(WRITE "${other}/lib/libc10.so" "")
refused("another torch" "for which this octavo::torch was built, found 2.99.1"
        "-DOCTAVO_TORCH_ROOT=${other}")

run("configure the consumer" ${configure} -B "${WORK}/build" "-DOCTAVO_TORCH_ROOT=${TORCH_ROOT}"
    "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror")
run("build the consumer" "${CMAKE_COMMAND}" --build "${WORK}/build")
foreach(backend IN ITEMS te msamp)
  run("the consumer with ${backend}" "${WORK}/build/torch_consumer" ${backend})
  message(STATUS "${run_output}")
endforeach()
