"""The zoo of `octavo plugin verify`: fault of the subject, the check that finds it, and what its line says."""
import re

FORWARD = r"linear_forward of 'wide' \(M = 7, x f32, y f32\)"
# What a verb does to its process. One run of `purity` calls forward first on 'wide'.
PROCESS = [
    ("kCrashes", "purity", r"signal 6 .* in " + FORWARD),
    ("kExits", "purity", r"exit code 0 in .*before the check was done"),
    ("kExitsAtOnce", "purity", r"exit code 0 in " + FORWARD + ", before the check was done"),
    ("kExitsAsSkipped", "purity", r"exit code 3 in " + FORWARD),
    ("kGoesOnTwice", "purity", r"a second process, which the plugin forked|left processes running: 1"),
    ("kLeavesProcess", "purity", r"left processes running: 1"),
    ("kKillsItself", "purity", r"signal 9 .* in " + FORWARD),
    ("kKillsGroup", "purity", r"signal 15 .* in " + FORWARD),
    ("kHangs", "purity", r"still running after 2 s, in " + FORWARD),
    ("kStops", "purity", r"still running after 2 s, in " + FORWARD),
    ("kForgesRecord", "purity", r"no record came through the suite's pipe"),
    ("kClosesAll", "purity", r"descriptor .* was closed or replaced"),
    ("kRedirectsAll", "purity", r"before the check was done|was closed or replaced"),
    ("kExitsLate", "purity", r"exit code 5 in the destructors"),
    ("kCrashesLate", "purity", r"signal 6 .* in the destructors"),
    ("kThrows", "purity", r"an exception ended " + FORWARD),
    ("kReadsPast", "purity", r"signal 11 .* in " + FORWARD),
    ("kOverflowsStack", "purity", r"signal 11 .* in " + FORWARD),
]
# What a verb changes in its process: `process` names the verb and the change.
CHANGES = {
    "kChangesRounding": "changes how floating-point numbers are rounded",
    "kFlushesDenormals": "changes how floating-point numbers are rounded or flushed",
    "kChangesLocale": "changes the locale",
    "kChangesUmask": "changes the mode of new files",
    "kChangesDirectory": "changes the current directory to /proc",
    "kChangesEnvironment": "changes the environment variable OMP_NUM_THREADS",
    "kHandlesSignal": "changes the handler of signal 10",
    "kBlocksSignal": "changes whether signal 2 is blocked",
    "kLeavesThread": "leaves 1 threads running",
    "kLeavesDescriptor": "leaves a descriptor open: /dev/zero",
    "kClosesStdin": "closes descriptor 0",
    "kRedirectsStdout": "replaces descriptor 1",
    "kMakesGlobal": "makes the symbols of .*subject.so visible to all libraries",
    "kMakesOtherGlobal": "makes the symbols of .*libresolv.so.* visible to all libraries",
    "kPrints": "prints on stdout, which is its host's: .subject: forward",
}
BENDS = [(fault, "process", "in linear_forward: .*" + says) for fault, says in CHANGES.items()]
# The same while the library is loaded; the fault's name begins with "load ".
LOADING = r"while it is loaded"
LOAD = [("load " + fault, "process", f"{LOADING}: .*{says}") for fault, says in CHANGES.items()
        if fault not in ("kMakesGlobal", "kClosesStdin")]  # a file of liboctavo takes the number 0
