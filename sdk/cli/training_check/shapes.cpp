// Sampled elements suffice: a wrong kernel is wrong in more than one element of a thousand or in a
// whole row or column, of which the first and the last are always sampled.
#include "shapes.h"

#include <chrono>
#include <cmath>
#include <sstream>

#include "layer.h"
#include "sdk/verify/report.h"
#include "training.h"

namespace octavo::training_check {
namespace {

using conformance::text;
using nlohmann::json;

constexpr int kSamples = 16;  // of rows and of columns

// Indices of [0, count): the first, the last, and others between them.
std::vector<int64_t> sample(int64_t count) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < std::min<int64_t>(kSamples, count); ++i)
    all.push_back(count <= kSamples ? i : i * (count - 1) / (kSamples - 1));
  return all;
}

// Element (row, col) of the sum over `inner` of a(row, i) b(i, col).
template <typename A, typename B>
Difference compare(const Floats &found, int64_t rows, int64_t cols, int64_t inner, A a, B b) {
  Difference d;
  for (const int64_t row : sample(rows)) {
    for (const int64_t col : sample(cols)) {
      double wanted = 0;
      for (int64_t i = 0; i < inner; ++i)
        wanted += static_cast<double>(a(row, i)) * static_cast<double>(b(i, col));
      d.add(static_cast<double>(found[static_cast<size_t>(row * cols + col)]), wanted);
    }
  }
  return d;
}

}  // namespace

std::string Shape::name() const {
  return text("M ", m, ", N ", n, ", K ", k);
}

std::vector<Shape> shapes_of(const std::string &list, std::string *problem) {
  std::vector<Shape> all;
  problem->clear();
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ';');) {
    std::istringstream in(entry);
    Shape s;
    char first = 0, second = 0, rest = 0;
    const bool read = static_cast<bool>(in >> s.m >> first >> s.n >> second >> s.k);
    const bool fits = read && first == ',' && second == ',' && !(in >> rest) && s.m >= 0 &&
                      s.n >= 1 && s.k >= 1 && s.m <= 1 << 24 && s.n <= 1 << 20 && s.k <= 1 << 20;
    if (!fits)
      *problem = "expected M,N,K;M,N,K with M from 0 to 2^24, N and K from 1 to 2^20, found \"" +
                 entry + "\"";
    all.push_back(s);
  }
  if (all.empty()) *problem = "expected M,N,K;M,N,K, found nothing";
  return all;
}

json try_shape(const octavo::Settings &settings, const Shape &shape, uint64_t seed) {
  const int64_t m = shape.m, n = shape.n, k = shape.k;
  Session session(settings);
  Layer layer("linear", n, k, seed);
  layer.add(session);
  session.seal();
  layer.lend();
  layer.bind(m);
  json result = {{"m", m}, {"n", n}, {"k", k}, {"refusal", conformance::shown(layer.refusal)}};
  if (!layer.in_backend()) return result;
  Floats x(static_cast<size_t>(m * k)), y(static_cast<size_t>(m * n)), dy(y.size()), dx(x.size());
  fill(x, seed + 21, 1);
  fill(dy, seed + 23, 1);
  double seconds[2] = {};
  for (int turn = 0; turn < 3; ++turn) {  // scales of the last turn fit
    using Clock = std::chrono::steady_clock;
    session.store->clear(OCTAVO_ROLE_GRADIENT);
    layer.clear_gradients();
    const auto start = Clock::now();
    layer.forward(x, m, y);
    const auto middle = Clock::now();
    layer.backward(x, dy, m, &dx);
    seconds[0] = std::chrono::duration<double>(middle - start).count();
    seconds[1] = std::chrono::duration<double>(Clock::now() - middle).count();
    if (turn < 2) session.end_step();
  }
  result["forward_seconds"] = seconds[0];
  result["backward_seconds"] = seconds[1];
  if (m == 0) return result;
  Floats dw;
  layer.read_gradient(dw);
  const auto in = [&](int64_t row, int64_t i) { return x[static_cast<size_t>(row * k + i)]; };
  const auto out = [&](int64_t row, int64_t j) { return dy[static_cast<size_t>(row * n + j)]; };
  const auto weight = [&](int64_t j, int64_t i) {
    return layer.weight[static_cast<size_t>(j * k + i)];
  };
  for (int64_t row = 0; row < m; ++row)
    for (int64_t j = 0; j < n; ++j)
      y[static_cast<size_t>(row * n + j)] -= layer.bias[static_cast<size_t>(j)];
  const Difference differences[] = {
      compare(y, m, n, k, in, [&](int64_t i, int64_t j) { return weight(j, i); }),
      compare(dx, m, k, n, out, weight),
      compare(
          dw, n, k, m, [&](int64_t j, int64_t row) { return out(row, j); }, in)};
  // Two casts: of x and w for y, of dy and another one for the gradients.
  const auto [e, e_dy] = errors_of(session.run);
  const double limits[] = {kAllowance * std::sqrt(2 * e * e),
                           kAllowance * std::sqrt(e * e + e_dy * e_dy)};
  const char *names[] = {"y", "dx", "dw"};
  json failures = json::array();
  for (int i = 0; i < 3; ++i) {
    const double distance = differences[i].distance(), limit = limits[i == 0 ? 0 : 1];
    result[names[i]] = std::isfinite(distance) ? json(distance) : json(text(distance));
    if (!(distance <= limit))
      failures.push_back(text(names[i], " differs from the product by ", distance,
                              " of its size, expected at most ", limit));
  }
  result["failures"] = failures;
  return result;
}

}  // namespace octavo::training_check
