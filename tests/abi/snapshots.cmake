# What was frozen, against what is built: tampering, changes of the ABI, hosts and plugins of two ages. For another processor
# the binaries that a snapshot has for it, which its emulator starts, and nothing that is the same everywhere.
set(octavo_golden_dir "${CMAKE_CURRENT_SOURCE_DIR}/golden")
set(octavo_next_dir "${CMAKE_CURRENT_BINARY_DIR}/next")

# The headers of an imaginary next minor, and a host, a program and a plugin built with them.
file(GLOB octavo_headers CONFIGURE_DEPENDS "${octavo_include}/octavo/*.h" "${octavo_include}/octavo/draft/*.h")
add_custom_command(OUTPUT "${octavo_next_dir}/stamp"
  COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/next_headers.py" "${octavo_include}"
          "${octavo_next_dir}/include"
  COMMAND "${CMAKE_COMMAND}" -E touch "${octavo_next_dir}/stamp"
  DEPENDS ${octavo_headers} next_headers.py abi_table.py)
add_custom_target(octavo_next_headers DEPENDS "${octavo_next_dir}/stamp")
add_executable(octavo_next_host "${octavo_golden_dir}/host.c")
add_executable(octavo_next_program "${octavo_golden_dir}/program.c")
add_executable(octavo_next_parallel "${octavo_golden_dir}/parallel.c")
add_library(octavo_next_plugin MODULE "${octavo_golden_dir}/next.c")
target_link_libraries(octavo_next_host PRIVATE m ${CMAKE_DL_LIBS})
target_link_libraries(octavo_next_program PRIVATE ${CMAKE_DL_LIBS})
target_link_libraries(octavo_next_parallel PRIVATE ${CMAKE_DL_LIBS})
target_link_options(octavo_next_plugin PRIVATE
  "LINKER:--version-script=${PROJECT_SOURCE_DIR}/sdk/cmake/plugin_exports.map")
set_target_properties(octavo_next_plugin PROPERTIES
  PREFIX "" OUTPUT_NAME next LIBRARY_OUTPUT_DIRECTORY "${octavo_next_dir}")
foreach(target IN ITEMS octavo_next_host octavo_next_program octavo_next_parallel octavo_next_plugin)
  add_dependencies(${target} octavo_next_headers)
  target_include_directories(${target} PRIVATE "${octavo_next_dir}/include" "${PROJECT_SOURCE_DIR}")
  # Positional initializers of older code leave out what is newer; that is what is tried here.
  target_compile_options(${target} PRIVATE -Wno-missing-field-initializers)
  set_target_properties(${target} PROPERTIES C_EXTENSIONS ON
    RUNTIME_OUTPUT_DIRECTORY "${octavo_next_dir}")
endforeach()

