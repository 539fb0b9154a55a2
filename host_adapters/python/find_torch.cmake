# Included by project() when pip builds the wheel: without OCTAVO_TORCH_ROOT, the torch of the
# building Python gives the headers; its jaxlib, where it has one, those of the handlers for JAX.
if(NOT OCTAVO_TORCH_ROOT)
  if(DEFINED ENV{OCTAVO_TORCH_ROOT})
    set(octavo_torch_found "$ENV{OCTAVO_TORCH_ROOT}")
  else()
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c
        "from importlib.util import find_spec as find; s = find('torch')\nif s: print(s.submodule_search_locations[0])"
      OUTPUT_VARIABLE octavo_torch_found OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  if(NOT IS_DIRECTORY "${octavo_torch_found}/include")
    message(FATAL_ERROR
      "expected a torch package with include/ in OCTAVO_TORCH_ROOT or in ${Python3_EXECUTABLE}, "
      "found \"${octavo_torch_found}\"; run install.sh, or install torch 2.11 or later")
  endif()
  set(OCTAVO_TORCH_ROOT "${octavo_torch_found}" CACHE PATH "The torch folder of an installed wheel")
endif()
if(NOT DEFINED OCTAVO_BUILD_JAX)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -c
      "from importlib.util import find_spec as find; s = find('jaxlib')\nif s: print(s.submodule_search_locations[0])"
    OUTPUT_VARIABLE octavo_jaxlib_found OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(IS_DIRECTORY "${octavo_jaxlib_found}/include")
    set(OCTAVO_BUILD_JAX ON CACHE BOOL "Build the XLA handlers for JAX")
    set(OCTAVO_JAX_INCLUDE "${octavo_jaxlib_found}/include" CACHE PATH "XLA's FFI headers")
  else()
    message(STATUS "octavo.jax is not in this wheel: ${Python3_EXECUTABLE} has no jaxlib")
  endif()
endif()
