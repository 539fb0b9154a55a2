// Tensors of one op call as handles of torch's C interface. torch::stable::Tensor shares each
// handle through a counter of its own, and hot ops would pay for that memory more than for their
// checks.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace octavo::ops {

// A borrowed tensor, or none.
class View {
 public:
  View() = default;
  explicit View(AtenTensorHandle handle) : handle_(handle) {}
  View(const torch::stable::Tensor &t) : handle_(t.get()) {}

  explicit operator bool() const { return handle_ != nullptr; }
  AtenTensorHandle handle() const { return handle_; }

  uint32_t dtype() const;  // OCTAVO_F32, ...; 0 for a dtype that no host tensor has
  int64_t numel() const;
  int64_t dim() const;
  const int64_t *sizes() const;
  int64_t last() const { return dim() > 0 ? sizes()[dim() - 1] : 0; }
  const int64_t *strides() const;
  int32_t device_type() const;   // torch's number
  int32_t device_index() const;  // 0 on the CPU
  bool is_contiguous() const;
  const void *data() const;
  void *mutable_data() const;

 private:
  AtenTensorHandle handle_ = nullptr;
};

// A tensor that this call owns.
class Owned : public View {
 public:
  Owned() = default;
  explicit Owned(AtenTensorHandle handle) : View(handle) {}
  Owned(Owned &&other) noexcept : View(std::exchange(static_cast<View &>(other), View())) {}
  Owned &operator=(Owned &&other) noexcept {
    std::swap(static_cast<View &>(*this), static_cast<View &>(other));
    return *this;
  }
  ~Owned() {
    if (*this) aoti_torch_delete_tensor_object(handle());
  }
  AtenTensorHandle release() { return std::exchange(static_cast<View &>(*this), View()).handle(); }
};

using Views = std::vector<View>;

// The arguments of a boxed op, which belong to the callee, and the place of its results. Take each
// argument once, and all of them before a result is given.
class Stack {
 public:
  explicit Stack(StableIValue *stack) : stack_(stack) { owned_.reserve(16); }

  int64_t integer(uint32_t at) const { return torch::stable::detail::to<int64_t>(stack_[at]); }
  double real(uint32_t at) const { return torch::stable::detail::to<double>(stack_[at]); }
  View tensor(uint32_t at) { return own(stack_[at]); }
  View optional_tensor(uint32_t at);
  Views tensors(uint32_t at);

  void give(uint32_t at, Owned &&result) {
    stack_[at] = torch::stable::detail::from(result.release());
  }

 private:
  View own(StableIValue value) {
    return owned_.emplace_back(torch::stable::detail::to<AtenTensorHandle>(value));
  }

  StableIValue *stack_;
  std::vector<Owned> owned_;
};

}  // namespace octavo::ops
