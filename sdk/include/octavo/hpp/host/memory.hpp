// octavo/hpp/host/memory.hpp: memory of a run's device, for hosts without a tensor library.
//
// What must not go wrong: on a GPU the addresses are the device's; the host reads them by copying.
#ifndef OCTAVO_HPP_HOST_MEMORY_HPP
#define OCTAVO_HPP_HOST_MEMORY_HPP

#include <utility>

#include "octavo/hpp/host/run.hpp"
#include "octavo/hpp/host/tensor.hpp"

namespace octavo {
inline namespace hpp {

// The memory that the calls of a run work on. Lives no longer than the run.
class Memory {
 public:
  explicit Memory(const Run &run)
      : host_(&run.host()), table_(run.interface<octavo_memory>(OCTAVO_STR(OCTAVO_MEMORY_ID))) {
    if (const octavo_session_desc *d = octavo_run_session_desc(run.get()); d != nullptr)
      ctx_ = d->kernels_ctx;
  }

  // Whether the calls work on the host's own memory.
  bool is_host() const { return table_ == nullptr; }
  // Between the device and the host, either way. Begins after the calls before it and waits.
  void copy(void *to, const void *from, uint64_t bytes) const {
    host_->require(table_->copy(ctx_, to, from, bytes), "copy of octavo.memory/1");
  }
  // The value at an address of the device.
  template <typename T>
  T read(const T *at) const {
    if (is_host()) return *at;
    T value{};
    copy(&value, at, sizeof value);
    return value;
  }

 private:
  friend class DeviceBuffer;
  Host *host_;
  const octavo_memory *table_;
  void *ctx_ = nullptr;
};

// Bytes of a device at a multiple of 256. Move only; lives no longer than the Memory.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(const Memory &memory, uint64_t bytes = 0) : memory_(&memory) {
    grow(bytes);
  }
  DeviceBuffer(DeviceBuffer &&other) noexcept
      : memory_(other.memory_),
        own_(std::move(other.own_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer &operator=(DeviceBuffer &&) = delete;
  ~DeviceBuffer() { release(); }

  // Forgets the old content when the buffer is too small.
  void grow(uint64_t bytes) {
    if (memory_->is_host()) {
      own_.grow(bytes);
    } else if (bytes > bytes_) {
      release();
      memory_->host_->require(memory_->table_->allocate(memory_->ctx_, bytes, &data_),
                              "allocate of octavo.memory/1");
      bytes_ = bytes;
    }
  }
  void *data() { return memory_->is_host() ? own_.data() : data_; }

 private:
  void release() {
    if (data_ != nullptr) memory_->table_->release(memory_->ctx_, data_);
    data_ = nullptr;
    bytes_ = 0;
  }

  const Memory *memory_;
  Array<unsigned char> own_;
  void *data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace hpp
}  // namespace octavo

#endif
