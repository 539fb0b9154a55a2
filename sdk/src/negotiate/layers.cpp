// Layers (octavo/draft/layer.h): one kernels table of a layer and of what is below it.
//
// A call that the layer has no function for costs one jump more than on the table below.
#include "octavo/draft/layer.h"

#include <algorithm>

#include "octavo/draft/streams.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "sdk/src/base/exception_boundary.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/negotiate/negotiate.h"

namespace octavo {
namespace {

// What the ctx of both tables' common one points to.
struct Layer : octavo_layer_ctx {
  octavo_layer table;
  std::string id;  // "int8 on cpu.avx2"
  KernelsTables tables_below;
  const octavo_memory *memory_below;    // null: the device's memory is the host's
  const octavo_streams *streams_below;  // null: the device has no such table
  octavo_streams streams;
  DraftCopies drafts;
};
const Layer &layer_of(void *ctx) {
  return *static_cast<const Layer *>(static_cast<octavo_layer_ctx *>(ctx));
}

template <auto member, typename... A>
octavo_status pass(void *ctx, A... arguments) {
  const auto &layer = *static_cast<const octavo_layer_ctx *>(ctx);
  return (layer.below->*member)(layer.below_ctx, arguments...);
}
template <auto member, typename... A>
octavo_status ask(void *ctx, A... arguments) {
  const octavo_status status = (layer_of(ctx).table.calls->*member)(ctx, arguments...);
  return status == OCTAVO_UNSUPPORTED ? pass<member, A...>(ctx, arguments...) : status;
}
template <auto member, typename... A>
void place(octavo_kernels &both, const octavo_kernels &own,
           octavo_status (*octavo_kernels::*)(void *, A...)) {
  both.*member = has(own, member) ? ask<member, A...> : pass<member, A...>;
}

// Of a table of octavo/draft, which a layer has whole or not at all.
template <auto member, typename Table, typename Call>
auto pass_draft(octavo_status (*Table::*)(void *, const Call *)) {
  return [](void *ctx, const Call *call) {
    const Layer &layer = layer_of(ctx);
    return (layer.tables_below.get<Table>()->*member)(layer.below_ctx, call);
  };
}

// Of a table that no layer has a part of: its functions take the ctx of the kernels.
template <auto table, auto member, typename Table, typename R, typename... A>
void place_below(Table &both, const Table *below, R (*Table::*)(void *, A...)) {
  if (below->*member == nullptr) return;
  both.*member = [](void *ctx, A... arguments) {
    const Layer &layer = layer_of(ctx);
    return ((layer.*table)->*member)(layer.below_ctx, arguments...);
  };
}
template <auto table, auto... members, typename Table>
Table all_below(const Table *below, uint32_t kind) {
  static_assert(sizeof(Table) == 2 * sizeof(uint32_t) + sizeof...(members) * sizeof(void *));
  auto both = make<Table>(kind);
  if (below != nullptr) (place_below<table, members>(both, below, members), ...);
  return both;
}
octavo_memory memory_of_both(const octavo_memory *below) {
  using M = octavo_memory;
  return all_below<&Layer::memory_below, &M::allocate, &M::release, &M::copy, &M::synchronize>(
      below, OCTAVO_KIND_MEMORY);
}
octavo_streams streams_of_both(const octavo_streams *below) {
  using S = octavo_streams;
  return all_below<&Layer::streams_below, &S::make_stream, &S::destroy_stream, &S::order, &S::wait,
                   &S::call_host, &S::begin_capture, &S::end_capture, &S::launch, &S::destroy_graph,
                   &S::current_device, &S::set_current_device>(below, OCTAVO_KIND_STREAMS);
}
const octavo_streams *streams_of(const octavo_layer_ctx &layer) {
  const auto *found = static_cast<const octavo_streams *>(
      layer.below->get_extension(layer.below_ctx, OCTAVO_STR(OCTAVO_STREAMS_ID)));
  const bool is_whole = found != nullptr && found->kind == OCTAVO_KIND_STREAMS &&
                        found->size >= sizeof(octavo_streams);
  return is_whole ? found : nullptr;
}

octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  const Layer &layer = layer_of(ctx);
  octavo_status status = layer.below->describe(layer.below_ctx, out);
  if (status == OCTAVO_OK && has(*layer.table.calls, &octavo_kernels::describe))
    status = layer.table.calls->describe(ctx, out);
  out->id = borrow(layer.id);
  return status;
}
const void *get_extension(void *ctx, octavo_str id) {
  const Layer &layer = layer_of(ctx);
  const void *own = has(*layer.table.calls, &octavo_kernels::get_extension)
                        ? layer.table.calls->get_extension(ctx, id)
                        : nullptr;
  if (own != nullptr) return own;
  if (layer.streams_below != nullptr && view(id) == OCTAVO_STREAMS_ID) return &layer.streams;
  return layer.drafts.find(layer.tables_below, id);
}
void close_device(void *ctx) {
  auto *layer = static_cast<Layer *>(static_cast<octavo_layer_ctx *>(ctx));
  layer->table.close_layer(layer);
  delete layer;
}

octavo_kernels both_of(const octavo_kernels &own) {
  octavo_kernels both = complete(make<octavo_kernels>(OCTAVO_KIND_KERNELS));
  place<&octavo_kernels::ability>(both, own, &octavo_kernels::ability);
  place<&octavo_kernels::workspace_bytes>(both, own, &octavo_kernels::workspace_bytes);
  each_call<octavo_kernels>([&](auto call) {
    constexpr auto member = decltype(call)::member;
    place<member>(both, own, member);
  });
  both.describe = describe;
  both.get_extension = get_extension;
  both.close_device = close_device;
  return both;
}

// A plugin of the search path whose manifest states a layer for this device.
bool is_layer(const Negotiation &n, const std::string &id, const std::string &key,
              std::vector<Verdict> &verdicts) {
  std::vector<std::string> ids, words;
  for (const FoundManifest &found : n.discovery.manifests) {
    std::vector<Verdict> unread;
    if (!found.shadowed_by.empty()) continue;
    const auto manifest = read_manifest(found.path, found.name == id ? verdicts : unread);
    if (!manifest && found.name == id) return false;
    if (!manifest || manifest->kernels.over.empty()) continue;
    const std::vector<std::string> &over = manifest->kernels.over;
    const bool fits = std::find(over.begin(), over.end(), n.device_kind) != over.end();
    if (manifest->name == id && fits) return true;
    ids.push_back(manifest->name);
    words.push_back(manifest->name + " over " + enumerate(over));
  }
  const bool is_there = std::find(ids.begin(), ids.end(), id) != ids.end();
  const std::string near = is_there ? std::string() : nearest(id, ids);
  verdicts.push_back(
      {OCTAVO_LEVEL_DEVICE, OCTAVO_DECLINE, OCTAVO_REASON_KERNEL,
       concat(key, ": no plugin \"", id, "\" has a layer for ", n.device_kind),
       concat("installed layers: ", enumerate(words), "; looked in ", n.discovery.places_text()),
       near.empty() ? "install a plugin whose manifest states [kernels] over (docs/writing_"
                      "kernels.md#layers), or choose another device"
                    : "did you mean \"" + near + "\"?",
       Stage::kDevice});
  return false;
}

}  // namespace

