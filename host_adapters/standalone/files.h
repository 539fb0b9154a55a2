// Directories that the command line names, and files in them that appear whole or not at all.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace octavo::standalone {

// Makes sure before any work that files can be written there. Functions here throw UserError.
void prepare_directory(const std::string &option, const std::string &directory);
// The file holds either its old content or all of the new one, never a part, and is on disk.
void write_atomically(const std::string &path, const std::string &content);
// Makes the directory and those above it where there are none; their names are on disk.
void make_directory(const std::string &path);

// A number that tells damage apart, not intent: one byte that differs always gives another one,
// since each round maps numbers one to one.
uint64_t fingerprint(const void *data, size_t bytes);

// Whether this is one whole item of CBOR with every length stated, and at most three levels of maps
// and lists: a parser that calls itself for each level can take it.
bool is_shallow_cbor(const std::string &cbor);

// A file of lines, each written at once, so that a program that is killed leaves what it had. Empty
// at first; without a path nothing is written. Throws UserError.
class LineLog {
 public:
  explicit LineLog(const std::string &path);
  void write(const std::string &line);

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace octavo::standalone
