// Reads the JSON as a stream of events, so that nothing that the format does not know is built up.
#include "sdk/src/checkpoint/checkpoint_header.h"

#include <algorithm>
#include <cstring>

#include "octavo/tensor.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/json.h"

namespace octavo {
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

}  // namespace octavo
