// Called through a C interface: no exception may leave.
#include "device_collective.h"

namespace gpt {
namespace {

uint64_t bytes_of(uint32_t dtype, uint64_t count) {
  return count * OCTAVO_DTYPE_BITS(dtype) / 8;
}

template <typename Body>
octavo_status guarded(Body &&body) {
  try {
    return body();
  } catch (...) {
    return OCTAVO_DEVICE;  // the device's own message was already given
  }
}

}  // namespace

DeviceCollective::DeviceCollective(const Device &device, const octavo_collective *inner)
    : device_(device), inner_(inner) {
  if (inner == nullptr) return;
  table_.size = sizeof table_;
  table_.kind = OCTAVO_KIND_COLLECTIVE;
  table_.ctx = this;
  table_.world = inner->world;
  table_.run = run;
  table_.broadcast = inner->broadcast != nullptr ? broadcast : nullptr;
}

const octavo_collective *DeviceCollective::table() const {
  return inner_ == nullptr || device_.is_host() ? inner_ : &table_;
}

octavo_status DeviceCollective::run(void *ctx, uint32_t collective, uint32_t dtype,
                                    const void *send, uint64_t send_count, void *recv,
                                    uint64_t recv_count, void *stream) {
  auto &self = *static_cast<DeviceCollective *>(ctx);
  return guarded([&] {
    const uint64_t sent = bytes_of(dtype, send_count);
    const uint64_t received = bytes_of(dtype, recv_count);
    self.send_.grow(sent);
    self.recv_.grow(received);
    self.device_.copy(self.send_.data(), send, sent);
    const octavo_status status =
        self.inner_->run(self.inner_->ctx, collective, dtype, self.send_.data(), send_count,
                         self.recv_.data(), recv_count, stream);
    if (status == OCTAVO_OK) self.device_.copy(recv, self.recv_.data(), received);
    return status;
  });
}

octavo_status DeviceCollective::broadcast(void *ctx, uint32_t root, void *data, uint64_t bytes,
                                          void *stream) {
  auto &self = *static_cast<DeviceCollective *>(ctx);
  return guarded([&] {
    self.send_.grow(bytes);
    self.device_.copy(self.send_.data(), data, bytes);  // what the root sends
    const octavo_status status =
        self.inner_->broadcast(self.inner_->ctx, root, self.send_.data(), bytes, stream);
    if (status == OCTAVO_OK) self.device_.copy(data, self.send_.data(), bytes);
    return status;
  });
}

}  // namespace gpt
