# Two copies of the tree, in folders with other names and at other depths, give the same bytes: no path, time or order of
# the machine is in a binary. Both are built without ccache, which rewrites the paths that a compiler sees, and without
# optimization, which tests/soak.py has in two releases.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")

set(names CMAKE_C_COMPILER CMAKE_CXX_COMPILER CMAKE_C_FLAGS CMAKE_CXX_FLAGS)
load_cache("${BUILD}" READ_WITH_PREFIX build_ ${names})
set(options -DCMAKE_BUILD_TYPE=Debug)
foreach(name IN LISTS names)
  list(APPEND options "-D${name}=${build_${name}}")
endforeach()
set(ENV{CCACHE_DISABLE} 1)
set(first "${WORK}/a/folder/elsewhere")
set(second "${WORK}/another-folder")
foreach(folder IN ITEMS "${first}" "${second}")
  foreach(part IN ITEMS CMakeLists.txt CMakePresets.json README.md CHANGELOG.md LICENSE kernels sdk plugins host_adapters)
    file(COPY "${SOURCE}/${part}" DESTINATION "${folder}")
  endforeach()
  run("configure" "${CMAKE_COMMAND}" -G "${GENERATOR}" ${options} -DOCTAVO_BUILD_TESTS=OFF -DOCTAVO_BUILD_SAMPLES=OFF
      -S "${folder}" -B "${folder}-built")
  run("build" "${CMAKE_COMMAND}" --build "${folder}-built" --target octavo_plugin_te octavo_plugin_reference)
endforeach()
foreach(library IN ITEMS te.so reference.so)
  run("compare ${library}" "${CMAKE_COMMAND}" -E compare_files "${first}-built/lib/octavo/plugins/${library}"
      "${second}-built/lib/octavo/plugins/${library}")
endforeach()
