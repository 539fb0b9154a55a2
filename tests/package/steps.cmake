# What the package tests share: an empty work folder, a clean environment, and commands that must
# succeed.
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}/home")

# use_ccache(): for projects whose build is not what the test measures. With the home below the cache would be empty.
find_program(CCACHE ccache)
if(CCACHE)
  execute_process(COMMAND "${CCACHE}" --get-config cache_dir OUTPUT_VARIABLE ccache_folder OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
macro(use_ccache)
  if(CCACHE)
    set(ENV{CCACHE_DIR} "${ccache_folder}")
    set(ENV{CMAKE_C_COMPILER_LAUNCHER} "${CCACHE}")
    set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${CCACHE}")
  endif()
endmacro()

# Whatever this user has set must not decide the outcome.
foreach(name IN ITEMS OCTAVO_BACKEND OCTAVO_MIXED_PRECISION OCTAVO_PLUGIN_PATH XDG_DATA_HOME)
  unset(ENV{${name}})
endforeach()
set(ENV{HOME} "${WORK}/home")

# run(<what> <command...>): fails the test, with the output, when the command fails.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status
                  OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what}: expected exit code 0, found ${status}\n${output}\n${errors}")
  endif()
  message(STATUS "${what}: done")
  set(run_output "${output}" PARENT_SCOPE)
endfunction()

# A statement of size, counted over these files: neither blank lines nor comments.
function(count_lines what most)
  set(count 0)
  foreach(file IN LISTS ARGN)
    file(READ "${file}" lines)
    string(REGEX REPLACE "[][;\\\\]" "." lines "${lines}")  # these mean something in a list
    string(REPLACE "\n" ";" lines "${lines}")
    foreach(line IN LISTS lines)
      if(NOT line MATCHES "^ *(//.*|/\\*.*|\\*[ /].*|\\*)?$")
        math(EXPR count "${count} + 1")
      endif()
    endforeach()
  endforeach()
  if(count GREATER most OR count LESS 20)
    message(FATAL_ERROR "${what}: expected 20 to ${most} lines that are neither blank nor comments, found ${count}")
  endif()
  message(STATUS "${what}: ${count} lines")
endfunction()

# The rustc next to this cargo, and nothing of the user's. Ends the test as skipped where a program is missing.
macro(use_cargo)
  find_program(BINDGEN bindgen)
  if(NOT CARGO OR NOT BINDGEN)
    message(STATUS "SKIPPED: cargo or bindgen is missing (apt-get install cargo rustc bindgen clang)")
    return()
  endif()
  cmake_path(GET CARGO PARENT_PATH tools)
  if(EXISTS "${tools}/rustc")
    set(ENV{RUSTC} "${tools}/rustc")
  endif()
  if(EXISTS "${tools}/rustdoc")
    set(ENV{RUSTDOC} "${tools}/rustdoc")
  endif()
  if(NOT tools STREQUAL "/usr/bin")
    unset(ENV{HOME})  # a rustup finds its toolchains there
  endif()
  set(ENV{PATH} "${tools}:$ENV{PATH}")
  set(ENV{CARGO_HOME} "${WORK}/home/cargo")
  unset(ENV{CARGO_TARGET_DIR})
  unset(ENV{OCTAVO_INCLUDE_DIR})
endmacro()
