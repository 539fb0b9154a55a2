// dlopen with everything bound at once, so that a library without its own ones fails here.
#include "host_adapters/standalone/library.h"

#include <dlfcn.h>

#include <octavo/octavo.hpp>

#include "host_adapters/standalone/error.h"

namespace octavo::standalone {

Library::Library(const std::string &name, const std::string &engine, const std::string &origin,
                 const std::string &remedy) {
  const std::string file = "lib" + name + ".so." + std::to_string(OCTAVO_VERSION_MAJOR);
  Dl_info octavo = {};
  std::string next_to;
  if (dladdr(reinterpret_cast<void *>(&octavo_version), &octavo) != 0 &&
      octavo.dli_fname != nullptr)
    next_to = octavo.dli_fname;
  next_to.resize(next_to.find_last_of('/') + 1);
  std::string found;
  for (const std::string &path : {next_to + file, file}) {
    path_ = path;
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle_ != nullptr) return;
    const char *reason = dlerror();
    found +=
        (found.empty() ? "" : "\n            ") + std::string(reason == nullptr ? "?" : reason);
  }
  throw UserError("distributed.engine = \"" + engine + "\" (" + origin + ")",
                  "the library " + file + " next to liboctavo, or where the loader searches", found,
                  remedy);
}

void *Library::find(const char *name) const {
  void *function = dlsym(handle_, name);
  expect(function != nullptr, path_, "the function " + std::string(name), "none",
         "install the one that was built with this train_gpt");
  return function;
}

}  // namespace octavo::standalone
