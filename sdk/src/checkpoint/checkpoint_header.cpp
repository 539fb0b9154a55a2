// Reads the JSON as a stream of events, so that nothing that the format does not know is built up.
#include "sdk/src/checkpoint/checkpoint_header.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <variant>

#include "octavo/tensor.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/json.h"

namespace octavo {

// The arithmetic is that of libsodium and of xxHash, whose header is compiled in.

namespace {

std::string hex_of(const unsigned char *bytes, size_t count) {
  std::string digits(2 * count + 1, '\0');  // libsodium ends it with a zero byte
  sodium_bin2hex(digits.data(), digits.size(), bytes, count);
  digits.pop_back();
  return digits;
}

}  // namespace

Blake2b::Blake2b() {
  // Without it libsodium takes the code that runs on every processor.
  static const bool is_ready = sodium_init() >= 0;
  static_cast<void>(is_ready);
  crypto_generichash_init(&state_, nullptr, 0, kBlake2bDigits / 2);
}

void Blake2b::add(const void *from, uint64_t bytes) {
  crypto_generichash_update(&state_, static_cast<const unsigned char *>(from), bytes);
}

std::string Blake2b::hex() {
  unsigned char hash[kBlake2bDigits / 2];
  crypto_generichash_final(&state_, hash, sizeof(hash));
  return hex_of(hash, sizeof(hash));
}

const char *hash_name(HashKind kind) {
  return kind == HashKind::kXxh3 ? "XXH3" : "BLAKE2b";
}

struct TensorHash::State {
  class Xxh3 {
   public:
    Xxh3() { XXH3_128bits_reset(&state_); }
    void add(const void *from, uint64_t bytes) { XXH3_128bits_update(&state_, from, bytes); }
    std::string hex() {
      XXH128_canonical_t bytes;
      XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(&state_));
      return hex_of(bytes.digest, sizeof(bytes.digest));
    }

   private:
    XXH3_state_t state_;
  };

  std::variant<Xxh3, Blake2b> hash;
};

TensorHash::TensorHash(HashKind kind) : state_(std::make_unique<State>()) {
  if (kind == HashKind::kBlake2b) state_->hash.emplace<Blake2b>();
}

TensorHash::~TensorHash() = default;

void TensorHash::add(const void *from, uint64_t bytes) {
  std::visit([&](auto &hash) { hash.add(from, bytes); }, state_->hash);
}

std::string TensorHash::hex() {
  return std::visit([](auto &hash) { return hash.hex(); }, state_->hash);
}

std::string blake2b_of(std::string_view bytes) {
  Blake2b hash;
  hash.add(bytes.data(), bytes.size());
  return hash.hex();
}

std::string no_blake2b() {
  return std::string(kBlake2bDigits, '0');
}

std::optional<Seal> seal_of(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos || text.size() - at - mark.size() < kBlake2bDigits) return {};
  const size_t first = at + mark.size();
  Blake2b hash;
  hash.add(text.data(), first);
  hash.add(no_blake2b().data(), kBlake2bDigits);
  hash.add(text.data() + first + kBlake2bDigits, text.size() - first - kBlake2bDigits);
  return Seal{std::string(text.substr(first, kBlake2bDigits)), hash.hex()};
}

bool seal(std::string &text, std::string_view mark) {
  const std::optional<Seal> found = seal_of(text, mark);
  if (!found) return false;
  text.replace(text.find(mark) + mark.size(), kBlake2bDigits, found->computed);
  return true;
}

