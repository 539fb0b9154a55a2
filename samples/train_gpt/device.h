// Where the tensors of Octavo's calls lie: in this program's own memory, or in that of a GPU.
//
// The loops of this program run on the CPU. So what a call on a GPU reads is copied there first and
// what it wrote is copied back; on the CPU both are the same memory and nothing is copied.
#ifndef TRAIN_GPT_DEVICE_H
#define TRAIN_GPT_DEVICE_H

#include <octavo/octavo.h>

#include "buffer.h"
#include "octavo_host.h"

namespace gpt {

class Device {
 public:
  // That of an opened run, which outlives this object, as `host` does.
  Device(const octavo_run *run, OctavoHost &host);

  // Whether calls work on this program's own memory.
  bool is_host() const { return memory_ == nullptr; }
  // Waits for the calls before it. Throws when the device refuses.
  void copy(void *to, const void *from, size_t bytes) const;
  // What stands at an address of the device.
  float read(const float *value) const;

 private:
  friend class DeviceBuffer;
  OctavoHost &host_;
  const octavo_memory *memory_ = nullptr;
  void *ctx_ = nullptr;
};

// Bytes of a device, aligned to 256.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(const Device &device) : device_(&device) {}
  DeviceBuffer(DeviceBuffer &&other) noexcept;
  ~DeviceBuffer();
  DeviceBuffer &operator=(DeviceBuffer &&other) = delete;

  // Forgets the old content when the buffer is too small.
  void grow(size_t bytes);
  void *data() { return device_->is_host() ? own_.data() : data_; }

 private:
  void release();

  const Device *device_;
  Buffer<unsigned char> own_;
  void *data_ = nullptr;
  size_t bytes_ = 0;
};

// Floats of the program, which outlive this object, and the same ones on the device.
class Twin {
 public:
  Twin(const Device &device, float *host, size_t count);

  float *device() { return device_.is_host() ? host_ : static_cast<float *>(there_.data()); }
  void upload();
  void download();

 private:
  const Device &device_;
  float *host_;
  size_t count_;
  DeviceBuffer there_;
};

// A twin with a buffer of its own, zero at first.
struct TwinBuffer {
  TwinBuffer(const Device &device, size_t count) : host(count), twin(device, host.data(), count) {}

  Buffer<float> host;
  Twin twin;
};

}  // namespace gpt

#endif
