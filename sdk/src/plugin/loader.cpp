// Opens with Boost.DLL (all symbols bound at once, local scope) and shakes hands.
#include "sdk/src/plugin/loader.h"

#include <sys/statvfs.h>

#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/base/exception_boundary.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/fork.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/file/privilege_mapping.h"
#include "sdk/src/plugin/checked_name.h"
#include "sdk/src/plugin/elf.h"

namespace octavo {
namespace {

// The host struct that plugins may keep until the process ends. Their messages while they are asked
// go to the host of the thread that asks.
thread_local const octavo_host *asking_host = nullptr;

const octavo_host *process_host() {
  static const octavo_host host = [] {
    auto h = make<octavo_host>(OCTAVO_KIND_HOST);
    h.abi_major = OCTAVO_ABI_MAJOR;
    h.abi_minor = OCTAVO_ABI_MINOR;
    h.diagnose = [](void *, const octavo_diagnostic *d) {
      // A run's own table relays and takes texts in; the helper's host takes them in itself.
      if (asking_host != nullptr && asking_host->diagnose != nullptr)
        asking_host->diagnose(asking_host->ctx, d);
    };
    h.get_extension = [](void *, octavo_str) -> const void * { return nullptr; };
    return h;
  }();
  return &host;
}

// All that this process has opened and loaded, until it ends: code that a plugin left may run at
// any time, and the system's loader gives the first library again for a path that it has opened,
// whatever is there now.
struct Registry {
  struct Kept {
    std::string sha256;
    Descriptor file;  // by which it was opened: the number belongs to this library from then on
    std::unique_ptr<boost::dll::shared_library> library;
  };
  ForkLock mutex{"loaded a plugin"};
  std::map<std::string, Kept> opened;
  // By path and content: a file that was replaced on disk is another plugin.
  std::map<std::string, std::unique_ptr<LoadedPlugin>> loaded;
};

Registry &registry() {
  static auto *everything = new Registry;
  return *everything;
}

struct Declined {
  uint32_t reason;
  std::string text;
  Remedy remedy;
  Stage stage = Stage::kPlugin;
};

std::string own_abi() {
  return concat(OCTAVO_ABI_MAJOR, ".", OCTAVO_ABI_MINOR);
}

std::string remedy(bool same_major) {
  return same_major ? "upgrade liboctavo, or build the plugin with a lower OCTAVO_TARGET_MINOR"
                    : concat("install a build of the plugin for ABI major ", OCTAVO_ABI_MAJOR);
}

class Handshake {
 public:
  Handshake(const Manifest &manifest, const std::string &sha256) : manifest_(manifest) {
    plugin_ = std::make_unique<LoadedPlugin>();
    plugin_->library = manifest.library;
    plugin_->sha256 = sha256;
  }

  std::unique_ptr<LoadedPlugin> run() {
    if (const auto v = abi_verdict(manifest_)) throw Declined{v->reason, v->text, v->remedy};
    const auto query = open();
    const octavo_plugin *table = nullptr;
    const octavo_status status = query(process_host(), &table);
    if (status == OCTAVO_INCOMPATIBLE) refuse_version(query);
    if (status != OCTAVO_OK || table == nullptr)
      throw Declined{status == OCTAVO_INCOMPATIBLE ? uint32_t{OCTAVO_REASON_ABI}
                                                   : uint32_t{OCTAVO_REASON_LIBRARY},
                     concat(OCTAVO_PLUGIN_SYMBOL, " answered status ", status,
                            table ? "" : " and no table", "; this host has ABI ", own_abi()),
                     "install a build of the plugin for this host"};
    check(*table);
    interfaces(*table);
    return std::move(plugin_);
  }

