// The collective of a rank for tensors on its device: through this program's memory.
//
// Ranks of this program are threads of one process and share a GPU, which NCCL does not offer.
#ifndef TRAIN_GPT_DEVICE_COLLECTIVE_H
#define TRAIN_GPT_DEVICE_COLLECTIVE_H

#include "device.h"

namespace gpt {

class DeviceCollective {
 public:
  // inner: the rank's table, which outlives this object; null when alone.
  DeviceCollective(const Device &device, const octavo_collective *inner);
  DeviceCollective(const DeviceCollective &) = delete;
  DeviceCollective &operator=(const DeviceCollective &) = delete;

  // For functions of liboctavo; null when alone.
  const octavo_collective *table() const;

 private:
  static octavo_status run(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                           uint64_t send_count, void *recv, uint64_t recv_count, void *stream);
  static octavo_status broadcast(void *ctx, uint32_t root, void *data, uint64_t bytes,
                                 void *stream);

  const Device &device_;
  const octavo_collective *inner_;
  octavo_collective table_ = {};
  Buffer<unsigned char> send_;
  Buffer<unsigned char> recv_;
};

}  // namespace gpt

#endif
