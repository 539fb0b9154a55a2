// What one core can do: multiply-adds and bf16 dots without memory, and copies.
//
// 14 accumulators keep two units of six cycles' latency busy.
#include <immintrin.h>

#include "tests/bench/avx512.h"

namespace octavo::bench {
namespace {

constexpr int kChains = 14;

// Ends a loop whose result nobody needs without letting the compiler drop it.
template <typename Vector>
inline void keep(Vector value) {
  asm volatile("" : : "v"(value));
}
template <typename Vector>
inline void hide(Vector &value) {
  asm volatile("" : "+v"(value));
}

}  // namespace

int64_t multiply_adds_512(int64_t rounds) {
  __m512 sums[kChains];
  __m512 a = _mm512_set1_ps(0.5f);
  hide(a);
  for (auto &sum : sums) sum = a;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 14
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, a);
  }
  for (const auto &sum : sums) keep(sum);
  return rounds * kChains * 16 * 2;
}

int64_t multiply_adds_256(int64_t rounds) {
  __m256 sums[kChains];
  __m256 a = _mm256_set1_ps(0.5f);
  hide(a);
  for (auto &sum : sums) sum = a;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 14
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, a);
  }
  for (const auto &sum : sums) keep(sum);
  return rounds * kChains * 8 * 2;
}

int64_t dots_512(int64_t rounds) {
  __m512 sums[kChains];
  __m512 zero = _mm512_setzero_ps();
  hide(zero);
  const __m512bh a = _mm512_cvtne2ps_pbh(zero, zero);
  for (auto &sum : sums) sum = zero;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 14
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, a);
  }
  for (const auto &sum : sums) keep(sum);
  return rounds * kChains * 32 * 2;
}

void copy_nontemporal(const void *in, int64_t n, void *out) {
  const auto *from = static_cast<const char *>(in);
  auto *to = static_cast<char *>(out);
  for (int64_t i = 0; i < n; i += 256) {
    const __m512i a = _mm512_load_si512(from + i);
    const __m512i b = _mm512_load_si512(from + i + 64);
    const __m512i c = _mm512_load_si512(from + i + 128);
    const __m512i d = _mm512_load_si512(from + i + 192);
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to + i), a);
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to + i + 64), b);
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to + i + 128), c);
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to + i + 192), d);
  }
  _mm_sfence();
}

void copy_regular(const void *in, int64_t n, void *out) {
  const auto *from = static_cast<const char *>(in);
  auto *to = static_cast<char *>(out);
  for (int64_t i = 0; i < n; i += 64) _mm512_store_si512(to + i, _mm512_load_si512(from + i));
}

}  // namespace octavo::bench
