# The C++ headers against an installed copy: backends of at most 90 and 70 lines that pass the whole
# conformance suite, one of 250 with a number format of its own, and a host, by both compilers where both are installed: gcc in C++17, clang in C++20
# (Abi.headers_compile_alone has the headers in both). It takes over half a minute, since it builds and
# runs all of that twice.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")
use_ccache()

count_lines(current_plugin 90 "${SOURCE}/samples/current_plugin/current.cpp")
count_lines(rowwise_plugin 70 "${SOURCE}/samples/rowwise_plugin/rowwise.cpp")
count_lines(int8_kernels 250 "${SOURCE}/samples/int8_kernels/int8.cpp" "${SOURCE}/samples/int8_kernels/layer.c"
            "${SOURCE}/samples/int8_kernels/CMakeLists.txt")

run("install" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/staging")
file(RENAME "${WORK}/staging" "${WORK}/prefix")
file(COPY "${SOURCE}/samples/current_plugin" "${SOURCE}/samples/rowwise_plugin"
          "${SOURCE}/samples/int8_kernels" "${SOURCE}/tests/package/cpp_consumer" DESTINATION "${WORK}")

set(strict "-Wall -Wextra -Wpedantic -Werror")
set(compilers "${CXX_COMPILER}")
find_program(other_compiler NAMES clang++ clang++-14)
if(other_compiler AND NOT CXX_FLAGS MATCHES "-fsanitize")
  list(APPEND compilers "${other_compiler}")
else()
  message(STATUS "clang++: not installed, or a build with sanitizers; only ${CXX_COMPILER} is used")
endif()

set(index 0)
foreach(compiler IN LISTS compilers)
  set(standards 17)
  if(index EQUAL 1)
    set(standards 20)
  elseif(NOT other_compiler)
    set(standards 17 20)
  endif()
  foreach(standard IN LISTS standards)
    foreach(project IN ITEMS current_plugin rowwise_plugin int8_kernels cpp_consumer)
      set(build "${WORK}/build-${index}-${standard}/${project}")
      run("configure ${project} with ${compiler}, C++${standard}" "${CMAKE_COMMAND}"
          -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${compiler}" -DCMAKE_CXX_EXTENSIONS=OFF
          "-DCMAKE_CXX_STANDARD=${standard}" "-DCMAKE_CXX_FLAGS=${CXX_FLAGS} ${strict}"
          "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix"
          -S "${WORK}/${project}" -B "${build}")
      run("build ${project}" "${CMAKE_COMMAND}" --build "${build}")
    endforeach()
  endforeach()

  # What each compiler built first is tried.
  list(GET standards 0 standard)
  set(built "${WORK}/build-${index}-${standard}")
  set(plugins "${WORK}/plugins-${index}")
  foreach(name IN ITEMS current_plugin/lib/octavo/plugins/current
                        rowwise_plugin/lib/octavo/plugins/rowwise
                        int8_kernels/lib/octavo/plugins/int8
                        cpp_consumer/lib/octavo/plugins/tiny)
    file(COPY "${built}/${name}.so" "${built}/${name}.octavo-plugin.toml"
         DESTINATION "${plugins}"
         DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  endforeach()
  set(ENV{OCTAVO_PLUGIN_PATH} "${plugins}")
  run("octavo plugin list" "${WORK}/prefix/${BINDIR}/octavo" plugin list)
  if(NOT run_output MATCHES "current +1\\.0\\.0" OR NOT run_output MATCHES "tiny +2\\.5\\.0")
    message(FATAL_ERROR "octavo plugin list: expected current 1.0.0 and tiny 2.5.0, found\n${run_output}")
  endif()
  run("octavo plugin check-elf" "${WORK}/prefix/${BINDIR}/octavo" plugin check-elf --strict "${plugins}")
  # A backend that refuses every session does not pass: the test of CMake's function says so.
  execute_process(COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${built}/cpp_consumer" -V
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status EQUAL 0 OR NOT output MATCHES "octavo\\.verify\\.tiny" OR NOT output MATCHES "FAIL  load: ")
    message(FATAL_ERROR "octavo_verify_plugin: expected a failed load of tiny, found ${status}\n${output}")
  endif()
  run("the numbers of octavo::format" "${built}/cpp_consumer/numbers")
  run("the consumer" "${built}/cpp_consumer/cpp_consumer")
  message(STATUS "${run_output}")
  # What is skipped must be what a backend without state and without optional interfaces has not.
  set(expected "fence.optimizer;access.optimizer;purity.optimizer;optimizer;reduction;fused;shard")
  set(cases current:true current:false rowwise int8)
  if(index EQUAL 1)  # the same sources: what this compiler makes of one of them
    set(cases current:true)
  endif()
  foreach(case IN LISTS cases)
    set(arguments ${case})
    if(case MATCHES "current:(.*)")
      set(arguments current --set fp8.current.weight_cache=${CMAKE_MATCH_1})
    elseif(case STREQUAL "int8") # a layer, whose kernels are checked first
      string(REPLACE "optimizer;reduction" "optimizer;scales;reduction" expected
             "kernels.memory;kernels.streams;kernels.capture;kernels.current_device;${expected}")
    endif()
    execute_process(COMMAND "${WORK}/prefix/${BINDIR}/octavo" plugin verify ${arguments}
                    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT status EQUAL 0 OR NOT output MATCHES "[1-9][0-9]* passed, 0 failed")
      message(FATAL_ERROR "octavo plugin verify of ${case}: expected exit code 0 and no failure, found "
                          "${status}\n${output}")
    endif()
    string(REGEX MATCHALL "skip  [a-z0-9_.]+" skipped "${output}")
    string(REPLACE "skip  " "" skipped "${skipped}")
    if(NOT skipped STREQUAL expected)
      message(FATAL_ERROR "octavo plugin verify of ${case}: expected these checks to be skipped: "
                          "${expected}; found ${skipped}")
    endif()
    string(REGEX MATCH "[0-9]+ passed, 0 failed, [0-9]+ skipped" summary "${output}")
    message(STATUS "octavo plugin verify of ${case}: ${summary}")
  endforeach()
  math(EXPR index "${index} + 1")
endforeach()
