# OCTAVO_HARDENED_COMPILE and OCTAVO_HARDENED_LINK: the options of every library and program that Octavo
# ships, and of every plugin that octavo_add_plugin builds; `octavo plugin check-elf --strict` judges the result.
#
# - Addresses of functions are resolved when a library is loaded, and read-only from then on.
# - Functions with arrays check their stack before they return; large frames touch every page.
# - Copies of the C library check the sizes that the compiler knows.
# - No path of the machine is inside, so two builds of one source in different folders are equal.
#
# Sanitizers have checks of their own, and builds without optimization no sizes to check.
include_guard(GLOBAL)

set(OCTAVO_HARDENED_COMPILE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>"
  "$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${CMAKE_BINARY_DIR}=build>")
set(OCTAVO_HARDENED_LINK "LINKER:-z,relro,-z,now,-z,noexecstack")
if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS}" MATCHES "-fsanitize")
  set(octavo_optimized "$<CONFIG:Release,RelWithDebInfo,MinSizeRel>")
  list(APPEND OCTAVO_HARDENED_COMPILE
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>"
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fstack-clash-protection>"
    "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,${octavo_optimized}>:-U_FORTIFY_SOURCE>"
    "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,${octavo_optimized}>:-D_FORTIFY_SOURCE=2>")
endif()
