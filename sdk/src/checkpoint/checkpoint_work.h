// Work on many tensors at once: reading or writing one and hashing it take about as long as each
// other, and one thread hashes more slowly than a disk writes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace octavo {

// Bytes that go through the cache between reading and hashing.
constexpr uint64_t kPieceBytes = 1 << 18;

// Calls work(i) once for every i below bytes.size(), the largest first, on this thread and, where
// there is enough to do, on others. An exception of one comes out when all have ended.
void work_on_tensors(const std::vector<uint64_t> &bytes, const std::function<void(size_t)> &work);

}  // namespace octavo
