"""The zoo of `octavo verify`: fault of the subject, the check that finds it, and what its line says."""

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
    ("kHangs", "purity", r"still running after 4 s, in " + FORWARD),
    ("kStops", "purity", r"still running after 4 s, in " + FORWARD),
    ("kForgesRecord", "purity", r"no record came through the suite's pipe"),
    ("kClosesAll", "purity", r"descriptor .* was closed or replaced"),
    ("kRedirectsAll", "purity", r"before the check was done|was closed or replaced"),
    ("kExitsLate", "purity", r"exit code 5 in the destructors"),
    ("kCrashesLate", "purity", r"signal 6 .* in the destructors"),
    ("kThrows", "purity", r"an exception ended " + FORWARD),
    ("kOverflowsStack", "purity", r"signal 11 .* in " + FORWARD),
]
ALL = PROCESS
SAMPLE = PROCESS[1:3]
