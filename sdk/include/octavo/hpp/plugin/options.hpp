// octavo/hpp/plugin/options.hpp: options stated once, as members of a struct.
//
//   struct Options {
//     bool weight_cache = true;
//     static void list(plugin::OptionList<Options> &l) {
//       l.add("weight_cache", &Options::weight_cache, "keeps FP8 codes of weights between steps");
//     }
//   };
//
// The member's type is the option's type, its initializer the default. An enum is a choice of
// texts: choices({"max", "most_recent"}) names its values from 0 on. Combinations that no session
// can have are a table of OptionRule. An option with per_linear() may differ for single linears:
// those with other values than the session's are computed by an object of the class of their own.
#ifndef OCTAVO_HPP_PLUGIN_OPTIONS_HPP
#define OCTAVO_HPP_PLUGIN_OPTIONS_HPP

#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "octavo/backend.h"
#include "octavo/hpp/plugin/device.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// A backend without options.
struct NoOptions;

template <typename Options>
class OptionList {
 public:
  class Entry {
   public:
    // Inclusive bounds of a number.
    Entry &range(double low, double high) {
      const bool whole = option_.initial.type == OCTAVO_VALUE_INT;
      option_.low = whole ? value_of(static_cast<int64_t>(low)) : value_of(low);
      option_.high = whole ? value_of(static_cast<int64_t>(high)) : value_of(high);
      return *this;
    }
    // The legal texts; they must be literals or live as long.
    Entry &choices(std::initializer_list<const char *> texts) {
      for (const char *t : texts) choices_.push_back(borrow(t));
      if (is_enum_) option_.initial.text = choices_.at(enum_default_);
      return *this;
    }
    // A linear may have a value of its own.
    Entry &per_linear() {
      is_per_linear_ = true;
      return *this;
    }
    // Why no linear has one; a literal.
    Entry &per_session(const char *why) {
      why_ = why;
      return *this;
    }

   private:
    friend OptionList;
    octavo_option option_{};
    std::vector<octavo_str> choices_;
    bool is_enum_ = false;
    size_t enum_default_ = 0;
    bool is_per_linear_ = false;
    const char *why_ = nullptr;
    std::function<void(Options &, const octavo_value &)> set_;
    std::function<octavo_value(const Options &)> get_;
  };

  OptionList() { Options::list(*this); }
  OptionList(const OptionList &) = delete;
  OptionList &operator=(const OptionList &) = delete;

  // `name` and `help` must be literals or live as long. `help`: one sentence, with the unit.
  template <typename Member>
  Entry &add(const char *name, Member Options::*member, const char *help) {
    static_assert(std::is_arithmetic_v<Member> || std::is_enum_v<Member> ||
                      std::is_same_v<Member, std::string>,
                  "an option is a bool, a number, a std::string, or an enum with choices");
    Entry &e = entries_.emplace_back();
    e.option_ = make<octavo_option>(OCTAVO_KIND_OPTION);
    e.option_.name = borrow(name);
    e.option_.help = borrow(help);
    const Member &initial = defaults_.*member;
    if constexpr (std::is_same_v<Member, bool>) {
      e.option_.initial = value_of(initial);
      e.set_ = [member](Options &o, const octavo_value &v) { o.*member = v.integer != 0; };
      e.get_ = [member](const Options &o) { return value_of(o.*member); };
    } else if constexpr (std::is_enum_v<Member>) {
      e.is_enum_ = true;
      e.enum_default_ = static_cast<size_t>(initial);
      e.option_.initial = value_of(std::string_view());
      e.set_ = [member, &e](Options &o, const octavo_value &v) {
        for (size_t i = 0; i < e.choices_.size(); ++i)
          if (view(e.choices_[i]) == view(v.text)) o.*member = static_cast<Member>(i);
      };
      e.get_ = [member, &e](const Options &o) {
        return value_of(view(e.choices_.at(static_cast<size_t>(o.*member))));
      };
    } else if constexpr (std::is_integral_v<Member>) {
      e.option_.initial = value_of(static_cast<int64_t>(initial));
      // What the member cannot hold is never asked for.
      if constexpr (sizeof(Member) < sizeof(int64_t))
        e.range(static_cast<double>(std::numeric_limits<Member>::min()),
                static_cast<double>(std::numeric_limits<Member>::max()));
      else if constexpr (std::is_unsigned_v<Member>)
        e.option_.low = value_of(int64_t{0});
      e.set_ = [member](Options &o, const octavo_value &v) {
        o.*member = static_cast<Member>(v.integer);
      };
      e.get_ = [member](const Options &o) { return value_of(static_cast<int64_t>(o.*member)); };
    } else if constexpr (std::is_floating_point_v<Member>) {
      e.option_.initial = value_of(static_cast<double>(initial));
      e.set_ = [member](Options &o, const octavo_value &v) {
        o.*member = static_cast<Member>(v.real);
      };
      e.get_ = [member](const Options &o) { return value_of(static_cast<double>(o.*member)); };
    } else {
      e.option_.initial = value_of(std::string_view(initial));
      e.set_ = [member](Options &o, const octavo_value &v) { o.*member = text(v.text); };
      e.get_ = [member](const Options &o) { return value_of(std::string_view(o.*member)); };
    }
    return e;
  }

