# A copy of the tree in a folder with another name, built without ccache, gives the bytes of this build:
# no path, time or order of the machine is in a binary.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")

foreach(part IN ITEMS CMakeLists.txt CMakePresets.json README.md CHANGELOG.md LICENSE kernels sdk plugins host_adapters)
  file(COPY "${SOURCE}/${part}" DESTINATION "${WORK}/a-folder-elsewhere")
endforeach()
set(names CMAKE_C_COMPILER CMAKE_CXX_COMPILER CMAKE_C_FLAGS CMAKE_CXX_FLAGS CMAKE_BUILD_TYPE
    CMAKE_C_FLAGS_RELWITHDEBINFO CMAKE_CXX_FLAGS_RELWITHDEBINFO)
load_cache("${BUILD}" READ_WITH_PREFIX build_ ${names})
set(options)
foreach(name IN LISTS names)
  list(APPEND options "-D${name}=${build_${name}}")
endforeach()
set(ENV{CCACHE_DISABLE} 1)
run("configure" "${CMAKE_COMMAND}" -G "${GENERATOR}" ${options} -DOCTAVO_BUILD_TESTS=OFF -DOCTAVO_BUILD_SAMPLES=OFF
    -S "${WORK}/a-folder-elsewhere" -B "${WORK}/its-build")
run("build" "${CMAKE_COMMAND}" --build "${WORK}/its-build" --target octavo_plugin_te octavo_plugin_reference)
foreach(library IN ITEMS te.so reference.so)
  run("compare ${library}" "${CMAKE_COMMAND}" -E compare_files "${BUILD}/lib/octavo/plugins/${library}"
      "${WORK}/its-build/lib/octavo/plugins/${library}")
endforeach()
