// Copies wait: a training on a GPU has its loops there, too, and needs none of this.
#include "device.h"

#include <utility>

namespace gpt {

Device::Device(const octavo_run *run, OctavoHost &host)
    : host_(host), memory_(octavo_memory_of(run)) {
  const octavo_session_desc *desc = octavo_session_desc_of(run);
  if (desc != nullptr) ctx_ = desc->kernels_ctx;
}

void Device::copy(void *to, const void *from, size_t bytes) const {
  host_.check(memory_->copy(ctx_, to, from, bytes), "copy", "octavo.memory/1");
}

float Device::read(const float *value) const {
  if (is_host()) return *value;
  float read = 0.0f;
  copy(&read, value, sizeof read);
  return read;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer &&other) noexcept
    : device_(other.device_),
      own_(std::move(other.own_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer::~DeviceBuffer() {
  release();
}

void DeviceBuffer::release() {
  if (data_ != nullptr) device_->memory_->release(device_->ctx_, data_);
  data_ = nullptr;
  bytes_ = 0;
}

void DeviceBuffer::grow(size_t bytes) {
  if (device_->is_host()) {
    own_.grow(bytes);
  } else if (bytes > bytes_) {
    release();
    device_->host_.check(device_->memory_->allocate(device_->ctx_, bytes, &data_), "allocate",
                         "octavo.memory/1");
    bytes_ = bytes;
  }
}

Twin::Twin(const Device &device, float *host, size_t count)
    : device_(device), host_(host), count_(count), there_(device) {
  if (device.is_host()) return;
  there_.grow(count * sizeof(float));
  upload();
}

void Twin::upload() {
  if (!device_.is_host()) device_.copy(there_.data(), host_, count_ * sizeof(float));
}

void Twin::download() {
  if (!device_.is_host()) device_.copy(host_, there_.data(), count_ * sizeof(float));
}

}  // namespace gpt
