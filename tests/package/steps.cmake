# What the package tests share: an empty work folder, a clean environment, and commands that must
# succeed.
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}/home")

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

# A statement of size, counted: neither blank lines nor comments.
function(count_lines file most)
  file(STRINGS "${SOURCE}/samples/${file}" lines)
  set(count 0)
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^ *(//.*|/\\*.*|\\*[ /].*|\\*)?$")
      math(EXPR count "${count} + 1")
    endif()
  endforeach()
  if(count GREATER most OR count LESS 20)
    message(FATAL_ERROR "samples/${file}: expected 20 to ${most} lines that are neither blank nor "
                        "comments, found ${count}")
  endif()
  message(STATUS "${file}: ${count} lines")
endfunction()
