// Opens with Boost.DLL (all symbols bound at once, local scope) and shakes hands.
#include "loader.h"

#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>

#include "elf.h"
#include "failure.h"
#include "text.h"

namespace octavo {
namespace {

// The host struct that plugins may keep for ever. What they say while being asked goes to the host
// of the thread that asks.
thread_local const octavo_host *asking_host = nullptr;

const octavo_host *process_host() {
  static const octavo_host host = [] {
    octavo_host h{};
    h.size = sizeof(h);
    h.kind = OCTAVO_KIND_HOST;
    h.abi_major = OCTAVO_ABI_MAJOR;
    h.abi_minor = OCTAVO_ABI_MINOR;
    h.diagnose = [](void *, const octavo_diagnostic *d) {
      if (asking_host != nullptr && asking_host->diagnose != nullptr)
        asking_host->diagnose(asking_host->ctx, d);
    };
    h.get_extension = [](void *, octavo_str) -> const void * { return nullptr; };
    return h;
  }();
  return &host;
}

struct Declined {
  uint32_t reason;
  std::string text;
  std::string remedy;
};

class Handshake {
 public:
  Handshake(const Manifest &manifest, const std::string &sha256) : manifest_(manifest) {
    plugin_ = std::make_unique<LoadedPlugin>();
    plugin_->library = manifest.library;
    plugin_->sha256 = sha256;
  }

  std::unique_ptr<LoadedPlugin> run() {
    if (manifest_.abi_major != OCTAVO_ABI_MAJOR || manifest_.abi_minor < 0 ||
        manifest_.abi_minor > OCTAVO_ABI_MINOR)
      throw Declined{OCTAVO_REASON_ABI,
                     "the manifest states ABI " + std::to_string(manifest_.abi_major) + "." +
                         std::to_string(manifest_.abi_minor) + ", this host has ABI " + own_abi(),
                     remedy(manifest_.abi_major == OCTAVO_ABI_MAJOR)};
    const auto query = open();
    const octavo_plugin *table = nullptr;
    const octavo_status status = query(process_host(), &table);
    if (status != OCTAVO_OK || table == nullptr)
      throw Declined{
          status == OCTAVO_VERSION ? uint32_t{OCTAVO_REASON_ABI} : uint32_t{OCTAVO_REASON_LIBRARY},
          std::string(OCTAVO_PLUGIN_SYMBOL) + " answered status " + std::to_string(status) +
              (table ? "" : " and no table") + "; this host has ABI " + own_abi(),
          "install a build of the plugin for this host"};
    check(*table);
    interfaces(*table);
    return std::move(plugin_);
  }

 private:
  static std::string own_abi() {
    return std::to_string(OCTAVO_ABI_MAJOR) + "." + std::to_string(OCTAVO_ABI_MINOR);
  }

  static std::string remedy(bool same_major) {
    return same_major
               ? "upgrade liboctavo, or build the plugin with a lower OCTAVO_TARGET_MINOR"
               : "install a build of the plugin for ABI major " + std::to_string(OCTAVO_ABI_MAJOR);
  }

  decltype(&octavo_plugin_query_v1) open() {
    namespace dll = boost::dll;
    if (const std::string problem = elf_problem(manifest_.library); !problem.empty())
      throw Declined{OCTAVO_REASON_LIBRARY, manifest_.library + ": cannot be loaded: " + problem,
                     "install what is missing, or reinstall the plugin"};
    // Never destroyed: what a plugin left in the process may run at any time. The system's loader
    // gives the first library again for a path that it has opened, whatever lies there now.
    struct Kept {
      std::string sha256;
      std::unique_ptr<dll::shared_library> library;
    };
    static auto *kept = new std::map<std::string, Kept>;
    const auto before = kept->find(manifest_.library);
    if (before != kept->end() && before->second.sha256 != plugin_->sha256)
      throw Declined{OCTAVO_REASON_LIBRARY,
                     manifest_.library +
                         ": was replaced after this process opened it, and an opened library stays",
                     "start the process again"};
    try {
      auto opened = std::make_unique<dll::shared_library>(
          manifest_.library, dll::load_mode::rtld_now | dll::load_mode::rtld_local);
      auto &entry = (*kept)[manifest_.library];
      entry = {plugin_->sha256, std::move(opened)};
      const dll::shared_library *library = entry.library.get();
      if (library->has(OCTAVO_PLUGIN_SYMBOL))
        return &library->get<octavo_status(const octavo_host *, const octavo_plugin **)>(
            OCTAVO_PLUGIN_SYMBOL);
      for (int major = 1; major <= 9; ++major) {
        const std::string symbol = "octavo_plugin_query_v" + std::to_string(major);
        if (library->has(symbol))
          throw Declined{
              OCTAVO_REASON_ABI,
              manifest_.library + ": exports " + symbol + ", built for ABI major " +
                  std::to_string(major) + "; this host has ABI " + own_abi(),
              "install a build of the plugin for ABI major " + std::to_string(OCTAVO_ABI_MAJOR)};
      }
      throw Declined{
          OCTAVO_REASON_LIBRARY,
          manifest_.library + ": expected the symbol " + OCTAVO_PLUGIN_SYMBOL + ", found none",
          "the file is no Octavo plugin, or hides its entry: declare it OCTAVO_EXPORT"};
    } catch (const std::system_error &e) {
      throw Declined{OCTAVO_REASON_LIBRARY, manifest_.library + ": cannot be loaded: " + e.what(),
                     "install what is missing, or reinstall the plugin"};
    }
  }

