# Included by project() when pip builds the wheel: without OCTAVO_TORCH_ROOT, the torch of the
# building Python gives the headers.
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
      "found \"${octavo_torch_found}\"; run samples/torch_env/install.sh wheel and build with "
      ".cache/torch/bin/python, or install torch 2.11 or later")
  endif()
  set(OCTAVO_TORCH_ROOT "${octavo_torch_found}" CACHE PATH "The torch folder of an installed wheel")
endif()
