# Toolchain file: compiles for linux-aarch64 on another machine, with Debian's cross compiler.
#
#   bash tests/environment/aarch64.sh
#   cmake --preset cpu-aarch64
#
# tests/environment/aarch64.sh installs the compiler, qemu-user and the libraries that Octavo links, these into
# OCTAVO_AARCH64_ROOT. What is built starts here through qemu-aarch64. With OCTAVO_AARCH64_RELEASE it asks for
# the loader where systems for aarch64 have it: sdk/packaging/release.sh ships that.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(OCTAVO_AARCH64_ROOT "${CMAKE_CURRENT_LIST_DIR}/../../.cache/aarch64" CACHE PATH
    "Folder with usr/lib/aarch64-linux-gnu of libsodium and yaml-cpp")
option(OCTAVO_AARCH64_RELEASE "Build for systems of this processor, not for tests on this one" OFF)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OCTAVO_AARCH64_ROOT OCTAVO_AARCH64_RELEASE)
file(REAL_PATH "${OCTAVO_AARCH64_ROOT}" root)
set(CMAKE_FIND_ROOT_PATH "${root}")
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)

# The loader's path is that of the cross compiler's package, since /lib has none. `qemu-aarch64 -L` would
# do without, but hides the root directory from programs that inspect it.
set(system /usr/aarch64-linux-gnu)
# The emulator names this folder, and no program has to.
list(APPEND CMAKE_PLATFORM_IMPLICIT_LINK_DIRECTORIES "${root}/usr/lib/aarch64-linux-gnu")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${root}/usr/lib/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -E "LD_LIBRARY_PATH=${system}/lib:${root}/usr/lib/aarch64-linux-gnu")
if(OCTAVO_AARCH64_RELEASE)
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -L "${system}")  # enough for completion and manual pages
else()
  string(PREPEND CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--dynamic-linker=${system}/lib/ld-linux-aarch64.so.1 ")
endif()
