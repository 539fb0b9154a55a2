// contract.table: the tables, the options, also those of the manifest, and the verdicts of
// check_session.
//
// Callbacks copy what they get; texts are compared by content, since a backend may build them anew.
#include <cstring>
#include <iterator>
#include <set>
#include <vector>

#include "all_checks.h"
#include "in_flight.h"
#include "report.h"
#include "wrapped_kernels.h"

namespace octavo::conformance {
namespace {

struct Option {
  uint32_t kind;
  std::string name, help;
  octavo_value initial, low, high;
  std::string initial_text;
  std::vector<std::string> choices;
};

octavo_status take_option(void *ctx, const octavo_option *o) {
  Option option{o->kind, text_of(o->name), text_of(o->help), o->initial, o->low, o->high, "", {}};
  if (o->initial.type == OCTAVO_VALUE_TEXT) option.initial_text = text_of(o->initial.text);
  for (uint64_t i = 0; o->choices != nullptr && i < o->choice_count; ++i) {
    option.choices.push_back(text_of(o->choices[i]));
  }
  static_cast<std::vector<Option> *>(ctx)->push_back(std::move(option));
  return OCTAVO_OK;
}

std::vector<Option> list_options(const octavo_backend &backend) {
  std::vector<Option> options;
  const octavo_option_sink sink = {sizeof sink, OCTAVO_KIND_OPTION_SINK, &options, take_option};
  calling("list_options");
  const octavo_status status = backend.list_options(&sink);
  expect(status == OCTAVO_OK, "list_options answered ", status_name(status));
  return options;
}

bool same_value(const octavo_value &a, const octavo_value &b) {
  return a.type == b.type && a.integer == b.integer && !(a.real < b.real) && !(b.real < a.real);
}

void check_option(const Option &o) {
  expect(o.kind == OCTAVO_KIND_OPTION, "option '", o.name, "' has kind ", o.kind, "; expected ",
         OCTAVO_KIND_OPTION + 0);
  expect(!o.name.empty() && !o.help.empty(), "option '", o.name, "' lacks a name or a help text");
  expect(o.initial.type >= OCTAVO_VALUE_INT && o.initial.type <= OCTAVO_VALUE_TEXT, "option '",
         o.name, "' has a default of unknown type ", o.initial.type);
  const auto below = [](const octavo_value &a, const octavo_value &b) {
    return a.type == OCTAVO_VALUE_REAL ? a.real < b.real : a.integer < b.integer;
  };
  for (const octavo_value *bound : {&o.low, &o.high}) {
    expect(bound->type == 0 || bound->type == o.initial.type, "option '", o.name,
           "' has a bound of another type than its default");
  }
  expect(o.low.type == 0 || !below(o.initial, o.low), "option '", o.name,
         "': the default lies below the lower bound");
  expect(o.high.type == 0 || !below(o.high, o.initial), "option '", o.name,
         "': the default lies above the upper bound");
  bool found = o.choices.empty();
  for (const std::string &choice : o.choices) found = found || choice == o.initial_text;
  expect(found, "option '", o.name, "': the default '", o.initial_text,
         "' is not among its choices");
}

// A sink that has enough after one.
void check_ended_options(const octavo_backend &backend, size_t options) {
  size_t count = 0;
  const octavo_option_sink sink = {sizeof sink, OCTAVO_KIND_OPTION_SINK, &count,
                                   [](void *ctx, const octavo_option *) -> octavo_status {
                                     ++*static_cast<size_t *>(ctx);
                                     return OCTAVO_NO_RESOURCE;
                                   }};
  if (options < 2) return;
  calling("list_options");
  const octavo_status status = backend.list_options(&sink);
  expect(status != OCTAVO_OK && count == 1, "list_options answered ", status_name(status),
         " after ", count, " options to a sink that failed at the first; expected it to end there");
}

void check_options(const Target &target) {
  const std::vector<Option> first = list_options(*target.backend);
  const std::vector<Option> second = list_options(*target.backend);
  expect(first.size() == second.size(), "list_options emitted ", first.size(), " options, then ",
         second.size(), "; it must always emit the same ones");
  check_ended_options(*target.backend, first.size());
  std::set<std::string> names;
  for (size_t i = 0; i < first.size(); ++i) {
    const Option &a = first[i];
    const Option &b = second[i];
    check_option(a);
    expect(names.insert(a.name).second, "option '", a.name, "' is listed twice");
    expect(a.name == b.name && a.help == b.help && same_value(a.initial, b.initial) &&
               same_value(a.low, b.low) && same_value(a.high, b.high) && a.choices == b.choices,
           "list_options described option '", a.name, "' differently the second time");
    bool given = false;
    for (uint64_t k = 0; k < target.desc.option_count; ++k) {
      const octavo_option_value &value = target.desc.options[k];
      given = given || (text_of(value.name) == a.name && value.value.type == a.initial.type);
    }
    expect(given, "the session description lacks option '", a.name, "' or has it in another type");
  }
}

struct Verdicts {
  int count = 0;
  std::string declined, malformed;
};

void take_verdict(void *ctx, const octavo_verdict *v) {
  auto &verdicts = *static_cast<Verdicts *>(ctx);
  ++verdicts.count;
  if (v->kind != OCTAVO_KIND_VERDICT || v->size < OCTAVO_SIZE_THROUGH(octavo_verdict, remedy)) {
    verdicts.malformed = text("size ", v->size, ", kind ", v->kind);
  }
  if (v->level != OCTAVO_LEVEL_SESSION)
    verdicts.malformed = text("level ", v->level, "; expected OCTAVO_LEVEL_SESSION");
  if (v->decision == OCTAVO_DECLINE) verdicts.declined = text("'", text_of(v->text), "'");
}

#define OCTAVO_EXPECT_FUNCTION(table, name) \
  expect((table)->name != nullptr, "the table's " #name " is null")

// A table of which every function is required, but the one at `optional`.
template <typename Table>
void expect_complete(const Table *table, uint32_t kind, const char *id, size_t optional = 0) {
  if (table == nullptr) return;
  expect(table->kind == kind, "the table of ", id, " has kind ", table->kind, "; expected ", kind);
  expect(table->size >= sizeof(Table), "the table of ", id, " has size ", table->size,
         "; minor 0 has ", sizeof(Table));
  void (*functions[sizeof(Table) / sizeof(void *) - 1])();
  std::memcpy(functions, reinterpret_cast<const uint8_t *>(table) + sizeof(void *),
              sizeof functions);
  for (size_t i = 0; i < std::size(functions); ++i)
    expect(functions[i] != nullptr || (i + 1) * sizeof(void *) == optional, "function ", i + 1,
           " of the table of ", id, " is null; expected all that its comment requires");
}

Verdicts ask(const Context &context) {
  WrappedKernels kernels(context.target.desc, context.alignment, context.lacking);
  const octavo_session_desc desc = kernels.desc();
  Verdicts verdicts;
  const octavo_verdict_sink sink = {sizeof sink, OCTAVO_KIND_VERDICT_SINK, &verdicts, take_verdict};
  calling("check_session");
  const octavo_status status = context.target.backend->check_session(&desc, &sink);
  kernels.expect_setup("check_session", 0);
  expect(status == OCTAVO_OK, "check_session answered ", status_name(status));
  return verdicts;
}

// An interface has exactly its id: a later major version begins with the same letters.
void check_ids(const Target &target) {
  if (!target.interface) return;
  for (const std::string id : {OCTAVO_BACKEND_ID, OCTAVO_OPTIMIZER_ID, OCTAVO_FUSED_ID,
                               OCTAVO_SHARD_ID, OCTAVO_KERNELS_ID})
    for (const std::string &other : {id + "0", id.substr(0, id.size() - 1)})
      expect(target.interface(str_of(other)) == nullptr, "get_interface of '", other,
             "' gave a table; expected null, which an id that is not the plugin's gets");
}

// A host of another major version is refused before any of its functions is called.
void check_other_host(const Target &target) {
  if (target.query == nullptr) return;
  static bool is_called = false;  // the host is static, for a plugin that keeps it
  static auto host = octavo::make<octavo_host>(OCTAVO_KIND_HOST);
  host.abi_major = OCTAVO_ABI_MAJOR + 1;
  host.diagnose = [](void *, const octavo_diagnostic *) { is_called = true; };
  host.get_extension = [](void *, octavo_str) -> const void * {
    is_called = true;
    return nullptr;
  };
  const octavo_plugin *plugin = nullptr;
  calling(OCTAVO_PLUGIN_SYMBOL);
  const octavo_status status = target.query(&host, &plugin);
  expect(status == OCTAVO_INCOMPATIBLE, OCTAVO_PLUGIN_SYMBOL, " with a host of major version ",
         host.abi_major, " answered ", status_name(status), "; expected OCTAVO_INCOMPATIBLE");
  expect(!is_called, OCTAVO_PLUGIN_SYMBOL, " called a function of a host of another major version");
}

}  // namespace

std::string declined_reason(const Context &context) {
  return ask(context).declined;
}

void check_table(const Context &context) {
  const octavo_backend *b = context.target.backend;
  expect(b->kind == OCTAVO_KIND_BACKEND, "the backend table has kind ", b->kind, "; expected ",
         OCTAVO_KIND_BACKEND + 0);
  expect(OCTAVO_HAS(b, octavo_backend, close_session), "the backend table has size ", b->size,
         "; minor 0 has ", OCTAVO_SIZE_THROUGH(octavo_backend, close_session));
  OCTAVO_EXPECT_FUNCTION(b, list_options);
  OCTAVO_EXPECT_FUNCTION(b, check_session);
  OCTAVO_EXPECT_FUNCTION(b, open_session);
  OCTAVO_EXPECT_FUNCTION(b, add_parameter);
  OCTAVO_EXPECT_FUNCTION(b, add_linear);
  OCTAVO_EXPECT_FUNCTION(b, seal);
  OCTAVO_EXPECT_FUNCTION(b, linear_plan);
  OCTAVO_EXPECT_FUNCTION(b, linear_forward);
  OCTAVO_EXPECT_FUNCTION(b, linear_backward);
  OCTAVO_EXPECT_FUNCTION(b, close_session);
  const Target &target = context.target;
  expect_complete(target.optimizer, OCTAVO_KIND_OPTIMIZER, OCTAVO_OPTIMIZER_ID,
                  offsetof(octavo_optimizer, prepare_step));
  expect_complete(target.gradients, OCTAVO_KIND_GRADIENTS, OCTAVO_GRADIENTS_ID);
  expect_complete(target.fused, OCTAVO_KIND_FUSED, OCTAVO_FUSED_ID);
  expect_complete(target.grouped, OCTAVO_KIND_GROUPED, OCTAVO_GROUPED_ID);
  expect_complete(target.shard, OCTAVO_KIND_SHARD, OCTAVO_SHARD_ID);
  check_options(context.target);
  check_ids(target);
  check_other_host(target);
  expect(context.target.stale_manifest.empty(), context.target.stale_manifest);
  const Verdicts verdicts = ask(context);
  expect(verdicts.malformed.empty(),
         "check_session gave a malformed verdict: ", verdicts.malformed);
  expect(verdicts.declined.empty(), "check_session declined: ", verdicts.declined);
  expect(verdicts.count > 0, "check_session gave no verdict; at least one was expected");
}

}  // namespace octavo::conformance
