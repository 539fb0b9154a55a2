// The header of a safetensors file: which tensors it holds, where, and its texts.
//
// File: 8 bytes of header length (little-endian), the header as JSON, the data. A header that this
// parser accepts names every data byte exactly once, so nothing after it checks offsets again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Of every Failure of this room.
inline constexpr char kCheckpointDomain[] = "octavo.state";

struct CheckpointTensor {
  std::string dtype;            // "F32", "F8_E4M3", ...
  std::vector<uint64_t> shape;  // row-major, innermost last
  uint64_t begin = 0;           // bytes, counted from the first data byte
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

struct CheckpointHeader {
  std::map<std::string, std::string> metadata;
  std::map<std::string, CheckpointTensor> tensors;

  uint64_t data_bytes() const;
  // The text of a metadata key; null: none.
  const std::string *text(const std::string &key) const;
};

// As the format's own library: a longer header is refused before memory is taken for it.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxShape = 8;  // dimensions

// The name of a dtype in the format, or null when the format has none.
const char *checkpoint_dtype(uint32_t dtype);
// Bytes of one element, or 0 for a name that is unknown here.
uint64_t checkpoint_dtype_bytes(std::string_view name);

// Lays the tensors out without gaps, wide dtypes first, so that each is aligned to its own width;
// fills begin and end. Equal widths go by name.
void lay_out(CheckpointHeader &header);

// Length and JSON, padded with spaces so that the data starts at a multiple of 8 bytes. Throws
// Failure(OCTAVO_INVALID) for a name that is not UTF-8, and for a header that is too long.
std::string write_header(const CheckpointHeader &header, const std::string &where);

// Parses the JSON of a file in which `data_bytes` bytes follow it. Throws Failure(OCTAVO_INVALID)
// that names `where`: malformed JSON, unknown or duplicate keys, a size that is not dtype x shape,
// tensors that overlap, leave gaps or do not end with the file.
CheckpointHeader parse_header(std::string_view json, uint64_t data_bytes, const std::string &where);

}  // namespace octavo