LOAD += [
    ("load kCrashes", "load", r"signal 6 .* in the plugin's library"),
    ("load kExits", "load", r"exit code 0 in the plugin's library"),
    ("load kExitsAtOnce", "load", r"exit code 0 in the plugin's library"),
    ("load kExitsAsSkipped", "load", r"exit code 3 in the plugin's library"),
    ("load kGoesOnTwice", "load", r"a second process, which the plugin forked|left processes running: 1"),
    ("load kLeavesProcess", "load", r"left processes running: 1"),
    ("load kKillsGroup", "load", r"signal 15 .* in the plugin's library"),
    ("load kHangs", "load", r"still running after .* in the plugin's library"),
    ("load kForgesRecord", "load", r"no record came through the suite's pipe"),
    ("load kExitsLate", "load", r"exit code 5 in the destructors"),
]
# Libraries of fake_plugin.c, one a fault of faults.h; the fault's name begins with "fake ".
LOADED = r"in the plugin's library"
FAKE = [("fake " + fault, "load", says) for fault, says in {
    "no_symbol": "expected the symbol octavo_plugin_query_rc4, found none",
    "symbol_v2": "built for ABI major 2",
    "symbol_candidate": "built for a release candidate",
    "undefined_symbol": "undefined symbol: octavo_fake_defined_nowhere",
    "abi_major": "needs ABI 2.0",
    "abi_minor": "needs ABI 1.7",
    "plugin_kind": "its table is not an octavo_plugin: size 56, kind 4",
    "plugin_size": "its table is not an octavo_plugin: size 48",
    "null_get_interface": "its get_interface is null",
    "query_fails": "answered status 7 and no table",
    "query_no_table": "answered status 0 and no table",
    "query_both": "answered status 7; this host",
    "other_id": 'expected the id "fake" of its manifest, found "imposter"',
    "no_backend": "expected the interface octavo.backend/1, found none",
    "backend_kind": "found a table of another kind",
    "wild_option": "signal 11 .* " + LOADED,
    "list_options": "list_options failed with status 7",
    "nameless_option": "list_options failed with status 2",
    "check_declines": "the fake needs a full moon",
    "check_fails": "check_session failed with status 7",
    "query_crashes": "signal 7 .* " + LOADED,
    "query_hangs": "still running after .* " + LOADED,
    "interface_crashes": "signal 8 .* " + LOADED,
    "options_crash": "signal 4 .* " + LOADED,
}.items()] + [("fake not_utf8", "texts", "a verdict's text is no UTF-8"),
              ("fake good", "contract.table", "option count: expected default = 4, found 5")]
# What liboctavo refuses at seal.
FAKE += [("fake " + fault, "contract.slots", "liboctavo refuses what seal emits: .*" + says) for fault, says in {
    "slot_flag": "flag",
    "slot_combine": "combine",
    "slot_shard": "shard",
    "slot_dtype": "unknown dtype",
    "slot_initial_large": "an initial value that its dtype can hold",
    "slot_initial_nan": "an initial value that its dtype can hold",
    "slot_scale": "scale_slot",
    "plan_flag": "flag",
    "plan_declines": "all three declined",
}.items()]
# Faults that no check finds, with the reason.
NOT_FOUND = {
    "table_size": ("a table states a size of 4e9", "legal: a table of a later minor version is larger"),
    "borrowed_symbol": ("of the C++ library, which it does not need", "the program that verifies has that library"),
}
# What its manifest states of the options, where that is the fault.
STATED = {"good": '[options.count]\ndefault = 5\nlow = 1\nhelp = "an option"\n'}
# The subject computes on kernels of its own alone; on those of this machine its products fail, as do casts with a
# scale at an odd address, and these checks with them. The suite's own test runs their cases.
NEED_PRODUCTS = {"access", "contract.options", "identity.splits", "purity.arguments", "failures", "extents", "late",
                 "nonfinite", "nonfinite.nan", "numerics", "reduction", "fused", "grouped"}
# For the same reason, or since a plugin has one table.
NOT_AS_PLUGIN = {"kUnsteadyOptions", "kWritesStepElsewhere", "kFirstCallFlag", "kSkipWeightIgnored",
                 "kBackwardNeedsOrder", "kSharedAcrossSessions", "kEmptyKeepsDw", "kCurrentScaling", "kDwOverwrites",
                 "kPaddingShows", "kCurrentCallMember", "kOneRowOff", "kManyRows", "kManyCalls", "kBackwardUsesLastM",
                 "kTailRows", "kTiedOverwrites", "kSavedByAddress", "kDependsOnAddress", "kDbTwice",
                 "kWeightOfForward", "kKeepsAddress", "kFusedOfNoKind", "kFusedLacksFunction", "kListsOn",
                 "kNarrowDwOverwrites", "kInterfacesByPrefix", "kTakesAnyHost"}
# liboctavo reads the text first, and may end there.
OTHER_TEXT = {"kTextHuge": ""}


def semantic(source):
    """The cases of the suite's own test: check, fault, what the failure says."""
    cases = re.findall(r'\{"([a-z0-9.]+)",\s*(k\w+),\s*"((?:[^"\\]|\\.)*)"', source)
    return [(fault, check, OTHER_TEXT.get(fault, re.escape(says))) for check, fault, says in cases
            if fault not in NOT_AS_PLUGIN and check not in NEED_PRODUCTS]


def all_cases(source):
    return PROCESS + BENDS + LOAD + FAKE + semantic(source)


def sample(source):
    """Ten, of every kind."""
    return PROCESS[1:3] + PROCESS[8:9] + BENDS[:2] + LOAD[:1] + FAKE[:1] + semantic(source)[:3]
