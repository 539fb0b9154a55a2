// tiny.cpp: the least that octavo/plugin.hpp accepts, which refuses to run anywhere.
#include "octavo/plugin.hpp"

namespace {

using namespace octavo::plugin;

struct Tiny : Backend<Tiny> {
  static void check(const Device &, const NoOptions &, Verdicts &verdicts) {
    verdicts.decline(OCTAVO_REASON_POLICY, "tiny refuses everything", "choose another backend");
  }
  void declare(Slots &) {}
  void forward(Pass &, const ForwardCall &) const {}
  void backward(Pass &, const BackwardCall &) const {}
};

}  // namespace

OCTAVO_PLUGIN(Tiny, check, declare, forward, backward)