  // Why no linear has values of its own for options that give no reason themselves; a literal.
  void per_session(const char *why) { why_ = why; }

  // list_options
  octavo_status emit(const octavo_option_sink *sink) const {
    for (const Entry &e : entries_) {
      octavo_option o = e.option_;
      o.choices = e.choices_.empty() ? nullptr : e.choices_.data();
      o.choice_count = e.choices_.size();
      if (const octavo_status status = sink->option(sink->ctx, &o); status != OCTAVO_OK)
        return status;
    }
    return OCTAVO_OK;
  }

  // The values of a session, or of a linear on top of them; liboctavo has checked them, so only a
  // foreign host can be refused.
  Options parse(const octavo_option_value *values, uint64_t count, Options options = {}) const {
    for (uint64_t i = 0; i < count; ++i) {
      const Entry *e = find(view(values[i].name));
      if (e == nullptr)
        throw Error(OCTAVO_INVALID, "option \"" + text(values[i].name) +
                                        "\": expected one of list_options, found none");
      if (values[i].value.type != e->option_.initial.type)
        throw Error(OCTAVO_INVALID, "option \"" + text(e->option_.name) +
                                        "\": expected a value of type " +
                                        std::to_string(e->option_.initial.type) + ", found " +
                                        std::to_string(values[i].value.type));
      e->set_(options, values[i].value);
    }
    return options;
  }

  // Whether a linear may have these values: the refusal of the first one that it may not.
  Verdict take_for_linear(const octavo_option_value *values, uint64_t count) const {
    bool has_any = why_ != nullptr;
    for (const Entry &e : entries_) has_any = has_any || e.is_per_linear_;
    for (uint64_t i = 0; i < count; ++i) {
      const std::string name = text(values[i].name);
      const Entry *found = find(name);
      if (found != nullptr && found->is_per_linear_) continue;
      const char *text = !has_any                 ? "this backend has no options for single linears"
                         : found == nullptr       ? "this backend has no such option"
                         : found->why_ != nullptr ? found->why_
                         : why_ != nullptr        ? why_
                                                  : "the option is one of the whole session";
      // Literals and kept texts end with a zero.
      const std::string key = std::string("fp8.") + this_plugin.id.load() + "." + name;
      return decline(OCTAVO_REASON_OPTION, text,
                     {interned(key).data, "", "leave the linear's own option out"}, name);
    }
    return accept();
  }
  bool are_equal(const Options &a, const Options &b) const {
    for (const Entry &e : entries_) {
      const octavo_value x = e.get_(a), y = e.get_(b);
      if (x.integer != y.integer || std::memcmp(&x.real, &y.real, sizeof x.real) != 0 ||
          view(x.text) != view(y.text))
        return false;
    }
    return true;
  }

  // "margin = 3", as a configuration has it.
  std::string shown(const Options &options, std::string_view name) const {
    const Entry *e = find(name);
    if (e == nullptr) return std::string(name);
    const octavo_value v = e->get_(options);
    char number[40];
    std::snprintf(number, sizeof number, "%.9g", v.real);
    return std::string(name) + " = " +
           (v.type == OCTAVO_VALUE_TEXT   ? '"' + text(v.text) + '"'
            : v.type == OCTAVO_VALUE_BOOL ? v.integer != 0 ? "true" : "false"
            : v.type == OCTAVO_VALUE_INT  ? std::to_string(v.integer)
                                          : number);
  }

 private:
  const Entry *find(std::string_view name) const {
    for (const Entry &e : entries_)
      if (view(e.option_.name) == name) return &e;
    return nullptr;
  }

  Options defaults_{};
  const char *why_ = nullptr;
  std::deque<Entry> entries_;  // addresses stay
};

struct NoOptions {
  static void list(OptionList<NoOptions> &) {}
};

// A combination of options that no session can have.
template <typename Options>
struct OptionRule {
  bool (*is_broken)(const Options &);
  const char *text;      // why not
  Remedy remedy;         // the nearest legal setting
  const char *found[3];  // the options that the evidence quotes
};

// For check(): one refusal for each rule that is broken.
template <typename Options, size_t N>
void check_options(const Options &options, const OptionRule<Options> (&rules)[N],
                   Verdicts &verdicts) {
  const OptionList<Options> list;
  for (const OptionRule<Options> &rule : rules) {
    if (!rule.is_broken(options)) continue;
    std::string evidence;
    for (const char *name : rule.found)
      if (name != nullptr) evidence += (evidence.empty() ? "" : ", ") + list.shown(options, name);
    verdicts.decline(OCTAVO_REASON_OPTION, rule.text, rule.remedy, std::move(evidence));
  }
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
