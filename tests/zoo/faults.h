/* The ways in which fake_plugin.c can be broken; each becomes one library of its own.
 *
 * tests/zoo/CMakeLists.txt reads the names from here, so a new line is a new library.
 */
#ifndef OCTAVO_TESTS_ZOO_FAULTS_H
#define OCTAVO_TESTS_ZOO_FAULTS_H

#define FAULT_GOOD 0 /* nothing is wrong */
/* At load. */
#define FAULT_NO_SYMBOL 1
#define FAULT_SYMBOL_V2 2
#define FAULT_UNDEFINED_SYMBOL 3
/* In the plugin's table. */
#define FAULT_ABI_MAJOR 10
#define FAULT_ABI_MINOR 11
#define FAULT_PLUGIN_KIND 12
#define FAULT_PLUGIN_SIZE 13
#define FAULT_NULL_GET_INTERFACE 14
#define FAULT_QUERY_FAILS 15
#define FAULT_QUERY_VERSION 16
#define FAULT_QUERY_NO_TABLE 17
#define FAULT_OTHER_ID 18
/* In the backend's table. */
#define FAULT_NO_BACKEND 20
#define FAULT_BACKEND_KIND 21
#define FAULT_SHORT_BACKEND 22
#define FAULT_NULL_FUNCTIONS 23
/* In setup. */
#define FAULT_LIST_OPTIONS 30
#define FAULT_NAMELESS_OPTION 31
#define FAULT_CHECK_DECLINES 32
#define FAULT_CHECK_FAILS 33
#define FAULT_OPEN_FAILS 34
#define FAULT_OPEN_NULL 35
#define FAULT_PARAMETER_ID 36
#define FAULT_LINEAR_ID 37
#define FAULT_PARAMETER_DECLINES 38
/* In seal. */
#define FAULT_SEAL_FAILS 40
#define FAULT_SEAL_IGNORES_SINK 41
#define FAULT_SLOT_ACCESS 42
#define FAULT_SLOT_ID 43
#define FAULT_SLOT_SHAPE 44
#define FAULT_SLOT_HUGE 45
#define FAULT_SLOT_DTYPE 46
#define FAULT_SLOT_ACCUMULATE 47
#define FAULT_SLOT_INITIAL 48
#define FAULT_USE_SLOT 50
#define FAULT_USE_COLUMNS 51
#define FAULT_USE_FIRST 52
#define FAULT_USE_OWNER 53
#define FAULT_USE_OWNER_KIND 54
#define FAULT_PLAN_FAILS 55
#define FAULT_PLAN_ROWS 56
/* In the reduction of gradients. */
#define FAULT_COLLECTIVE 60
#define FAULT_STAGE_FAILS 61

#endif