 private:
  decltype(&octavo_plugin_query_1) open() {
    namespace dll = boost::dll;
    auto &opened_before = registry().opened;
    const auto before = opened_before.find(manifest_.library);
    if (before != opened_before.end() && before->second.sha256 != plugin_->sha256)
      throw Declined{OCTAVO_REASON_LIBRARY,
                     manifest_.library +
                         ": was replaced after this process opened it, and an opened library stays",
                     "start the process again", Stage::kLoad};
    CheckedName checked(manifest_.library, manifest_.checked.get());
    if (checked.is_expanded())
      throw Declined{OCTAVO_REASON_LIBRARY,
                     manifest_.library +
                         ": cannot be opened by its path, since the system's loader would "
                         "replace what follows a \"$\"",
                     "move the plugin to a folder without \"$\" in its name", Stage::kLoad};
    try {
      auto opened = std::make_unique<dll::shared_library>(
          checked.name(), dll::load_mode::rtld_now | dll::load_mode::rtld_local);
      const dll::shared_library *library = opened.get();
      Registry::Kept kept{plugin_->sha256, checked.keep(), std::move(opened)};
      opened_before[manifest_.library] = std::move(kept);
      if (library->has(OCTAVO_PLUGIN_SYMBOL)) {
        check_mapping(*library);
        return &library->get<octavo_status(const octavo_host *, const octavo_plugin **)>(
            OCTAVO_PLUGIN_SYMBOL);
      }
      throw Declined{
          OCTAVO_REASON_LIBRARY,
          manifest_.library + ": expected the symbol " + OCTAVO_PLUGIN_SYMBOL + ", found none",
          "the file is not an Octavo plugin, or hides its entry: declare it OCTAVO_EXPORT",
          Stage::kLoad};
    } catch (const std::system_error &e) {
      refuse_noexec();
      const std::string words = checked.in_own_words(e.what());
      if (!names_verdict(words) || is_found(words))
        throw ResourceUnavailable(manifest_.library + ": cannot be loaded: " + words, kMakeRoom,
                                  Stage::kLoad);
      throw Declined{OCTAVO_REASON_LIBRARY, manifest_.library + ": cannot be loaded: " + words,
                     "install what is missing, or reinstall the plugin", Stage::kLoad};
    }
  }

  // The system's loader has no memory for a path and says that there is no such file.
  bool is_found(std::string_view words) const {
    return words.find("No such file") != std::string_view::npos &&
           !elf_verdict(manifest_.library, inspect_elf(manifest_.library, manifest_.checked.get()));
  }

  // The words of the system's loader for it are those of short memory.
  void refuse_noexec() const {
    struct statvfs place {};
    if (statvfs(manifest_.library.c_str(), &place) == 0 && (place.f_flag & ST_NOEXEC) != 0)
      throw Declined{
          OCTAVO_REASON_LIBRARY,
          manifest_.library + ": its file system is mounted noexec, so no code in it runs",
          "install the plugin on a file system that allows programs", Stage::kLoad};
  }

  // The plugin's entry refuses this host's version: a host of any minor is told which one it needs.
  void refuse_version(decltype(&octavo_plugin_query_1) query) const {
    static const octavo_host newest = [] {
      octavo_host h = *process_host();
      h.abi_minor = UINT32_MAX;
      return h;
    }();
    const octavo_plugin *table = nullptr;
    if (query(&newest, &table) != OCTAVO_OK || table == nullptr ||
        table->kind != OCTAVO_KIND_PLUGIN || !OCTAVO_HAS(table, octavo_plugin, abi_minor))
      return;
    if (table->abi_major != OCTAVO_ABI_MAJOR || table->abi_minor > OCTAVO_ABI_MINOR)
      refuse_abi(*table);
  }

  [[noreturn]] void refuse_abi(const octavo_plugin &table) const {
    throw Declined{OCTAVO_REASON_ABI,
                   concat("the plugin needs ABI ", table.abi_major, ".", table.abi_minor,
                          ", this host has ABI ", own_abi()),
                   remedy(table.abi_major == OCTAVO_ABI_MAJOR)};
  }

