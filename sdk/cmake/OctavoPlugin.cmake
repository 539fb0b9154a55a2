# octavo_add_plugin(<id> SOURCES <files...> [VERSION <version>] [DESCRIPTION <text>] [DIRECTORY <folder>]
#                   [INTERFACES <interfaces...>] [KERNELS <kind> <device type>] [OVER <kinds...>] [LAYERS <ids...>]
#                   [LIBRARIES <names...>])
#
# Builds one Octavo plugin: a module `<id>.so` that exports OCTAVO_PLUGIN_SYMBOL and nothing else,
# with its manifest `<id>.octavo-plugin.toml` next to it. Both go to lib/octavo/plugins of the build
# tree, where liboctavo of the same tree looks, and are installed to <libdir>/octavo/plugins. With
# DIRECTORY they go to that folder instead and are not installed: a plugin for tests.
# The installed manifest states the SHA-256 of the installed library; strip with `cmake --install --strip`.
# The manifest is made from `<id>.octavo-plugin.toml.in` in the calling folder when there is one
# (with @OCTAVO_PLUGIN_ID@, @OCTAVO_PLUGIN_VERSION@, @OCTAVO_PLUGIN_TUPLE@), else from a default.
# INTERFACES are what get_interface answers, for `octavo plugin list`; octavo.backend/1 without it, with KERNELS
# octavo.kernels/1 and, but for a CPU, octavo.memory/1, with OVER octavo.kernels.layer/1.
# KERNELS: the plugin has kernels, for the devices that device.kind = "<kind>" names and whose type in octavo_device
# is DLPack's <device type>.
# OVER: the plugin has a layer that stands on the kernels of devices of these kinds.
# LAYERS: the ids of plugins whose layers must stand on the kernels for this backend, from below.
# LIBRARIES: what it links beyond the C and C++ run-times, such as libOpenCL.so.1: a machine without them gets a
# verdict, and `octavo plugin check-elf` accepts these.
# `<id>.options.toml` in that folder, when there is one, is its end: the options that the plugin declares, as
# `octavo plugin manifest <id> --options <id>.so --only-options` prints them. `octavo plugin verify` compares the two.
# It is built with the options of OctavoHardening.cmake.
# Id and version are stated here alone: OCTAVO_PLUGIN(Class) of octavo/plugin.hpp takes them from the
# definitions that this function sets.
#
# octavo_verify_plugin(<id> [OPTIONS <key=value...>] [ARGUMENTS <arguments of octavo plugin verify...>])
#
# Adds the test octavo.verify.<id>: `octavo plugin verify` on the plugin of the build tree.
#
# octavo_try_plugin(<id> [OPTIONS <key=value...>] [ARGUMENTS <arguments of octavo plugin try...>])
#
# Adds the test octavo.try.<id>: a small training against float32.
#
# octavo_try_kernels(<id> <backend> [OPTIONS <key=value...>] [ARGUMENTS <arguments of octavo plugin try...>])
#
# Adds the test octavo.try.<id>.<backend>: the same of an installed backend, on the kernels of this plugin.
include_guard(GLOBAL)
include(GNUInstallDirs)
include("${CMAKE_CURRENT_LIST_DIR}/OctavoHardening.cmake")
set(OCTAVO_PLUGIN_MODULE_DIR "${CMAKE_CURRENT_LIST_DIR}" CACHE INTERNAL "")

