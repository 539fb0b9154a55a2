# The Rust crate from an installed copy: its own tests, and samples/rust_plugin as a project elsewhere, which
# passes the whole suite and trains. Nothing is asked of a registry.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/steps.cmake")
use_cargo()
count_lines(rust_plugin 100 "${SOURCE}/samples/rust_plugin/src/lib.rs")

run("install" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/staging")
file(RENAME "${WORK}/staging" "${WORK}/prefix")
file(COPY "${SOURCE}/samples/rust_plugin" "${SOURCE}/tests/package/rust_consumer" "${SOURCE}/tests/sdk/rust"
     DESTINATION "${WORK}")
file(GLOB_RECURSE left "${WORK}/prefix/*/octavo-sys/Cargo.lock" "${WORK}/prefix/*/octavo-sys/target/*")
if(left)
  message(FATAL_ERROR "expected only sources of octavo-sys, found ${left}")
endif()

set(ENV{CARGO_TARGET_DIR} "${WORK}/target")
set(crate "${WORK}/prefix/${DATADIR}/octavo/rust/octavo-sys")
foreach(project IN ITEMS rust rust_plugin rust_consumer)
  file(READ "${WORK}/${project}/Cargo.toml" text)
  string(REGEX REPLACE "path = \"[./]*sdk/rust/octavo-sys\"" "path = \"${crate}\"" text "${text}")
  file(WRITE "${WORK}/${project}/Cargo.toml" "${text}")
endforeach()
run("cargo test of the border" "${CARGO}" test --offline --quiet --manifest-path "${WORK}/rust/Cargo.toml")
if(NOT run_output MATCHES "16 passed")
  message(FATAL_ERROR "expected the 16 tests of tests/sdk/rust, found\n${run_output}")
endif()
# What bindgen says of each struct, and the examples in comments.
run("cargo test of the crate" "${CARGO}" test --offline --quiet --manifest-path "${crate}/Cargo.toml")

# The commands of docs/writing_a_plugin.md. Skipped are only checks of what a plugin does not have.
set(octavo "${WORK}/prefix/${BINDIR}/octavo")
set(built "${WORK}/target/release")
function(build_and_verify project id skipped)
  run("cargo build of ${id}" "${CARGO}" build --offline --release --manifest-path "${WORK}/${project}/Cargo.toml")
  run("octavo plugin manifest" "${octavo}" plugin manifest ${id} --version 1.0.0 --library lib${id}.so
      --options "${built}/lib${id}.so")
  file(WRITE "${built}/${id}.octavo-plugin.toml" "${run_output}")
  run("octavo plugin check-elf" "${octavo}" plugin check-elf "${built}/lib${id}.so")
  foreach(setting IN LISTS ARGN)
    run("octavo plugin verify ${setting}" "${octavo}" plugin verify "${built}/${id}.octavo-plugin.toml" --set ${setting})
    if(NOT run_output MATCHES "2[0-9] passed, 0 failed, ${skipped} skipped; .*")
      message(FATAL_ERROR "octavo plugin verify: expected ${skipped} checks to be skipped, found\n${run_output}")
    endif()
    message(STATUS "${CMAKE_MATCH_0}")
  endforeach()
endfunction()
build_and_verify(rust_plugin rustcurrent 8 fp8.rustcurrent.weight_cache=true fp8.rustcurrent.weight_cache=false)
build_and_verify(rust_consumer rustdelayed 8 fp8.backend=rustdelayed)

# Its arithmetic is that of reference, in every bit.
set(ENV{OCTAVO_PLUGIN_PATH} "${built}")
run("train_gpt" "${TRAIN_GPT}" --out "${WORK}/out" --run reference rustcurrent --steps 10)
file(STRINGS "${WORK}/out/metrics.jsonl" metrics REGEX "validation_loss")
foreach(line IN LISTS metrics)
  string(JSON name GET "${line}" run)
  string(JSON loss_${name} GET "${line}" validation_loss)
endforeach()
if(NOT DEFINED loss_rustcurrent OR NOT loss_rustcurrent STREQUAL loss_reference)
  message(FATAL_ERROR "expected the loss of reference, ${loss_reference}, found ${loss_rustcurrent}")
endif()
message(STATUS "validation loss after 10 steps: ${loss_rustcurrent}")

# Hosts of the next minor, in which everything ends where readable memory ends: with the plugin above, and with
# one of the next minor's headers, whose new fields and functions stay 0.
set(host "${SOURCE}/tests/abi/combinations.py")
set(older "${WORK}/older/rustcurrent.so")
set(newer "${WORK}/newer/rustcurrent.so")
set(ENV{OCTAVO_INCLUDE_DIR} "${NEXT}/include")
set(ENV{CARGO_TARGET_DIR} "${WORK}/target-next")
run("cargo build with the next minor's headers" "${CARGO}" build --offline --release
    --manifest-path "${WORK}/rust_plugin/Cargo.toml")
configure_file("${built}/librustcurrent.so" "${older}" COPYONLY)
configure_file("${WORK}/target-next/release/librustcurrent.so" "${newer}" COPYONLY)
foreach(plugin IN LISTS older newer)
  run("next host, ${plugin}" "${PYTHON}" "${host}" direct "${NEXT}/octavo_next_host" "${plugin}" new)
endforeach()
run("next program" "${PYTHON}" "${host}" library "${NEXT}/octavo_next_program" "${LIBOCTAVO}" "${older}" new)