namespace {

constexpr const char *kMetadata = "__metadata__";

struct Dtype {
  uint32_t id;
  const char *name;
};
constexpr Dtype kDtypes[] = {{OCTAVO_F32, "F32"},        {OCTAVO_I32, "I32"},
                             {OCTAVO_F16, "F16"},        {OCTAVO_BF16, "BF16"},
                             {OCTAVO_E4M3FN, "F8_E4M3"}, {OCTAVO_E5M2, "F8_E5M2"},
                             {OCTAVO_U8, "U8"},          {OCTAVO_E8M0FNU, "F8_E8M0"}};

template <typename... Part>
[[noreturn]] void fail(const std::string &where, const Part &...text) {
  throw Failure(OCTAVO_INVALID, kCheckpointDomain, where, ": ", text...,
                "; the file is damaged: restore it");
}

// {"__metadata__": {text: text}, name: {"dtype": text, "shape": [n], "data_offsets": [n, n]}}
class Parser : public nlohmann::json_sax<Json> {
 public:
  explicit Parser(const std::string &where) : where_(where) {}
  CheckpointHeader take() { return std::move(header_); }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) return go(Place::kTop);
    if (place_ == Place::kEntry) {
      if (name_ == kMetadata) return go(Place::kTexts);
      if (!header_.tensors.emplace(name_, CheckpointTensor()).second)
        fail(where_, "expected every tensor once, found \"", name_, "\" twice");
      fields_ = 0;
      return go(Place::kTensor);
    }
    refuse("an object");
  }
  bool key(string_t &text) override {
    if (place_ == Place::kTop) {
      name_ = text;
      if (name_ != kMetadata) return go(Place::kEntry);
      if (has_metadata_) fail(where_, "expected __metadata__ once, found it twice");
      has_metadata_ = true;
      return go(Place::kEntry);
    }
    field_ = text;
    if (place_ == Place::kTexts) return go(Place::kText);
    const unsigned bit = field_ == "dtype"          ? 1
                         : field_ == "shape"        ? 2
                         : field_ == "data_offsets" ? 4
                                                    : 0;
    if (bit == 0 || (fields_ & bit) != 0)
      fail(where_, "tensor \"", name_, "\": expected dtype, shape and data_offsets, found \"",
           field_, "\"", bit == 0 ? "" : " twice");
    fields_ |= bit;
    return go(Place::kField);
  }
  bool string(string_t &text) override {
    if (place_ == Place::kText) {
      if (!header_.metadata.emplace(field_, text).second)
        fail(where_, "expected every metadata key once, found \"", field_, "\" twice");
      return go(Place::kTexts);
    }
    if (place_ != Place::kField || field_ != "dtype") refuse("a text");
    tensor().dtype = text;
    return go(Place::kTensor);
  }
  bool start_array(size_t) override {
    if (place_ != Place::kField || field_ == "dtype") refuse("a list");
    numbers_.clear();
    return go(Place::kNumbers);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kNumbers || numbers_.size() == kMaxShape) refuse("a number");
    numbers_.push_back(value);
    return true;
  }
  bool end_array() override {
    if (field_ == "shape") {
      tensor().shape = numbers_;
    } else {
      if (numbers_.size() != 2)
        fail(where_, "tensor \"", name_, "\": expected 2 data_offsets, found ", numbers_.size());
      tensor().begin = numbers_[0];
      tensor().end = numbers_[1];
    }
    return go(Place::kTensor);
  }
  bool end_object() override {
    if (place_ == Place::kTop) return go(Place::kEnd);
    if (place_ == Place::kTensor && fields_ != 7)
      fail(where_, "tensor \"", name_, "\": expected dtype, shape and data_offsets, found ",
           "fewer than the three");
    return go(Place::kTop);
  }
  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_integer(number_integer_t) override { refuse("a negative number"); }
  bool number_float(number_float_t, const string_t &) override { refuse("a fraction"); }
  bool binary(binary_t &) override { refuse("binary data"); }
  bool parse_error(size_t position, const std::string &,
                   const nlohmann::detail::exception &) override {
    fail(where_, "expected a JSON object as header, found something else at byte ", position,
         " of it");
  }

 private:
  enum class Place { kStart, kTop, kEntry, kTexts, kText, kTensor, kField, kNumbers, kEnd };

  bool go(Place place) {
    place_ = place;
    return true;
  }
  CheckpointTensor &tensor() { return header_.tensors[name_]; }
  [[noreturn]] void refuse(const char *found) {
    fail(where_, "expected a header of the safetensors format, found ", found,
         name_.empty() ? "" : " in the entry \"" + name_ + "\"");
  }

  const std::string &where_;
  CheckpointHeader header_;
  Place place_ = Place::kStart;
  bool has_metadata_ = false;
  std::string name_;
  std::string field_;
  unsigned fields_ = 0;
  std::vector<uint64_t> numbers_;
};

