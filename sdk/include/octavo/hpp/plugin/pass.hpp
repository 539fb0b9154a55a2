// octavo/hpp/plugin/pass.hpp: one verb under way: its workspace, and the kernels it calls.
//
// The same code runs in two ways. Measuring, at linear_plan, there is no memory: pieces have null
// data, no kernel runs, and what everything needs is added up. Running, kernels are called with it.
// After a kernel failed no other runs; the verb answers with that status.
#ifndef OCTAVO_HPP_PLUGIN_PASS_HPP
#define OCTAVO_HPP_PLUGIN_PASS_HPP

#include <algorithm>
#include <type_traits>

#include "octavo/hpp/plugin/device.hpp"
#include "octavo/hpp/plugin/operands.hpp"
#include "octavo/hpp/plugin/workspace.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

class Pass {
 public:
  // `rows` is M, or 0 where a verb has none. A null stream and null buffers are legal in both ways.
  // Backward reads `saved`, all other verbs write it.
  Pass(const Device &device, bool measuring, int64_t rows, void *stream, void *workspace,
       void *saved, bool reads_saved = false)
      : device_(device),
        measuring_(measuring),
        reads_saved_(reads_saved),
        m_(rows),
        stream_(stream),
        work_(workspace),
        saved_(static_cast<char *>(saved)) {}

  const Device &device() const { return device_; }
  bool measuring() const { return measuring_; }
  // A branch that a call may take: a plan measures both sides of one.
  bool measures_or(bool condition) const { return measuring_ || condition; }
  // The same, of the dtypes of a call: kernels are asked about one after the other.
  bool measures_or_takes(bool condition) const {
    return device_.has_questions() ? condition : measures_or(condition);
  }
  octavo_status status() const { return status_; }
  uint64_t workspace_bytes() const { return std::max(work_.used() + kernel_bytes_, kernel_end_); }
  uint64_t saved_bytes() const { return static_cast<uint64_t>(saved_bytes_); }

  // ---- Pieces. ----

  // The workspace, for pieces of any kind.
  Carver &workspace() { return work_; }

  // Room for the codes of a matrix [rows, cols], padded as FP8 products need it.
  Codes codes(int64_t rows, int64_t cols, uint32_t dtype, Directions directions,
              uint32_t granularity = OCTAVO_PER_TENSOR);

  // Rows in the workspace for codes whose columns are elsewhere or nowhere; per tensor they share
  // the scale_inv that is there.
  void add_rows(Codes &codes, int64_t rows, int64_t cols, uint32_t dtype,
                uint32_t granularity = OCTAVO_PER_TENSOR);

  // Codes of x [M, cols] and their scale_inv in `saved`, in which every byte is written: x as it
  // is, or transposed. The same in forward, which writes them, and in backward, which reads them.
  Codes saved_codes(Directions direction, int64_t cols, uint32_t dtype,
                    uint32_t granularity = OCTAVO_PER_TENSOR);
  Codes saved_columns(int64_t cols, uint32_t dtype, uint32_t granularity = OCTAVO_PER_TENSOR) {
    return saved_codes(kColumns, cols, dtype, granularity);
  }
  // Rows of `saved` come in multiples of this: whole blocks, and what follows codes is aligned.
  int64_t saved_rows() const { return saved_rows_; }

  // ---- Kernels; products.hpp defines them. ----

  // The session's flag, which casts of plain matrices set from now on; null: they set none.
  void watch(float *nonfinite) { nonfinite_ = nonfinite; }

