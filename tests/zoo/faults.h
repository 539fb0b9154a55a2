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
#define FAULT_SYMBOL_CANDIDATE 107
#define FAULT_UNDEFINED_SYMBOL 3
#define FAULT_BORROWED_SYMBOL 4 /* of the C++ library, which it does not need */
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
#define FAULT_QUERY_BOTH 19   /* a table, and a status that says there is none */
#define FAULT_QUERY_SPEAKS 28 /* to the host, and asks it for an extension */
/* In the backend's table. */
#define FAULT_NO_BACKEND 20
#define FAULT_BACKEND_KIND 21
#define FAULT_SHORT_BACKEND 22
#define FAULT_NULL_FUNCTIONS 23
#define FAULT_NULL_FORWARD 104 /* a required function */
#define FAULT_NULL_STAGE 105   /* of octavo.gradients/1 */
#define FAULT_TARGET_MINOR 106 /* built for a later minor, so its entry refuses */
#define FAULT_FIELD 24         /* what FAKE_FIELD names: "<table> <offset> <bytes> <number>" */
#define FAULT_WILD_OPTION 25   /* a name at an address that is no memory */
#define FAULT_HUGE_TEXT 26     /* a name of 1 GiB that is not there */
#define FAULT_NOT_UTF8 27      /* in every text that a report shows */
#define FAULT_TERMINAL 29      /* commands to a terminal in every text */
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
#define FAULT_CHECK_SILENT 39 /* declines in one word */
#define FAULT_VERDICT_HUGE 91 /* its text states 2^40 bytes */
#define FAULT_OPTION_NEWLINE 92
#define FAULT_CHECK_NO_VERDICT 93
#define FAULT_CHECK_DECISION 94     /* 7, which is none */
#define FAULT_PARAMETER_DECISION 95 /* likewise */
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
#define FAULT_SLOT_INITIAL_LARGE 57
#define FAULT_SLOT_INITIAL_NAN 58
#define FAULT_USE_RESERVED 127 /* 1, as a later minor might */
#define FAULT_SLOT_NAME 59
#define FAULT_SLOT_FLAG 111 /* of a later minor, as the next seven */
#define FAULT_SLOT_COMBINE 112
#define FAULT_SLOT_SHARD 113
#define FAULT_SLOT_OWNER_KIND 114
#define FAULT_SLOT_OWNER 115
#define FAULT_PLAN_FLAG 116
#define FAULT_PLAN_DECLINES 125 /* x of every dtype */
#define FAULT_PLAN_GRADIENT 117
#define FAULT_SLOT_ROLE_GRANULARITY 118 /* which a reader of today may keep as they are */
#define FAULT_SLOT_UNCOMBINED 119       /* REDUCE, without a way to combine */
#define FAULT_SLOT_ACCUMULATE_UNCOMBINED 120
#define FAULT_SLOT_SCALE 121         /* scale_slot 0, which nobody chose */
#define FAULT_PLAN_GRADIENT_SLOT 122 /* SLOT, without such a slot */
#define FAULT_OWNED_WEIGHT 123       /* in slots, without an interface that steps it */
#define FAULT_OWNED_WEIGHT_ONLY 124  /* with one, and a gradient that is the host's */
#define FAULT_SLOT_KEYS 126          /* none: names whose keys meet, counter, counter@2, counter */
#define FAULT_PLAN_FAILS 55
#define FAULT_PLAN_HUGE 96         /* 2^47 bytes and one more */
#define FAULT_PLAN_NEGATIVE 97     /* -16 bytes, which wraps around */
#define FAULT_PLAN_ROW_MULTIPLE 98 /* 2^63 */
#define FAULT_PLAN_WEIGHT 99       /* 2^60 bytes for quantize_weight */
#define FAULT_PLAN_MEMORY 100      /* 2^40 bytes, which is allowed, and not there */
#define FAULT_PLAN_ROWS 56
#define FAULT_FUSED_ROWS 108    /* octavo.fused/1 states a row_multiple of 0 */
#define FAULT_FUSED_HUGE 109    /* octavo.fused/1 states 2^47 bytes and one more */
#define FAULT_FUSED_KEEPS_X 110 /* the same, for linears that it cannot fuse */
/* In the reduction of gradients. */
#define FAULT_COLLECTIVE 60
#define FAULT_STAGE_FAILS 61
/* In the process that loads it: what the helper octavo-probe is for. */
#define FAULT_LOAD_CRASHES 70
#define FAULT_LOAD_ABORTS 71
#define FAULT_LOAD_EXITS 72
#define FAULT_LOAD_EXITS_AT_ONCE 73
#define FAULT_LOAD_HANGS 74
#define FAULT_LOAD_STOPS 75
#define FAULT_LOAD_ALLOCATES 76
#define FAULT_LOAD_FORKS 77
#define FAULT_LOAD_BENDS 78
#define FAULT_LOAD_WRITES 79
#define FAULT_LOAD_CLOSES 80
#define FAULT_QUERY_CRASHES 81
#define FAULT_QUERY_HANGS 82
#define FAULT_INTERFACE_CRASHES 83
#define FAULT_OPTIONS_CRASH 84
#define FAULT_FORWARD_CRASHES 85
#define FAULT_FORWARD_NOT_FINITE 86
#define FAULT_FORWARD_VARIES 87
#define FAULT_FORWARD_OVERRUNS 88
#define FAULT_FORWARD_FAILS 101
#define FAULT_FORWARD_DOES_NOTHING 102
#define FAULT_OPEN_FORKS 103
#define FAULT_EXIT_CRASHES 89
#define FAULT_LOAD_SECOND 90 /* opens the library that FAKE_SECOND names */

#endif
