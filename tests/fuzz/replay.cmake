# Unpacks a corpus and runs a replay program on it, in a folder that is its home, too.
#   cmake -DPROGRAM=<program> -DCORPUS=<pack> -DWORK=<folder> -P replay.cmake
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}/corpus")
file(ARCHIVE_EXTRACT INPUT "${CORPUS}" DESTINATION "${WORK}/corpus" TOUCH)
execute_process(COMMAND "${CMAKE_COMMAND}" -E env "HOME=${WORK}" "TMPDIR=${WORK}" "${PROGRAM}" "${WORK}/corpus"
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output RESULT_VARIABLE status)
string(REGEX REPLACE ".*\n([^\n]+)\n$" "\\1" last "${output}")
if(NOT status EQUAL 0)
  message(FATAL_ERROR "expected no finding; ${PROGRAM} ended with ${status} on ${WORK}/corpus/${last}")
endif()
message("${last}")