  void check(const octavo_plugin &table) {
    if (table.kind != OCTAVO_KIND_PLUGIN || !OCTAVO_HAS(&table, octavo_plugin, get_interface))
      throw Declined{OCTAVO_REASON_ABI,
                     manifest_.library + ": its table is no octavo_plugin: size " +
                         std::to_string(table.size) + ", kind " + std::to_string(table.kind) +
                         "; expected size " + std::to_string(sizeof(octavo_plugin)) + ", kind " +
                         std::to_string(OCTAVO_KIND_PLUGIN),
                     "rebuild the plugin against this version's headers"};
    if (table.get_interface == nullptr)
      throw Declined{OCTAVO_REASON_ABI, manifest_.library + ": its get_interface is null",
                     "rebuild the plugin against this version's headers"};
    const std::string found =
        std::to_string(table.abi_major) + "." + std::to_string(table.abi_minor);
    if (table.abi_major != OCTAVO_ABI_MAJOR || table.abi_minor > OCTAVO_ABI_MINOR)
      throw Declined{OCTAVO_REASON_ABI,
                     "the plugin needs ABI " + found + ", this host has ABI " + own_abi(),
                     remedy(table.abi_major == OCTAVO_ABI_MAJOR)};
    plugin_->id = view(table.id);
    plugin_->version = view(table.version);
    plugin_->abi_major = table.abi_major;
    plugin_->abi_minor = table.abi_minor;
    if (plugin_->id != manifest_.name)
      throw Declined{OCTAVO_REASON_MANIFEST,
                     manifest_.library + ": expected the id \"" + manifest_.name +
                         "\" of its manifest, found \"" + plugin_->id + "\"",
                     "reinstall the plugin: library and manifest do not belong together"};
  }

  void interfaces(const octavo_plugin &table) {
    auto get = [&](const char *id) { return table.get_interface(str(id)); };
    const auto *backend = static_cast<const octavo_backend *>(get(OCTAVO_BACKEND_ID));
    if (backend == nullptr || backend->kind != OCTAVO_KIND_BACKEND)
      throw Declined{OCTAVO_REASON_ABI,
                     manifest_.library + ": expected the interface " OCTAVO_BACKEND_ID +
                         std::string(backend ? ", found a table of another kind" : ", found none"),
                     "the plugin is no FP8 backend for this host"};
    plugin_->backend = complete(*backend);
    if (const auto *o = static_cast<const octavo_optimizer *>(get(OCTAVO_OPTIMIZER_ID)))
      plugin_->optimizer = complete(*o);
    if (const auto *g = static_cast<const octavo_gradients *>(get(OCTAVO_GRADIENTS_ID)))
      plugin_->gradients = complete(*g);
    if (const auto *f = static_cast<const octavo_fused *>(get(OCTAVO_FUSED_ID)))
      plugin_->fused = complete(*f);
  }

  const Manifest &manifest_;
  std::unique_ptr<LoadedPlugin> plugin_;
};

}  // namespace

const LoadedPlugin *load_plugin(const Manifest &manifest, const std::string &sha256,
                                const octavo_host *host, std::vector<Verdict> &verdicts) {
  static std::mutex mutex;
  // By path and content: a file that was replaced on disk is another plugin.
  static auto *loaded = new std::map<std::string, std::unique_ptr<LoadedPlugin>>;
  const std::lock_guard lock(mutex);
  auto &entry = (*loaded)[manifest.library + '\n' + sha256];
  if (entry == nullptr) {
    asking_host = host;
    try {
      entry = Handshake(manifest, sha256).run();
    } catch (const Declined &d) {
      verdicts.push_back(
          {OCTAVO_LEVEL_PLUGIN, OCTAVO_DECLINE, d.reason, d.text, manifest.library, d.remedy});
    }
    asking_host = nullptr;
  }
  return entry.get();
}

}  // namespace octavo
