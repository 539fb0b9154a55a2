// Missing and unknown texts are refused with the name of the file.
#include "sdk/src/checkpoint/checkpoint_texts.h"

#include <charconv>

namespace octavo {

const std::string &required_text(const CheckpointHeader &header, const std::string &key,
                                 const std::string &where) {
  const std::string *text = header.text(key);
  if (text == nullptr)
    fail_checkpoint(
        OCTAVO_INVALID, where, "header: expected \"", key,
        "\" in the file's metadata, found none; only files of octavo_store_save can be loaded");
  return *text;
}

uint64_t number_text(const CheckpointHeader &header, const char *key, const std::string &where) {
  const std::string &text = required_text(header, key, where);
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    fail_checkpoint(OCTAVO_INVALID, where, "expected a number as ", key, ", found \"", text,
                    "\"; the file is damaged: restore it");
  return value;
}

std::string schema_of(HashKind kind) {
  return kind == HashKind::kXxh3 ? "3" : "2";
}

std::string hash_key(HashKind kind, const std::string &tensor) {
  return (kind == HashKind::kXxh3 ? "octavo.xxh3_128." : "octavo.blake2b.") + tensor;
}

HashKind hash_kind(const CheckpointHeader &header, const std::string &where) {
  const std::string &schema = required_text(header, kSchema, where);
  for (const HashKind kind : {HashKind::kXxh3, HashKind::kBlake2b})
    if (schema == schema_of(kind)) return kind;
  const std::string *version = header.text(kVersion);
  fail_checkpoint(OCTAVO_VERSION, where, "header: expected checkpoint schema 2 or 3, found \"",
                  schema, schema == "1" ? "\", whose tensors have no hashes" : "\"",
                  "; load it with the version of Octavo that wrote it, ",
                  version == nullptr ? "unknown" : *version, ", or load another checkpoint");
}

}  // namespace octavo