  // in -> every direction of `out` that is there.
  void cast(const octavo_tensor &in, Codes &out, const Cast &how = Cast());
  // Adds how well `codes` represent `in`; nothing unless the host asks for it.
  void record(const octavo_tensor &in, const Operand &codes, const Statistics &statistics);
  // The largest absolute value of `in`, and whether an element is Inf or NaN, without a cast.
  void record_amax(const octavo_tensor &in, float *amax, float *nonfinite);
  // Codes of a weight into the panel order of `packed`.
  void pack(const octavo_tensor &codes, octavo_tensor packed);
  // d = a b^T + bias, by ProductFlags; padding of the operands does not show.
  void multiply(Operand a, Operand b, octavo_tensor &d, const octavo_tensor *bias = nullptr,
                uint32_t how = 0);
  // out = what the codes stand for, without their padding; or out += it.
  void decode(const Operand &in, octavo_tensor &out, bool accumulate = false);
  // out = in in another dtype, or out += in; both plain.
  void add(const octavo_tensor &in, octavo_tensor &out, bool accumulate);
  // db: column sums of dy before it is cast, through f32, since db may have another dtype.
  void add_column_sums(const octavo_tensor &dy, octavo_tensor &db, bool accumulate);
  // Zero bytes, which are 0 in every dtype.
  void clear(void *out, uint64_t bytes);

  // Any other kernel: fill what call() returns and pass it to run() with the kernel's name in
  // octavo_kernels or in a table of octavo/draft.
  template <typename Call>
  Call call(uint32_t kind) const {
    auto c = make<Call>(kind);
    c.stream = stream_;
    return c;
  }
  template <typename Table, typename Call>
  void run(octavo_status (*Table::*verb)(void *, const Call *), Call &call) {
    if (status_ != OCTAVO_OK) return;
    if (measuring_) device_.ask_about(call);
    if constexpr (HasWorkspace<Call>::value) {
      call.workspace = work_.take(0);
      if (measuring_) need(bytes_of(&call));
    }
    if (measuring_) return;
    const Table *table = device_.table<Table>();
    status_ = table == nullptr ? OCTAVO_UNSUPPORTED : (table->*verb)(device_.ctx(), &call);
  }

  // ---- A prologue fused into the cast of x; see fused.hpp. ----

  // x has a shape but no data: `prologue`, null while measuring, gives its values to the cast.
  void fuse(octavo_tensor &x, const octavo_prologue *prologue) {
    fused_ = &x;
    prologue_ = prologue;
    x.data = this;  // stands for x until read() writes it
  }
  // `in` with its values, for a kernel that reads it: a fused x is written to the workspace first.
  // The functions above do so; before a cast, it saves the prologue a second run.
  const octavo_tensor &read(const octavo_tensor &in) {
    if (in.data != this) return in;
    if (fused_->data == this) write_fused();
    return *fused_;
  }
  uint64_t prologue_bytes() const { return prologue_bytes_; }

 private:
  template <typename Call, typename = void>
  struct HasWorkspace : std::false_type {};
  template <typename Call>
  struct HasWorkspace<Call, std::void_t<decltype(Call::workspace)>> : std::true_type {};

  // Kernels run one after the other. In a verb of M rows the sum of what they ask for is enough,
  // and affine in M, which their maximum need not be. Else the maximum is.
  void need(uint64_t bytes) {
    if (m_ > 0)
      kernel_bytes_ += bytes;
    else
      kernel_end_ = std::max(kernel_end_, work_.used() + bytes);
  }
  uint64_t bytes_of(const void *call) {
    uint64_t bytes = 0;
    status_ = device_.kernels().workspace_bytes(device_.ctx(), call, &bytes);
    return (bytes + 255) / 256 * 256;
  }
  octavo_scale scales(uint32_t granularity, int64_t rows, int64_t cols) {
    void *data = work_.take(scale_shape(granularity, rows, cols).bytes());
    void *second = has_second(granularity) ? work_.take(sizeof(float)) : nullptr;
    return scale_of(granularity, cols, data, static_cast<float *>(second));
  }
  void cast_to_nearest(const octavo_tensor &in, Codes &out, const Cast &how);
  void cast_fp4(const octavo_tensor &in, octavo_quantize &q, const Cast &how);
  void write_fused();
  void multiply_once(Operand a, Operand b, octavo_tensor &d, const octavo_tensor *bias,
                     uint32_t how);
  void multiply_wide(Operand a, Operand b, octavo_tensor &d, const octavo_tensor *bias,
                     uint32_t how);

