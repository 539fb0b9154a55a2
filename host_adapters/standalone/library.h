// A library of this installation that is opened when the configuration asks for it.
#pragma once

#include <string>

namespace octavo::standalone {

class Library {
 public:
  // "octavo_mpi": next to liboctavo, else where the loader searches. Throws UserError; `engine`
  // asked for it at `origin`, and `remedy` says how one gets it.
  Library(const std::string &name, const std::string &engine, const std::string &origin,
          const std::string &remedy);

  // A function by its declaration: get<decltype(octavo_mpi_open)>("octavo_mpi_open").
  template <typename Function>
  Function *get(const char *name) const {
    return reinterpret_cast<Function *>(find(name));
  }

 private:
  void *find(const char *name) const;

  std::string path_;
  void *handle_ = nullptr;  // stays open: threads of the library may outlive this object
};

}  // namespace octavo::standalone
