// JSON with a hash of itself, as the headers of the files have.
#include "sdk/src/checkpoint/checkpoint_manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/base/json.h"
#include "sdk/src/checkpoint/checkpoint_file.h"
#include "sdk/src/checkpoint/checkpoint_hash.h"
#include "sdk/src/checkpoint/checkpoint_names.h"
#include "sdk/src/checkpoint/checkpoint_texts.h"
#include "sdk/src/file/draft.h"

namespace octavo {
namespace {

constexpr char kManifestMark[] = "\"manifest_blake2b\": \"";
constexpr uint64_t kManifestSchema = 1;
constexpr uint64_t kMostManifestBytes = 64 << 20;  // 65536 ranks take less than 16 MiB

[[noreturn]] void fail_manifest(const std::string &where, const std::string &found) {
  fail_checkpoint(OCTAVO_INVALID, where, "manifest: expected what octavo_store_save writes, found ",
                  found, "; the file is damaged: restore it, or load another checkpoint");
}

// One of the two names of the rank, so that nothing outside of the directory is ever opened.
RankFile file_of(const Json &entry, uint32_t rank, size_t world, const std::string &where) {
  const auto is = [&](const char *key, bool (Json::*kind)() const noexcept) {
    return entry.is_object() && entry.contains(key) && (entry.at(key).*kind)();
  };
  if (!is("name", &Json::is_string) || !is("bytes", &Json::is_number_unsigned) ||
      !is("blake2b", &Json::is_string))
    fail_manifest(where, concat("no name, bytes and blake2b for rank ", rank));
  RankFile file{entry.at("name"), entry.at("bytes"), entry.at("blake2b")};
  const std::optional<RankName> named = rank_of_name(file.name);
  if (!named || named->rank != rank || named->world != world)
    fail_manifest(where, concat("the file \"", file.name, "\" for rank ", rank, " of ", world));
  return file;
}

}  // namespace

std::string manifest_text(const CheckpointManifest &manifest) {
  Json json = {{"manifest", "octavo checkpoint"}, {"schema", kManifestSchema},
               {"run_id", manifest.run_id},       {"step", manifest.step},
               {"world", manifest.files.size()},  {"files", Json::array()},
               {"manifest_blake2b", no_blake2b()}};
  for (const RankFile &f : manifest.files)
    json["files"].push_back({{"name", f.name}, {"bytes", f.bytes}, {"blake2b", f.blake2b}});
  std::string text = json.dump(2) + "\n";
  seal(text, kManifestMark);
  return text;
}

CheckpointManifest parse_checkpoint_manifest(std::string_view text, const std::string &where) {
  const std::optional<Seal> seal = seal_of(text, kManifestMark);
  if (!seal) fail_manifest(where, "no hash of itself");
  if (!seal->holds())
    fail_manifest(where, "its hash " + seal->computed + " instead of the stated " + seal->stated);
  // Deeper than any manifest: left out, and so refused below.
  const auto shallow = [](int depth, Json::parse_event_t, Json &) { return depth <= 3; };
  const Json json = Json::parse(text, shallow, false);
  if (!json.is_object() || !json.contains("schema") || !json.at("schema").is_number_unsigned())
    fail_manifest(where, "no schema");
  if (const uint64_t schema = json.at("schema"); schema != kManifestSchema)
    fail_checkpoint(OCTAVO_VERSION, where, "manifest: expected schema ", kManifestSchema,
                    ", found ", schema, "; load it with the version of Octavo that wrote it");
  if (!json.contains("run_id") || !json.at("run_id").is_string() || !json.contains("step") ||
      !json.at("step").is_number_unsigned() || !json.contains("files") ||
      !json.at("files").is_array() || json.at("files").empty())
    fail_manifest(where, "no run_id, step and files");
  CheckpointManifest manifest{json.at("run_id"), json.at("step"), {}};
  for (const Json &entry : json.at("files"))
    manifest.files.push_back(file_of(entry, static_cast<uint32_t>(manifest.files.size()),
                                     json.at("files").size(), where));
  return manifest;
}

std::optional<CheckpointManifest> find_checkpoint_manifest(const std::string &directory) {
  const std::string path = (std::filesystem::path(directory) / kManifestName).string();
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  constexpr const char *readable = "a file that can be read";
  if (file.get() < 0 && errno == ENOENT) return {};
  if (file.get() < 0) fail_call(path, readable, errno, kCheckPath);
  std::string text;
  char piece[1 << 12];
  for (;;) {
    const ssize_t got = pread(file.get(), piece, sizeof(piece), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_call(path, readable, errno, kCheckPath);
    if (got == 0) break;
    text.append(piece, static_cast<size_t>(got));
    if (text.size() > kMostManifestBytes) fail_manifest(path, "more than 64 MiB");
  }
  return parse_checkpoint_manifest(text, path);
}

void write_checkpoint_manifest(const std::string &directory, const CheckpointManifest &manifest) {
  const std::string path = (std::filesystem::path(directory) / kManifestName).string();
  const std::string text = manifest_text(manifest);
  Draft draft(path, 0666);
  check_created(draft);
  if (!draft.write(text.data(), text.size())) fail_write(draft, errno);
  put_in_place(draft, path);
}

}  // namespace octavo