  // None of the plugin's functions has been called yet when another file than the checked one turns
  // out to be mapped.
  void check_mapping(const boost::dll::shared_library &library) const {
    if (manifest_.checked == nullptr) return;
    const auto &entry = library.get<octavo_status(const octavo_host *, const octavo_plugin **)>(
        OCTAVO_PLUGIN_SYMBOL);
    const std::string problem =
        mapping_problem(*manifest_.checked, reinterpret_cast<const void *>(&entry));
    if (!problem.empty())
      throw Declined{OCTAVO_REASON_TRUST, problem, "start the process again", Stage::kLoad};
  }

  void check(const octavo_plugin &table) {
    if (table.kind != OCTAVO_KIND_PLUGIN || !OCTAVO_HAS(&table, octavo_plugin, get_interface))
      throw Declined{OCTAVO_REASON_ABI,
                     concat(manifest_.library, ": its table is not an octavo_plugin: size ",
                            table.size, ", kind ", table.kind, "; expected size ",
                            sizeof(octavo_plugin), ", kind ", OCTAVO_KIND_PLUGIN),
                     "rebuild the plugin against this version's headers"};
    if (table.get_interface == nullptr)
      throw Declined{OCTAVO_REASON_ABI, manifest_.library + ": its get_interface is null",
                     "rebuild the plugin against this version's headers"};
    if (table.abi_major != OCTAVO_ABI_MAJOR || table.abi_minor > OCTAVO_ABI_MINOR)
      refuse_abi(table);
    plugin_->id = take_text(table.id);
    plugin_->version = take_text(table.version);
    plugin_->abi_major = table.abi_major;
    plugin_->abi_minor = table.abi_minor;
    plugin_->get_interface = table.get_interface;
    if (plugin_->id != manifest_.name)
      throw Declined{OCTAVO_REASON_MANIFEST,
                     manifest_.library + ": expected the id \"" + manifest_.name +
                         "\" of its manifest, found \"" + plugin_->id + "\"",
                     "reinstall the plugin: library and manifest do not belong together"};
  }

  void interfaces(const octavo_plugin &table) {
    auto get = [&](const char *id) { return table.get_interface(borrow(id)); };
    const auto *backend = static_cast<const octavo_backend *>(get(OCTAVO_BACKEND_ID));
    const auto *kernels = static_cast<const octavo_kernels *>(get(OCTAVO_KERNELS_ID));
    if (kernels != nullptr && kernels->kind == OCTAVO_KIND_KERNELS)
      plugin_->kernels = whole(*kernels, OCTAVO_KERNELS_ID);
    if (const auto *memory = static_cast<const octavo_memory *>(get(OCTAVO_MEMORY_ID)))
      plugin_->memory = whole(*memory, OCTAVO_MEMORY_ID);
    const auto *layer = static_cast<const octavo_layer *>(get(OCTAVO_LAYER_ID));
    if (layer != nullptr && layer->kind == OCTAVO_KIND_LAYER)
      plugin_->layer = whole(*layer, OCTAVO_LAYER_ID);
    plugin_->has_backend = backend != nullptr && backend->kind == OCTAVO_KIND_BACKEND;
    if (!plugin_->has_backend && backend == nullptr && (plugin_->kernels || plugin_->layer)) {
      plugin_->backend = complete(octavo_backend{});
      return;
    }
    if (!plugin_->has_backend)
      throw Declined{OCTAVO_REASON_ABI,
                     manifest_.library + ": expected the interface " OCTAVO_BACKEND_ID +
                         std::string(backend ? ", found a table of another kind" : ", found none"),
                     "the plugin is not an FP8 backend for this host"};
    plugin_->backend = whole(*backend, OCTAVO_BACKEND_ID);
    plugin_->has_quantize_weight = has(*backend, &octavo_backend::quantize_weight);
    plugin_->has_end_step = has(*backend, &octavo_backend::end_step);
    if (const auto *o = static_cast<const octavo_optimizer *>(get(OCTAVO_OPTIMIZER_ID)))
      plugin_->optimizer = whole(*o, OCTAVO_OPTIMIZER_ID);
    if (const auto *g = static_cast<const octavo_gradients *>(get(OCTAVO_GRADIENTS_ID)))
      plugin_->gradients = whole(*g, OCTAVO_GRADIENTS_ID);
    if (const auto *f = static_cast<const octavo_fused *>(get(OCTAVO_FUSED_ID)))
      plugin_->fused = whole(*f, OCTAVO_FUSED_ID);
    if (const auto *g = static_cast<const octavo_grouped *>(get(OCTAVO_GROUPED_ID)))
      plugin_->grouped = whole(*g, OCTAVO_GROUPED_ID);
    if (const auto *s = static_cast<const octavo_shard *>(get(OCTAVO_SHARD_ID)))
      plugin_->shard = whole(*s, OCTAVO_SHARD_ID);
  }