# octavo_add_abi_test(<name> <script> <arguments...>)
function(octavo_add_abi_test name script)
  add_test(NAME Abi.${name}
           COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/${script}" ${ARGN})
  set(labels abi)
  if(CMAKE_CROSSCOMPILING)
    list(APPEND labels aarch64)
  endif()
  set_tests_properties(Abi.${name} PROPERTIES LABELS "${labels}" TIMEOUT 300 SKIP_RETURN_CODE 77)
  octavo_run_in(rest Abi.${name})
endfunction()

set(golden golden)
set(combine combinations.py)
if(CMAKE_CROSSCOMPILING)
  # Golden programs ask for the loader where systems of that processor have it, so it is named.
  set(golden golden/${CMAKE_SYSTEM_PROCESSOR})
  set(words ${CMAKE_CROSSCOMPILING_EMULATOR} "/usr/${CMAKE_LIBRARY_ARCHITECTURE}/lib/ld-linux-${CMAKE_SYSTEM_PROCESSOR}.so.1")
  list(JOIN words "|" words)
  set(combine combinations.py --emulator ${CMAKE_SYSTEM_PROCESSOR} "${words}")
else()
  octavo_add_abi_test(snapshots_are_unchanged check_snapshots.py "${CMAKE_CURRENT_SOURCE_DIR}")
  octavo_add_abi_test(snapshots_tampering_is_found check_snapshots.py --self-test
                      "${CMAKE_CURRENT_SOURCE_DIR}")
endif()
set(next_host "$<TARGET_FILE:octavo_next_host>")
set(next_program "$<TARGET_FILE:octavo_next_program>")
set(next_plugin "$<TARGET_FILE:octavo_next_plugin>")
octavo_add_abi_test(new_host_new_plugin ${combine} direct ${next_host} ${next_plugin} new)
octavo_add_abi_test(new_program_new_plugin ${combine} library ${next_program}
                    $<TARGET_FILE:octavo> ${next_plugin} new)
octavo_add_abi_test(new_program_gives_threads ${combine} parallel $<TARGET_FILE:octavo_next_parallel>
                    $<TARGET_FILE:octavo> ${next_plugin} new)
octavo_add_abi_test(later_values_are_refused ${combine} unknown ${next_program} $<TARGET_FILE:octavo> ${next_plugin})

file(GLOB octavo_snapshots CONFIGURE_DEPENDS LIST_DIRECTORIES TRUE "${CMAKE_CURRENT_SOURCE_DIR}/v*")
set(octavo_symbol "^#define OCTAVO_PLUGIN_SYMBOL ")
file(STRINGS "${octavo_include}/octavo/plugin.h" octavo_own_symbol REGEX "${octavo_symbol}")
foreach(snapshot IN LISTS octavo_snapshots)
  cmake_path(GET snapshot FILENAME id)
  file(GLOB plugins RELATIVE "${snapshot}/${golden}" "${snapshot}/${golden}/*/*.so")
  # The symbol is one for all minors of a release. A candidate has its own: hosts find no other.
  file(STRINGS "${snapshot}/include/octavo/plugin.h" symbol REGEX "${octavo_symbol}")
  if(NOT symbol STREQUAL octavo_own_symbol)
    foreach(plugin IN LISTS plugins)
      string(REGEX REPLACE "[/.]" "_" name "${plugin}")
      octavo_add_abi_test(${id}.refuses_${name} ${combine} refused $<TARGET_FILE:octavo_cli> ${next_host}
                          "${snapshot}/${golden}/${plugin}")
    endforeach()
    continue()
  endif()
  if(CMAKE_CROSSCOMPILING AND NOT plugins)
    continue()  # an older snapshot, without binaries for this processor
  endif()
  list(APPEND octavo_current_snapshots "${snapshot}")
  set(old_host "${snapshot}/${golden}/host")
  set(old_program "${snapshot}/${golden}/program")
  # te needs more than the kernels of a golden host, and kernels are for a device: both run by liboctavo only.
  list(REMOVE_ITEM plugins cpp/te.so kernels/npu.so)
  set(te "${snapshot}/${golden}/cpp/te.so")
  set(recipes delayed block mx rowwise)
  if(CMAKE_CROSSCOMPILING)
    set(recipes mx)  # an emulator takes minutes for each
  endif()
  foreach(recipe IN LISTS recipes)
    octavo_add_abi_test(${id}.conformance_te_${recipe} ${combine} conformance $<TARGET_FILE:octavo_cli> ${te} fp8.te.recipe=${recipe})
  endforeach()
  octavo_add_abi_test(${id}.trains_on_old_kernels ${combine} provider $<TARGET_FILE:octavo_cli>
                      "${snapshot}/${golden}/kernels/npu.so" ${te} device.kind=npu fp8.te.recipe=current)
  if(CMAKE_CROSSCOMPILING)  # two minutes of emulation, for tests/soak.py
    set_tests_properties(Abi.${id}.trains_on_old_kernels PROPERTIES LABELS aarch64_soak)
  endif()
  octavo_add_abi_test(${id}.old_program_gives_threads ${combine} parallel "${snapshot}/${golden}/parallel"
                      $<TARGET_FILE:octavo> "${snapshot}/${golden}/gcc/minimal.so" old)
  if(NOT CMAKE_CROSSCOMPILING)
    octavo_add_abi_test(${id}.every_frozen_interface_has_a_golden golden_ids.py "${snapshot}")
  endif()
  octavo_add_abi_test(${id}.old_host_new_plugin ${combine} direct ${old_host} ${next_plugin} old)
  octavo_add_abi_test(${id}.old_program_new_plugin ${combine} library ${old_program}
                      $<TARGET_FILE:octavo> ${next_plugin} old)
  foreach(plugin IN LISTS plugins)
    string(REGEX REPLACE "[/.]so$|[.]so$" "" name "${plugin}")
    string(REPLACE "/" "_" name "${name}")
    set(file "${snapshot}/${golden}/${plugin}")
    octavo_add_abi_test(${id}.old_host_old_${name} ${combine} direct ${old_host} ${file} old)
    octavo_add_abi_test(${id}.new_host_old_${name} ${combine} direct ${next_host} ${file} new)
    octavo_add_abi_test(${id}.old_program_old_${name} ${combine} library ${old_program}
                        $<TARGET_FILE:octavo> ${file} old)
    octavo_add_abi_test(${id}.new_program_old_${name} ${combine} library ${next_program}
                        $<TARGET_FILE:octavo> ${file} new)
    octavo_add_abi_test(${id}.conformance_${name} ${combine} conformance
                        $<TARGET_FILE:octavo_cli> ${file})
    octavo_add_abi_test(${id}.${name}_exports_its_entry_only ../../sdk/cli/check_elf.py --readelf ${CMAKE_READELF} ${file})
  endforeach()
endforeach()

if(NOT CMAKE_CROSSCOMPILING)
  include(next_adapters.cmake)
endif()
set(built octavo_next_host octavo_next_program octavo_next_parallel octavo_next_plugin octavo octavo_cli)
if(CMAKE_CROSSCOMPILING)
  add_dependencies(octavo_aarch64 ${built})
  return()
endif()
add_dependencies(octavo_rest ${built})

# The newest snapshot is what changes are counted against.
list(SORT octavo_snapshots COMPARE NATURAL ORDER DESCENDING)
list(GET octavo_snapshots 0 newest)
octavo_add_abi_test(changes_are_approved guard.py "${newest}" "${octavo_include}"
                    "${CMAKE_CURRENT_SOURCE_DIR}/layout_v1.inc" --cc "${CMAKE_C_COMPILER}")
octavo_add_abi_test(guard_finds_each_change guard_test.py "${newest}" "${CMAKE_C_COMPILER}")
