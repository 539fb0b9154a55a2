// alignment: padding inside the backend shows in no bit of y, dx, dw and db.
//
// The wrapped kernels fail every check in which an FP8 gemm gets a size that is not a multiple of
// the alignment; here the results are compared with those of kernels that need no padding.
#include <algorithm>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {

void check_alignment(const Context &context) {
  const uint64_t own = std::max<uint64_t>(context.target.desc.caps->alignment, 1);
  if (own % kPaddedAlignment == 0) {
    throw Skip(text("the kernels need multiples of ", own,
                    " themselves, so there is no unpadded run to compare with"));
  }
  if (const std::string reason = declined_reason({context.target, context.seed, kPaddedAlignment});
      !reason.empty()) {
    throw Skip(text("the backend declined kernels of alignment ", kPaddedAlignment, ": ", reason));
  }
  Session plain({context.target, context.seed, own});
  Session padded({context.target, context.seed, kPaddedAlignment});
  for (Session *s : {&plain, &padded}) {
    s->add(standard_model());
    s->seal();
  }
  expect(plain.linears().size() == padded.linears().size(), "the backend takes ",
         plain.linears().size(), " linears on kernels of alignment ", own, " and ",
         padded.linears().size(), " on kernels of alignment ", kPaddedAlignment, " (",
         padded.declined(), ")");
  Host expected(plain, context.seed), found(padded, context.seed);
  for (Host *host : {&expected, &found}) host->add_standard_batches();
  for (int step = 0; step < 3; ++step) {
    for (Host *host : {&expected, &found}) {
      host->quantize_weights();
      for (Batch &batch : host->batches()) host->forward(batch);
      for (Batch &batch : host->batches()) host->backward(batch);
    }
    for (size_t i = 0; i < expected.batches().size(); ++i) {
      Batch &e = expected.batches()[i];
      Batch &f = found.batches()[i];
      const auto same = [&](const char *what, const Matrix &is, const Matrix &should) {
        expect_equal_bits(
            is, bytes_of(should),
            text(what, " of ", e.name, " in step ", step, " with padding to ", kPaddedAlignment));
      };
      same("y", f.y, e.y);
      same("dx", f.dx, e.dx);
      same("db", f.db, e.db);
    }
    for (uint32_t id = 0; id < plain.parameters().size(); ++id) {
      expected.gradient(id);
      found.gradient(id);
      expect_equal_bits(found.dw(id), bytes_of(expected.dw(id)),
                        text("dw of '", plain.parameters()[id].spec.name, "' in step ", step,
                             " with padding to ", kPaddedAlignment));
    }
    for (Host *host : {&expected, &found}) {
      host->optimizer_step();
      host->end_step();
      host->clear_gradients();
    }
  }
}

}  // namespace octavo::conformance
