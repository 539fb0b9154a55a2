# samples/opencl_kernels as its author would build it: against an installed copy only, with the tests of its project.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")

run("install" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix")
file(COPY "${WORK}/prefix/share/octavo/samples/opencl_kernels" DESTINATION "${WORK}")
set(project "${WORK}/opencl_kernels")
count_lines(opencl_kernels 900 "${project}/kernels.c" "${project}/device.c" "${project}/device.h" "${project}/kernels.cl")
run("configure" "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_C_COMPILER=${C_COMPILER}"
    "-DCMAKE_C_FLAGS=${C_FLAGS} -Wall -Wextra -Werror" "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -S "${project}" -B "${WORK}/build")
run("build" "${CMAKE_COMMAND}" --build "${WORK}/build")
run("octavo plugin check-elf" "${WORK}/prefix/${BINDIR}/octavo" plugin check-elf --strict "${WORK}/build/lib/octavo/plugins")
run("octavo plugin verify and try" "${CMAKE_CTEST_COMMAND}" --test-dir "${WORK}/build" -V)
foreach(text IN ITEMS "[1-9][0-9]* passed, 0 failed" "PASS  te: after 400 steps its loss is ")
  if(NOT run_output MATCHES "${text}")
    message(FATAL_ERROR "the tests of the project: expected '${text}', found\n${run_output}")
  endif()
endforeach()
