// libFuzzer target of the helper's records: any bytes in pieces of any size.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "sdk/src/base/utf8.h"
#include "sdk/src/probe/probe_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = size_t{data[0]} + 1;
  const std::string_view bytes(reinterpret_cast<const char *>(data) + 1, size - 1);
  octavo::ProbeReader reader;
  for (size_t at = 0; at < bytes.size(); at += piece)
    if (!reader.feed(bytes.substr(at, piece))) break;
  const octavo::ProbeAnswer &answer = reader.answer();
  for (const auto *texts : {&answer.warnings, &answer.notes}) {
    if (texts->size() > octavo::kMaxProbeTexts) __builtin_trap();
    for (const std::string &text : *texts)
      if (!octavo::is_utf8(text) || text.size() > octavo::kMaxProbeText) __builtin_trap();
  }
  return 0;
}
