// The core keys of the configuration. `key` names each with the type of its value, for
// Config::operator[]; config_keys() has the rest of a row: initial value and check.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/config/toml.h"

namespace octavo {

template <typename T>
struct Key {
  const char *name;
};

namespace key {

using Text = Key<std::string>;
using List = Key<std::vector<std::string>>;
using Flag = Key<bool>;
using Number = Key<int64_t>;

inline constexpr Number kSchema{"schema"};
inline constexpr Text kMixedPrecision{"mixed_precision"};
inline constexpr Text kBackend{"fp8.backend"};
inline constexpr List kPreference{"fp8.preference"};
inline constexpr List kFallback{"fp8.fallback"};
inline constexpr Flag kNative{"fp8.require.native"};  // FP8 units in the hardware
// Equal bits for equal inputs, for any number of threads.
inline constexpr Flag kDeterministic{"fp8.require.deterministic"};
inline constexpr Flag kGraphCapture{"fp8.require.graph_capture"};  // calls can be captured
inline constexpr Text kSpeed{"fp8.require.speed"};                 // the least class
inline constexpr List kEncodings{"fp8.require.encodings"};
inline constexpr List kScaling{"fp8.require.scaling"};
inline constexpr List kRecipes{"fp8.require.recipes"};  // values of the backend's option "recipe"
inline constexpr List kSkip{"layers.skip"};
inline constexpr Text kMinGain{"layers.min_gain"};
inline constexpr Text kDevice{"device.kind"};
inline constexpr Text kKernels{"device.kernels"};
inline constexpr List kLayers{"device.layers"};
inline constexpr List kPluginPath{"plugins.path"};
inline constexpr Text kTrust{"plugins.trust"};
inline constexpr List kPins{"plugins.pins"};
inline constexpr List kKeys{"plugins.keys"};
inline constexpr Flag kLocked{"plugins.locked"};
inline constexpr Text kProbe{"plugins.probe"};
inline constexpr Number kProbeTimeout{"plugins.probe_timeout_ms"};
// What carries the bytes between ranks of a host that leaves it to Octavo, and the seconds that one
// operation may take.
inline constexpr Text kEngine{"distributed.engine"};
inline constexpr Number kTimeout{"distributed.timeout_s"};
inline constexpr Text kCheckpointRunId{"checkpoint.run_id"};  // empty: one of this process
inline constexpr Text kCheckpointHash{"checkpoint.hash"};     // of tensors
inline constexpr Text kTraceDirectory{"trace.directory"};     // empty: no trace
inline constexpr Number kTraceFirstStep{"trace.first_step"};
inline constexpr Number kTraceSteps{"trace.steps"};

}  // namespace key

// The integers that a key accepts, and how messages name them.
struct KeyRange {
  int64_t low = 0;
  int64_t high = 0;
  std::string words;
};

struct ConfigKey {
  const char *name;
  const char *help;  // what it means, for an editor
  TomlValue initial;
  std::vector<std::string> choices;  // of texts and of the elements of lists; empty: any
  KeyRange range;                    // of integers
};

// In the order of reports.
const std::vector<ConfigKey> &config_keys();

// Whether core keys begin with `name` and a dot.
bool is_key_table(const std::string &name);

// The value of a core key as it is kept; one text is a list of one where the key is a list. Throws
// Failure(OCTAVO_INVALID) for another type and for a value that fails the key's check. `where`
// opens the message.
TomlValue checked_value(const std::string &name, TomlValue value, const std::string &origin,
                        const std::string &where);

// Throws Failure(OCTAVO_INVALID), which names the core key that is nearest.
[[noreturn]] void refuse_unknown_key(const std::string &name, const std::string &origin,
                                     const std::string &where);

}  // namespace octavo