  // The complete table of an interface, which must have its required functions.
  template <typename Table>
  Table whole(const Table &given, const char *id) const {
    const std::vector<std::string> missing = missing_functions(given);
    if (missing.empty()) return complete(given);
    throw Declined{OCTAVO_REASON_ABI,
                   concat(manifest_.library, ": the table of ", id, " lacks ", enumerate(missing),
                          ", which every plugin with this interface must have"),
                   "implement what is missing; page abi lists the required functions"};
  }

  const Manifest &manifest_;
  std::unique_ptr<LoadedPlugin> plugin_;
};

}  // namespace

std::optional<Verdict> abi_verdict(const Manifest &manifest) {
  if (manifest.abi_major == OCTAVO_ABI_MAJOR && manifest.abi_minor >= 0 &&
      manifest.abi_minor <= OCTAVO_ABI_MINOR)
    return std::nullopt;
  return Verdict{OCTAVO_LEVEL_PLUGIN,
                 OCTAVO_DECLINE,
                 OCTAVO_REASON_ABI,
                 concat("the manifest states ABI ", manifest.abi_major, ".", manifest.abi_minor,
                        ", this host has ABI ", own_abi()),
                 manifest.library,
                 remedy(manifest.abi_major == OCTAVO_ABI_MAJOR)};
}

bool opened_in_this_process(const std::string &library) {
  const std::lock_guard lock(registry().mutex);
  return registry().opened.count(library) != 0;
}

const LoadedPlugin *load_plugin(const Manifest &manifest, const std::string &sha256,
                                const octavo_host *host, std::vector<Verdict> &verdicts) {
  const std::lock_guard lock(registry().mutex);
  auto &entry = registry().loaded[manifest.library + '\n' + sha256];
  if (entry != nullptr) return entry.get();
  asking_host = host;
  std::string thrown;
  const auto decline = [&](const Declined &d) {
    verdicts.push_back({OCTAVO_LEVEL_PLUGIN, OCTAVO_DECLINE, d.reason, d.text, manifest.library,
                        d.remedy, d.stage});
  };
  std::optional<ResourceUnavailable> shortage;
  const octavo_status status = call_plugin(&thrown, [&]() -> octavo_status {
    try {
      entry = Handshake(manifest, sha256).run();
    } catch (const Declined &d) {
      decline(d);
    } catch (const ResourceUnavailable &s) {
      shortage = s;
    }
    return OCTAVO_OK;
  });
  asking_host = nullptr;
  if (shortage) throw *shortage;
  if (status == OCTAVO_NO_RESOURCE)  // GCOVR_EXCL_BR_LINE: octavo_out_of_memory_test
    throw std::bad_alloc();
  if (!thrown.empty())
    decline({OCTAVO_REASON_LIBRARY, manifest.library + ": its handshake failed" + thrown,
             "install a corrected build of the plugin"});
  return entry.get();
}

}  // namespace octavo
