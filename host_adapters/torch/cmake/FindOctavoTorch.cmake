# FindOctavoTorch: the parts of a torch wheel that a CPU host links, and nothing of CUDA.
#
# torch's own package file drags libtorch_cuda and its whole chain in and fails without a CUDA
# compiler; libtorch.so does the same at link time. This module takes libtorch_cpu and libc10 only.
#
#   OCTAVO_TORCH_ROOT    the `torch` folder of an installed wheel (it holds include/ and lib/)
#   OCTAVO_CUDA_LIBDIR   the folder of libcudart.so.13 and libcupti.so.13, which libtorch_cpu of a CUDA
#                        wheel needs to load; found next to the wheel or in a toolkit when not given
#
# Targets
#   OctavoTorch::cpu     full LibTorch, CPU side; rebuilt for each minor version of torch
#   OctavoTorch::stable  libraries of ops on the stable ABI: one binary for torch 2.11 and later. The only one
#                        when cross-compiling: its headers are the same for every processor
# Variables: OctavoTorch_FOUND, OctavoTorch_VERSION, OctavoTorch_INCLUDE_DIR, OctavoTorch_LIBRARY_DIR
include(FindPackageHandleStandardArgs)

find_path(OctavoTorch_INCLUDE_DIR torch/headeronly/version.h
          HINTS "${OCTAVO_TORCH_ROOT}/include" NO_DEFAULT_PATH)
get_filename_component(OctavoTorch_PREFIX "${OctavoTorch_INCLUDE_DIR}" DIRECTORY)
set(OctavoTorch_LIBRARY_DIR "${OctavoTorch_PREFIX}/lib")
set(OctavoTorch_LIBRARIES)
if(NOT CMAKE_CROSSCOMPILING)
  find_library(OctavoTorch_CPU_LIBRARY torch_cpu HINTS "${OctavoTorch_LIBRARY_DIR}" NO_DEFAULT_PATH)
  find_library(OctavoTorch_C10_LIBRARY c10 HINTS "${OctavoTorch_LIBRARY_DIR}" NO_DEFAULT_PATH)
  set(OctavoTorch_LIBRARIES OctavoTorch_CPU_LIBRARY OctavoTorch_C10_LIBRARY)
endif()
if(OctavoTorch_INCLUDE_DIR)
  file(STRINGS "${OctavoTorch_INCLUDE_DIR}/torch/headeronly/version.h" OctavoTorch_VERSION_LINES
       REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM OctavoTorch_VERSION_LINES REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN OctavoTorch_VERSION_LINES "." OctavoTorch_VERSION)
endif()
find_package_handle_standard_args(OctavoTorch
  REQUIRED_VARS ${OctavoTorch_LIBRARIES} OctavoTorch_INCLUDE_DIR
  VERSION_VAR OctavoTorch_VERSION
  REASON_FAILURE_MESSAGE
    "expected the torch folder of a wheel (2.11 or later) in OCTAVO_TORCH_ROOT, found \"${OCTAVO_TORCH_ROOT}\": \
install torch with pip and give -DOCTAVO_TORCH_ROOT=<site-packages>/torch")

if(OctavoTorch_FOUND AND CMAKE_CROSSCOMPILING AND NOT TARGET OctavoTorch::torch_cpu_lib)
  # The symbols are bound when the library is loaded, so the linker needs the name of torch's library alone.
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/torch_cpu.c" CONTENT "typedef int octavo_torch_cpu;\n")
  add_library(octavo_torch_cpu_name SHARED "${CMAKE_CURRENT_BINARY_DIR}/torch_cpu.c")
  set_target_properties(octavo_torch_cpu_name PROPERTIES
    OUTPUT_NAME torch_cpu LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/torch_cpu")
  add_library(OctavoTorch::torch_cpu_lib ALIAS octavo_torch_cpu_name)
elseif(OctavoTorch_FOUND AND NOT TARGET OctavoTorch::torch_cpu_lib)
  # The wheel's own neighbour comes first: there the loader finds it without any help.
  find_path(OCTAVO_CUDA_LIBDIR libcudart.so.13
            HINTS "${OctavoTorch_PREFIX}/../nvidia/cu13/lib" "$ENV{CUDA_HOME}/lib64"
            PATHS /usr/local/cuda/lib64 /usr/local/cuda/lib
            NO_CMAKE_FIND_ROOT_PATH)

  add_library(OctavoTorch::torch_cpu_lib SHARED IMPORTED)
  set_target_properties(OctavoTorch::torch_cpu_lib PROPERTIES
    IMPORTED_LOCATION "${OctavoTorch_CPU_LIBRARY}" IMPORTED_SONAME libtorch_cpu.so)
  add_library(OctavoTorch::c10 SHARED IMPORTED)
  set_target_properties(OctavoTorch::c10 PROPERTIES
    IMPORTED_LOCATION "${OctavoTorch_C10_LIBRARY}" IMPORTED_SONAME libc10.so)

  add_library(OctavoTorch::cpu INTERFACE IMPORTED)
  target_include_directories(OctavoTorch::cpu SYSTEM INTERFACE
    "${OctavoTorch_INCLUDE_DIR}" "${OctavoTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_compile_features(OctavoTorch::cpu INTERFACE cxx_std_20)
  target_compile_definitions(OctavoTorch::cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(OctavoTorch::cpu INTERFACE OctavoTorch::torch_cpu_lib OctavoTorch::c10)
  # DT_RPATH and not DT_RUNPATH: only the former is inherited by libtorch_cpu. Symbols of libraries
  # that libtorch_cpu loads are none of the program's business.
  target_link_options(OctavoTorch::cpu INTERFACE
    "LINKER:--disable-new-dtags" "LINKER:--allow-shlib-undefined")
  if(OCTAVO_CUDA_LIBDIR)
    # Programs name its folder, since libtorch_cpu inherits from them; a library that is installed
    # elsewhere must not.
    target_link_options(OctavoTorch::cpu INTERFACE
      "$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:-rpath,${OCTAVO_CUDA_LIBDIR}>"
      "LINKER:-rpath-link,${OCTAVO_CUDA_LIBDIR}")
  endif()
endif()

if(OctavoTorch_FOUND AND NOT TARGET OctavoTorch::stable)
  # torch is loaded RTLD_LOCAL, so libtorch_cpu must be NEEDED by name although nothing of it is
  # bound at link time; no RPATH, since the loaded soname satisfies it in every version.
  add_library(OctavoTorch::stable INTERFACE IMPORTED)
  target_include_directories(OctavoTorch::stable SYSTEM INTERFACE "${OctavoTorch_INCLUDE_DIR}")
  target_compile_features(OctavoTorch::stable INTERFACE cxx_std_20)
  target_compile_definitions(OctavoTorch::stable INTERFACE TORCH_TARGET_VERSION=0x020b000000000000)
  target_link_libraries(OctavoTorch::stable INTERFACE
    "-Wl,--push-state,--no-as-needed" OctavoTorch::torch_cpu_lib
    "-Wl,--pop-state,--allow-shlib-undefined")
endif()
mark_as_advanced(OctavoTorch_INCLUDE_DIR OctavoTorch_CPU_LIBRARY OctavoTorch_C10_LIBRARY
                 OCTAVO_CUDA_LIBDIR)
