// Tensors as handles of torch's C interface, whose libraries of ops run in later versions of torch.
// torch::stable::Tensor shares each handle through a counter of its own, and hot ops would pay for
// that memory more than for their checks.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace octavo::core {

// A borrowed tensor, or none.
class View {
 public:
  View() = default;
  explicit View(AtenTensorHandle handle) : handle_(handle) {}

  explicit operator bool() const { return handle_ != nullptr; }
  AtenTensorHandle handle() const { return handle_; }

  uint32_t dtype() const;  // OCTAVO_F32, ...; 0 for a dtype that no host tensor has
  uint32_t element_size() const;
  int64_t numel() const;
  int64_t dim() const;
  const int64_t *sizes() const;
  int64_t last() const { return dim() > 0 ? sizes()[dim() - 1] : 0; }
  const int64_t *strides() const;
  int32_t device_type() const;   // torch's number
  int32_t device_index() const;  // 0 on the CPU
  bool is_contiguous() const;
  // Whether the storage has so many bytes from the first element on: it was not released or made
  // smaller, as resize_ of a storage does.
  bool has(int64_t bytes) const;
  int64_t span() const;  // from the first to the last element, in elements
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

// The same tensor, owned.
Owned shared(View t);

}  // namespace octavo::core
