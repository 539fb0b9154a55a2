# Installs the build tree, builds the sample plugin and a host against the installed copy only, and
# shows that dropping two files into a directory makes a backend selectable: nothing is rebuilt.
cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")

# expect_failure(<what> <pattern> <command...>): the command must fail and say what the pattern says.
function(expect_failure what pattern)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status
                  OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(status EQUAL 0 OR NOT "${output}${errors}" MATCHES "${pattern}")
    message(FATAL_ERROR "${what}: expected a failure that says '${pattern}', "
                        "found exit code ${status}\n${output}\n${errors}")
  endif()
  message(STATUS "${what}: refused, as expected")
endfunction()

count_lines(minimal_plugin 370 "${SOURCE}/samples/minimal_plugin/minimal.c")

set(configure "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_C_COMPILER=${C_COMPILER}"
    "-DCMAKE_C_FLAGS=${C_FLAGS}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}"
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix")

# The package is moved after the installation: it may contain no absolute path.
run("install" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/staging")
file(RENAME "${WORK}/staging" "${WORK}/prefix")

# What is installed is what the manifests say.
file(GLOB_RECURSE manifests "${WORK}/prefix/*.octavo-plugin.toml")
foreach(manifest IN LISTS manifests)
  string(REGEX REPLACE "\\.octavo-plugin\\.toml$" ".so" library "${manifest}")
  file(SHA256 "${library}" hash)
  file(READ "${manifest}" text)
  string(FIND "${text}" "sha256 = \"${hash}\" }" place)
  if(place LESS 0)
    message(FATAL_ERROR "${manifest}: expected the hash ${hash}, found\n${text}")
  endif()
endforeach()
list(LENGTH manifests count)
if(count LESS 3)
  message(FATAL_ERROR "expected the manifests of three plugins, found ${manifests}")
endif()

# A page for each command, and what shells read by themselves.
foreach(file IN ITEMS bash-completion/completions/octavo zsh/site-functions/_octavo
                      fish/vendor_completions.d/octavo.fish man/man1/octavo.1 man/man1/octavo-config-show.1)
  file(SIZE "${WORK}/prefix/share/${file}" size)
  if(size LESS 300)
    message(FATAL_ERROR "expected share/${file} in the installation, found ${size} bytes")
  endif()
endforeach()

# Copies, so that nothing of this tree can be reached by a relative path.
file(COPY "${SOURCE}/samples/minimal_plugin" "${SOURCE}/tests/package/consumer"
          "${SOURCE}/tests/package/missing" DESTINATION "${WORK}")

run("configure minimal_plugin" ${configure} -S "${WORK}/minimal_plugin" -B "${WORK}/plugin-build")
run("build minimal_plugin" "${CMAKE_COMMAND}" --build "${WORK}/plugin-build")
run("configure the consumer" ${configure} -S "${WORK}/consumer" -B "${WORK}/consumer-build")
run("build the consumer" "${CMAKE_COMMAND}" --build "${WORK}/consumer-build")
expect_failure("a component that does not exist" "not installed: nonsense"
               ${configure} -S "${WORK}/missing" -B "${WORK}/missing-build")

set(consumer "${WORK}/consumer-build/consumer")
set(octavo "${WORK}/prefix/${BINDIR}/octavo")
expect_failure("the consumer without the plugin" "minimal" "${consumer}")

# Other build systems: pkg-config's flags build a host, octavo plugin manifest writes what CMake writes.
find_program(pkg_config pkg-config REQUIRED)
file(GLOB_RECURSE pc "${WORK}/prefix/*/octavo.pc")
cmake_path(GET pc PARENT_PATH pc_dir)
set(ENV{PKG_CONFIG_PATH} "${pc_dir}")
run("pkg-config" "${pkg_config}" --cflags --libs octavo)
separate_arguments(flags UNIX_COMMAND "${run_output}")
separate_arguments(c_flags UNIX_COMMAND "${C_FLAGS}")
run("pkg-config --variable" "${pkg_config}" --variable=libdir octavo)
string(STRIP "${run_output}" libdir)
run("build a host with pkg-config's flags" "${C_COMPILER}" -std=c11 ${c_flags}
    "${SOURCE}/samples/linear/linear.c" ${flags} "-Wl,-rpath,${libdir}" -o "${WORK}/linear")
run("that host" "${WORK}/linear")
set(built "${WORK}/plugin-build/lib/octavo/plugins")
run("octavo plugin manifest" "${octavo}" plugin manifest minimal --version 1.0.0
    --description "FP8 current scaling, nothing kept" --options "${built}/minimal.so")
file(READ "${built}/minimal.octavo-plugin.toml" by_cmake)
string(REGEX REPLACE "# As [^\n]*\n\n" "" by_cmake "${by_cmake}")  # of minimal.options.toml
if(NOT run_output STREQUAL by_cmake)
  message(FATAL_ERROR "octavo plugin manifest and octavo_add_plugin() differ:\n${run_output}\n${by_cmake}")
endif()

# The whole installation of a plugin: two files in a directory of the search path.
file(COPY "${built}/minimal.so" "${built}/minimal.octavo-plugin.toml"
     DESTINATION "${WORK}/plugins"
     DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(ENV{OCTAVO_PLUGIN_PATH} "${WORK}/plugins")

run("octavo plugin list" "${octavo}" plugin list)
if(NOT run_output MATCHES "minimal")
  message(FATAL_ERROR "octavo plugin list: expected the backend minimal, found\n${run_output}")
endif()
# A liboctavo that was loaded by a name relative to a directory finds what is next to it all the same.
run("octavo plugin list with a relative path" "${CMAKE_COMMAND}" -E chdir "${libdir}" "${CMAKE_COMMAND}" -E env
    --unset=OCTAVO_PLUGIN_PATH "LD_LIBRARY_PATH=." "${octavo}" plugin list)
if(NOT run_output MATCHES "msamp")
  message(FATAL_ERROR "octavo plugin list with a relative path: expected the plugins of the installation, found\n${run_output}")
endif()
run("octavo check" "${octavo}" check --set fp8.backend=minimal --set mixed_precision=fp8)
if(NOT run_output MATCHES "minimal")
  message(FATAL_ERROR "octavo check: expected minimal to run, found\n${run_output}")
endif()
run("the consumer with the plugin" "${consumer}")
message(STATUS "${run_output}")
