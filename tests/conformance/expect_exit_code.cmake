# Runs PROGRAM with ARGUMENTS; fails unless it ends with the exit code CODE and prints PRINTS.
execute_process(COMMAND "${PROGRAM}" ${ARGUMENTS} RESULT_VARIABLE found
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT "${found}" STREQUAL "${CODE}")
  message(FATAL_ERROR "expected exit code ${CODE}, found ${found}:\n${output}")
endif()
if(NOT output MATCHES "${PRINTS}")
  message(FATAL_ERROR "expected a text that matches '${PRINTS}', found:\n${output}")
endif()
