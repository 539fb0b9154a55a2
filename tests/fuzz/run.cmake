# Runs one libFuzzer target for SECONDS on its corpus, in a folder of its own: the pack is unpacked
# there, and what the target finds is added.
#   cmake -DTARGET=<program> -DCORPUS=<pack> -DSOURCE=<folder of words.dict> -DSEEDS=<files>
#         -DWORK=<folder> -DSECONDS=<n> -DMAX_LENGTH=<bytes> -P run.cmake
# From the environment: OCTAVO_FUZZ_SECONDS and OCTAVO_FUZZ_RUNS instead of SECONDS, OCTAVO_FUZZ_KEEP=1
# to go on with what an earlier run found, OCTAVO_SEED instead of seed 1.
if(DEFINED ENV{OCTAVO_FUZZ_SECONDS})
  set(SECONDS "$ENV{OCTAVO_FUZZ_SECONDS}")
endif()
if(NOT DEFINED ENV{OCTAVO_FUZZ_KEEP})
  file(REMOVE_RECURSE "${WORK}")
endif()
file(MAKE_DIRECTORY "${WORK}/corpus")
if(NOT EXISTS "${CORPUS}")
  message(FATAL_ERROR "expected a corpus at ${CORPUS}, found none; python3 tests/data/pack.py adds one")
endif()
file(ARCHIVE_EXTRACT INPUT "${CORPUS}" DESTINATION "${WORK}/corpus" TOUCH)
file(COPY ${SEEDS} DESTINATION "${WORK}/corpus")
set(options "")
set(seed 1)
if(DEFINED ENV{OCTAVO_SEED})
  set(seed "$ENV{OCTAVO_SEED}")
endif()
if(EXISTS "${SOURCE}/words.dict")
  list(APPEND options "-dict=${SOURCE}/words.dict")
endif()
if(DEFINED ENV{OCTAVO_FUZZ_RUNS})
  list(APPEND options "-runs=$ENV{OCTAVO_FUZZ_RUNS}")
  set(SECONDS 0)
endif()
# Inputs are small: freed memory is watched for 16 MiB of later ones, and allocations are noted by their
# last four callers (a finding's input, run without these options, shows the others). The corpora are
# grown, so inputs are chosen evenly: weighing them by rare features costs more than most inputs do.
# A line for each new input would hide the finding in a test's log.
set(sanitizer "quarantine_size_mb=16:malloc_context_size=4")
# A fuzzer may write into its own folder only: it is the home and the place of temporary files, too.
execute_process(COMMAND "${CMAKE_COMMAND}" -E env "HOME=${WORK}" "TMPDIR=${WORK}"
                        "ASAN_OPTIONS=${sanitizer}"
                        "${TARGET}" -max_total_time=${SECONDS} ${options} -seed=${seed} -entropic=0
                        -verbosity=0 -timeout=30 -rss_limit_mb=1024 -max_len=${MAX_LENGTH} -print_final_stats=1
                        -artifact_prefix=${WORK}/ "${WORK}/corpus"
                WORKING_DIRECTORY "${WORK}"
                RESULT_VARIABLE status)
if(status EQUAL 72)
  message(FATAL_ERROR "${TARGET}: interrupted, after as many runs as it says, without a finding")
endif()
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${TARGET}: expected no finding, found one; its input is in ${WORK}")
endif()