// dtype x shape, or a failure where that overflows.
uint64_t bytes_of(const std::string &name, const CheckpointTensor &t, const std::string &where) {
  uint64_t bytes = checkpoint_dtype_bytes(t.dtype);
  if (bytes == 0)
    fail(where, "tensor \"", name, "\": expected a dtype known here, found \"", t.dtype, "\"");
  for (const uint64_t size : t.shape)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      fail(where, "tensor \"", name,
           "\": expected a shape of fewer than 2^64 bytes, found a larger one");
  return bytes;
}

}  // namespace

uint64_t CheckpointHeader::data_bytes() const {
  uint64_t end = 0;
  for (const auto &[name, t] : tensors) end = std::max(end, t.end);
  return end;
}

const std::string *CheckpointHeader::text(const std::string &key) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

const char *checkpoint_dtype(uint32_t dtype) {
  for (const Dtype &d : kDtypes)
    if (d.id == dtype) return d.name;
  return nullptr;
}

uint64_t checkpoint_dtype_bytes(std::string_view name) {
  for (const Dtype &d : kDtypes)
    if (name == d.name) return OCTAVO_DTYPE_BITS(d.id) / 8;
  return 0;
}

void lay_out(CheckpointHeader &header) {
  uint64_t at = 0;
  for (const uint64_t width : {4u, 2u, 1u}) {
    for (auto &[name, t] : header.tensors) {
      if (checkpoint_dtype_bytes(t.dtype) != width) continue;
      t.begin = at;
      at += bytes_of(name, t, name);
      t.end = at;
    }
  }
}

std::string write_header(const CheckpointHeader &header, const std::string &where) {
  Json model = Json::object();
  model[kMetadata] = header.metadata;
  for (const auto &[name, t] : header.tensors)
    model[name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
  std::string text;
  try {
    text = model.dump();
  } catch (const Json::exception &) {
    throw Failure(OCTAVO_INVALID, kCheckpointDomain, where,
                  ": expected names and labels in UTF-8, found other bytes; rename the ",
                  "parameter or layer");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    throw Failure(OCTAVO_INVALID, kCheckpointDomain, where, ": expected a header of at most ",
                  kMaxHeaderBytes, " bytes, found ", text.size(),
                  "; share the slots out over more ranks");
  std::string all(8, '\0');
  for (size_t i = 0; i < 8; ++i)
    all[i] = static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i) & 0xFF);
  return all + text;
}

CheckpointHeader parse_header(std::string_view json, uint64_t data_bytes,
                              const std::string &where) {
  if (json.empty() || json.front() != '{')
    fail(where, "expected a header that starts with {, found something else");
  Parser parser(where);
  Json::sax_parse(json.begin(), json.end(), &parser);
  CheckpointHeader header = parser.take();

  std::vector<std::pair<const CheckpointTensor *, const std::string *>> order;
  for (const auto &[name, t] : header.tensors) {
    const uint64_t bytes = bytes_of(name, t, where);
    if (t.begin > t.end || t.end - t.begin != bytes)
      fail(where, "tensor \"", name, "\": expected ", bytes,
           " bytes by dtype and shape, found data_offsets ", t.begin, " to ", t.end);
    order.emplace_back(&t, &name);
  }
  std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  uint64_t at = 0;
  for (const auto &[t, name] : order) {
    if (t->begin != at)
      fail(where, "tensor \"", *name, "\": expected it to start at data byte ", at,
           ", where the one before ends, found ", t->begin);
    at = t->end;
  }
  if (at != data_bytes) fail(where, "expected ", at, " bytes of data, found ", data_bytes);
  return header;
}

// Missing and unknown texts are refused with the name of the file.

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
  fail_checkpoint(OCTAVO_INCOMPATIBLE, where, "header: expected checkpoint schema 2 or 3, found \"",
                  schema, schema == "1" ? "\", whose tensors have no hashes" : "\"",
                  "; load it with the version of Octavo that wrote it, ",
                  version == nullptr ? "unknown" : *version, ", or load another checkpoint");
}

}  // namespace octavo
