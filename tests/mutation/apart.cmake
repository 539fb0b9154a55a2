# Read at the end of project() of a scratch build (scratch.py): each source of OCTAVO_MUTATED is a compiler call of its own,
# in place of one a room.
list(TRANSFORM OCTAVO_MUTATED PREPEND "${CMAKE_SOURCE_DIR}/")
cmake_language(DEFER CALL set_source_files_properties ${OCTAVO_MUTATED} DIRECTORY sdk
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