function(octavo_add_plugin id)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "VERSION;DESCRIPTION;DIRECTORY" "SOURCES;INTERFACES;KERNELS;OVER;LAYERS;LIBRARIES")
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "octavo_add_plugin(${id}): SOURCES is missing")
  endif()
  if(NOT id MATCHES "^[a-z0-9_.-]+$")
    message(FATAL_ERROR "octavo_add_plugin(${id}): an id is made of a-z 0-9 _ . -")
  endif()
  set(OCTAVO_PLUGIN_ID "${id}")
  set(OCTAVO_PLUGIN_VERSION "${arg_VERSION}")
  if(NOT OCTAVO_PLUGIN_VERSION)
    set(OCTAVO_PLUGIN_VERSION "${PROJECT_VERSION}")
  endif()
  set(OCTAVO_PLUGIN_DESCRIPTION "${arg_DESCRIPTION}")
  set(OCTAVO_PLUGIN_KERNELS "")
  if(arg_KERNELS)
    if(NOT arg_KERNELS MATCHES "^[a-z0-9_.-]+;[0-9]+$")
      message(FATAL_ERROR "octavo_add_plugin(${id}): KERNELS is <kind> <device type>, found ${arg_KERNELS}")
    endif()
    list(GET arg_KERNELS 0 kind)
    list(GET arg_KERNELS 1 type)
    set(OCTAVO_PLUGIN_KERNELS "\n[kernels]\nkind = \"${kind}\"\ndevice_type = ${type}\n")
  endif()
  list(JOIN arg_OVER "\", \"" over)
  if(arg_OVER)
    set(OCTAVO_PLUGIN_KERNELS "\n[kernels]\nover = [\"${over}\"]\n")
  endif()
  set(OCTAVO_PLUGIN_REQUIRES "")
  foreach(key IN ITEMS LAYERS LIBRARIES)
    if(arg_${key})
      list(JOIN arg_${key} "\", \"" names)
      string(TOLOWER "${key}" name)
      string(APPEND OCTAVO_PLUGIN_REQUIRES "${name} = [\"${names}\"]\n")
    endif()
  endforeach()
  if(NOT arg_INTERFACES AND arg_KERNELS)
    set(arg_INTERFACES octavo.kernels/1)
    if(NOT type EQUAL 1)  # a CPU's memory is the process's
      list(APPEND arg_INTERFACES octavo.memory/1)
    endif()
  elseif(NOT arg_INTERFACES AND arg_OVER)
    set(arg_INTERFACES octavo.kernels.layer/1)
  elseif(NOT arg_INTERFACES)
    set(arg_INTERFACES octavo.backend/1)
  endif()
  list(JOIN arg_INTERFACES "\", \"" OCTAVO_PLUGIN_INTERFACES)
  string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" OCTAVO_PLUGIN_TUPLE)

  set(target "octavo_plugin_${id}")
  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE octavo::abi)
  target_compile_options(${target} PRIVATE ${OCTAVO_HARDENED_COMPILE})
  target_link_options(${target} PRIVATE ${OCTAVO_HARDENED_LINK})
  # The manifest's id and version, for octavo/plugin.hpp: stated once, in this call.
  target_compile_definitions(${target} PRIVATE
    "OCTAVO_PLUGIN_ID=\"${id}\"" "OCTAVO_PLUGIN_VERSION=\"${OCTAVO_PLUGIN_VERSION}\"")
  set(directory "${CMAKE_BINARY_DIR}/lib/octavo/plugins")
  if(arg_DIRECTORY)
    set(directory "${arg_DIRECTORY}")
  endif()
  # CMake keeps room for another search path by empty entries, which mean the current directory.
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
    PREFIX "" OUTPUT_NAME "${id}" LIBRARY_OUTPUT_DIRECTORY "${directory}"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_options(${target} PRIVATE
    "LINKER:--version-script=${OCTAVO_PLUGIN_MODULE_DIR}/plugin_exports.map")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS
               "${OCTAVO_PLUGIN_MODULE_DIR}/plugin_exports.map")
  if(NOT CMAKE_C_FLAGS MATCHES "-fsanitize" AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    target_link_options(${target} PRIVATE "LINKER:-z,defs")
  endif()

  find_path(OCTAVO_ABI_INCLUDE_DIR octavo/abi.h NO_DEFAULT_PATH REQUIRED
            PATHS "${OCTAVO_PLUGIN_MODULE_DIR}/../include" "${octavo_INCLUDE_DIR}")
  # Headers of an installation are outside of the folders that the options above map.
  target_compile_options(${target} PRIVATE "-ffile-prefix-map=${OCTAVO_ABI_INCLUDE_DIR}=include")
  set(template "${CMAKE_CURRENT_SOURCE_DIR}/${id}.octavo-plugin.toml.in")
  if(NOT EXISTS "${template}")
    set(template "${OCTAVO_PLUGIN_MODULE_DIR}/octavo-plugin.toml.in")
  endif()
  file(READ "${template}" manifest)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${template}")
  set(options "${CMAKE_CURRENT_SOURCE_DIR}/${id}.options.toml")
  if(EXISTS "${options}")
    file(READ "${options}" stated)
    string(APPEND manifest "\n${stated}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${options}")
  endif()
  file(CONFIGURE OUTPUT "${directory}/${id}.octavo-plugin.toml" CONTENT "${manifest}" @ONLY)
  if(arg_DIRECTORY)
    return()
  endif()
  octavo_install_plugin_("${id}" "${CMAKE_INSTALL_LIBDIR}/octavo/plugins")
endfunction()

# octavo_install_plugin_(<id> <destination> [<more for install>...]): library and manifest. The installed
# manifest states the SHA-256 of the installed library, which may have been stripped.
function(octavo_install_plugin_ id destination)
  get_target_property(built octavo_plugin_${id} LIBRARY_OUTPUT_DIRECTORY)
  install(TARGETS octavo_plugin_${id} LIBRARY DESTINATION "${destination}" ${ARGN})
  install(FILES "${built}/${id}.octavo-plugin.toml" DESTINATION "${destination}" ${ARGN})
  install(CODE "
    set(octavo_stem \"${destination}/${id}\")
    if(NOT IS_ABSOLUTE \"\${octavo_stem}\")
      set(octavo_stem \"\${CMAKE_INSTALL_PREFIX}/\${octavo_stem}\")
    endif()
    set(octavo_stem \"\$ENV{DESTDIR}\${octavo_stem}\")
    file(SHA256 \"\${octavo_stem}.so\" octavo_hash)
    file(READ \"\${octavo_stem}.octavo-plugin.toml\" octavo_manifest)
    string(REPLACE \" = \\\"${id}.so\\\"\" \" = { file = \\\"${id}.so\\\", sha256 = \\\"\${octavo_hash}\\\" }\"
           octavo_manifest \"\${octavo_manifest}\")
    file(WRITE \"\${octavo_stem}.octavo-plugin.toml\" \"\${octavo_manifest}\")
  " ${ARGN})
endfunction()

# octavo_test_plugin_(<command> <plugin to test> <name> ...): for the functions below.
function(octavo_test_plugin_ command plugin name)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "" "OPTIONS;ARGUMENTS")
  if(TARGET octavo_cli)
    set(program "$<TARGET_FILE:octavo_cli>")
  else()
    # The program of the installation that this file is part of, else one of PATH.
    find_program(OCTAVO_PROGRAM octavo HINTS "${OCTAVO_PLUGIN_MODULE_DIR}/../../../bin"
                 "${OCTAVO_PLUGIN_MODULE_DIR}/../../../../bin" REQUIRED)
    set(program "${OCTAVO_PROGRAM}")
  endif()
  list(TRANSFORM arg_OPTIONS PREPEND "--set=")
  add_test(NAME "octavo.${command}.${name}" COMMAND "${program}" plugin ${command} "${plugin}" ${arg_OPTIONS} ${arg_ARGUMENTS})
endfunction()

function(octavo_verify_plugin id)
  octavo_test_plugin_(verify "$<TARGET_FILE:octavo_plugin_${id}>" ${id} ${ARGN})
endfunction()

function(octavo_try_plugin id)
  octavo_test_plugin_(try "$<TARGET_FILE:octavo_plugin_${id}>" ${id} ${ARGN})
endfunction()

function(octavo_try_kernels id backend)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "OPTIONS;ARGUMENTS")
  octavo_test_plugin_(try ${backend} ${id}.${backend}
    OPTIONS device.kernels=${id} ${arg_OPTIONS} ARGUMENTS ${arg_ARGUMENTS})
  set_tests_properties(octavo.try.${id}.${backend} PROPERTIES
    ENVIRONMENT "OCTAVO_PLUGIN_PATH=$<TARGET_FILE_DIR:octavo_plugin_${id}>")
endfunction()
