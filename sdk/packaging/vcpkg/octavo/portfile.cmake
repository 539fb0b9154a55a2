# Octavo for vcpkg, built from the checkout that holds this port:
#
#   vcpkg install octavo --overlay-ports=<checkout>/sdk/packaging/vcpkg
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)
if(NOT EXISTS "${SOURCE_PATH}/sdk/include/octavo/abi.h")
  message(FATAL_ERROR "expected the port in sdk/packaging/vcpkg of a checkout of Octavo, found no "
                      "${SOURCE_PATH}/sdk/include/octavo/abi.h")
endif()
# liboctavo and the plugins are shared libraries whatever the triplet says: one liboctavo in a process. The C ABI is the same
# for every build type.
set(VCPKG_BUILD_TYPE release)
set(VCPKG_POLICY_DLLS_IN_STATIC_LIBRARY enabled)
# The program finds liboctavo, and liboctavo its plugins, by their places below one prefix. The manifests state the hashes of
# the plugins, so nothing may write into these afterwards.
set(VCPKG_POLICY_ALLOW_EXES_IN_BIN enabled)
set(VCPKG_POLICY_MISMATCHED_NUMBER_OF_BINARIES enabled)
set(VCPKG_FIXUP_ELF_RPATH OFF)

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS
  -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DOCTAVO_BUILD_SAMPLES=OFF -DOCTAVO_BUILD_TESTS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/octavo)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