  const Device &device_;
  bool measuring_;
  bool reads_saved_;
  int64_t m_;
  void *stream_;
  Carver work_;
  char *saved_;
  int64_t saved_bytes_ = 0;
  int64_t saved_rows_ = 1;
  uint64_t kernel_bytes_ = 0;
  uint64_t kernel_end_ = 0;
  octavo_status status_ = OCTAVO_OK;
  float *nonfinite_ = nullptr;
  octavo_tensor *fused_ = nullptr;
  const octavo_prologue *prologue_ = nullptr;
  uint64_t prologue_bytes_ = 0;
};

inline Codes Pass::codes(int64_t rows, int64_t cols, uint32_t dtype, Directions directions,
                         uint32_t granularity) {
  const int64_t r = device_.aligned(rows, dtype), c = device_.aligned(cols, dtype);
  const bool per_tensor = granularity == OCTAVO_PER_TENSOR;
  const bool has_rows = (directions & kRows) != 0, has_columns = (directions & kColumns) != 0;
  octavo_scale of_rows{}, of_columns{};
  if (per_tensor || has_rows) of_rows = scales(granularity, r, c);
  if (!per_tensor && has_columns) of_columns = scales(granularity, c, r);
  return {has_rows ? work_.tensor(r, c, dtype) : octavo_tensor{},
          has_columns ? work_.tensor(c, r, dtype) : octavo_tensor{}, of_rows, of_columns};
}

inline void Pass::add_rows(Codes &codes, int64_t rows, int64_t cols, uint32_t dtype,
                           uint32_t granularity) {
  const int64_t r = device_.aligned(rows, dtype), c = device_.aligned(cols, dtype);
  const bool shares = granularity == OCTAVO_PER_TENSOR && codes.scale_inv.dtype != 0;
  if (!shares) codes.scale_inv = scales(granularity, r, c);
  codes.rows = work_.tensor(r, c, dtype);
}

inline Codes Pass::saved_codes(Directions direction, int64_t cols, uint32_t dtype,
                               uint32_t granularity) {
  if (reads_saved_ && !measuring_ && saved_ == nullptr && m_ > 0)
    throw Error(OCTAVO_INVALID, "expected saved as linear_forward wrote it, found null");
  const bool transposed = direction == kColumns, per_tensor = granularity == OCTAVO_PER_TENSOR;
  const Block block = block_of(granularity);
  // All three are powers of two.
  const int64_t multiple =
      std::max({int64_t{16}, transposed ? block.cols : block.rows, device_.alignment()});
  saved_rows_ = std::max(saved_rows_, multiple);
  const int64_t width = device_.aligned(cols, dtype), rows = round_up(m_, multiple);
  const auto bytes_of_scales = [&](int64_t n) {
    return transposed ? scale_shape(granularity, width, n).bytes()
                      : scale_shape(granularity, n, width).bytes();
  };
  const auto take = [&](int64_t bytes) {
    char *at = saved_ == nullptr ? nullptr : saved_ + saved_bytes_;
    saved_bytes_ += bytes;
    return at;
  };
  char *codes = take(transposed ? plugin::bytes_of(width, rows, dtype)
                                : plugin::bytes_of(rows, width, dtype));
  // Scales whose number follows M take the same whole number of bytes for each row of x, which
  // makes the plan's formula exact; what that leaves over is cleared.
  const int64_t bytes = bytes_of_scales(rows);
  const bool is_fixed = bytes_of_scales(multiple) == bytes_of_scales(2 * multiple);
  const int64_t room = is_fixed ? bytes : rows * divide_up(bytes_of_scales(multiple), multiple);
  char *scales = take(room);
  if (room > bytes && !reads_saved_)
    clear(scales == nullptr ? nullptr : scales + bytes, static_cast<uint64_t>(room - bytes));
  char *second = has_second(granularity) ? take(sizeof(float)) : nullptr;
  const octavo_scale scale_inv =
      scale_of(granularity, transposed ? rows : width, scales, reinterpret_cast<float *>(second));
  const bool apart = transposed && !per_tensor;
  return {transposed ? octavo_tensor{} : octavo_tensor{codes, rows, width, width, dtype, 0},
          transposed ? octavo_tensor{codes, width, rows, rows, dtype, 0} : octavo_tensor{},
          apart ? octavo_scale{} : scale_inv, apart ? scale_inv : octavo_scale{}};
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#include "octavo/hpp/plugin/products.hpp"

#endif