std::shared_ptr<OpenDevice> with_layer(std::shared_ptr<const OpenDevice> below,
                                       const LoadedPlugin &plugin, const octavo_host *host,
                                       std::vector<Verdict> &verdicts) {
  auto layer = std::make_unique<Layer>();
  layer->size = sizeof(octavo_layer_ctx);
  layer->kind = OCTAVO_KIND_LAYER_CTX;
  layer->below = &below->kernels();
  layer->below_ctx = below->ctx();
  layer->below_caps = &below->caps();
  layer->host = host;
  layer->device = below->device();
  layer->table = *plugin.layer;
  layer->id = concat(plugin.id, " on ", view(below->caps().id));
  layer->memory_below = below->memory();
  layer->streams_below = streams_of(*layer);
  layer->streams = streams_of_both(layer->streams_below);
  layer->tables_below = KernelsTables(layer->below, layer->below_ctx);
  layer->drafts = DraftCopies([](auto call) {
    constexpr auto member = decltype(call)::member;
    return pass_draft<member>(member);
  });
  const size_t before = verdicts.size();
  const VerdictSink sink(verdicts);
  std::string thrown;
  const octavo_status status =
      call_plugin(&thrown, [&] { return layer->table.open_layer(layer.get(), sink.get()); });
  sink.check();
  if (status != OCTAVO_OK || verdicts.size() == before)
    verdicts.push_back({OCTAVO_LEVEL_DEVICE, OCTAVO_DECLINE,
                        status != OCTAVO_OK ? OCTAVO_REASON_KERNEL : OCTAVO_REASON_ABI,
                        status != OCTAVO_OK
                            ? concat("open_layer failed with status ", status, thrown)
                            : "open_layer gave no verdict; expected one or more",
                        "", "install a corrected build of the plugin", Stage::kDevice});
  bool is_open = true;
  for (size_t i = before; i < verdicts.size(); ++i) {
    Verdict &v = verdicts[i];
    is_open = is_open && v.decision != OCTAVO_DECLINE;
    v.text = concat("layer ", layer->id, ": ", v.text);
    v.stage = Stage::kDevice;
  }
  if (!is_open) {
    layer->table.close_layer(layer.get());
    pass_resource(status, "layer " + layer->id + ": open_layer", Stage::kDevice);
    return nullptr;
  }
  const octavo_kernels both = both_of(*layer->table.calls);
  const octavo_memory memory = memory_of_both(layer->memory_below);
  return std::make_shared<OpenDevice>(std::move(below), both, memory,
                                      static_cast<octavo_layer_ctx *>(layer.release()));
}

void add_layers(Negotiation &n, const std::vector<std::string> &ids, const std::string &key,
                const octavo_host *host, std::vector<Verdict> &verdicts) {
  for (const std::string &id : ids) {
    if (std::any_of(n.layers.begin(), n.layers.end(),
                    [&](const Candidate &layer) { return layer.id == id; }))
      continue;
    std::shared_ptr<OpenDevice> device;
    if (is_layer(n, id, key, verdicts)) {
      Candidate c;
      c.id = id;
      c.is_tried = true;
      load_candidate(n, c, PluginRole::kLayer, host);
      if (c.described) c.described->file = c.described->checked = nullptr;  // nothing stays open
      if (c.plugin != nullptr) device = with_layer(n.device, *c.plugin, host, c.verdicts);
      if (c.plugin != nullptr && !c.plugin->has_backend)
        check_locked_verdict(c.id, n.trust, c.verdicts);
      if (declined(c.verdicts)) device = nullptr;
      verdicts.insert(verdicts.end(), c.verdicts.begin(), c.verdicts.end());
      n.layers.push_back(std::move(c));
    }
    n.device = device;
    if (n.device == nullptr) return;
  }
}

}  // namespace octavo
