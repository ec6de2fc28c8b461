// The router: logits, selection and joint normalisation (ops/router.py).

#include <algorithm>
#include <cmath>
#include <vector>

#include "dot.h"
#include "exponential.h"

namespace {

constexpr int64_t SMALL_WORK = 1 << 17;  // multiplications below which one thread is faster

struct Router {
  int64_t num_experts, num_shared, top_k;
  const float *bias;
  float scale;
  int64_t *ids;            // [tokens, top_k]
  float *weights, *gammas; // [tokens, top_k], [tokens, num_shared]

  // Selects for one token; overwrites nothing but its own results.
  void select(const float *logits, int64_t token) const {
    static thread_local std::vector<float> scores, chosen;
    scores.resize(num_experts + WIDTH);
    chosen.resize(top_k + num_shared);
    for (int64_t e = 0; e < num_experts; e += WIDTH) {
      const int64_t count = std::min(num_experts - e, int64_t(WIDTH));
      const vfloat z = count == WIDTH ? load(logits + e) : load_some(logits + e, count);
      const vfloat b = count == WIDTH ? load(bias + e) : load_some(bias + e, count);
      store(scores.data() + e, 1.0f / (1.0f + exponential(-z)) + b);
    }
    int64_t *own = ids + token * top_k;
    pick(scores.data(), own);
    for (int64_t k = 0; k < top_k; k++) chosen[k] = logits[own[k]];
    for (int64_t s = 0; s < num_shared; s++) chosen[top_k + s] = logits[num_experts + s];
    weigh(chosen.data(), token);
  }

private:
  // The top_k largest, the largest first, of equal ones the smaller id first. A NaN is never
  // larger than anything.
  void pick(const float *scores, int64_t *own) const {
    int64_t count = 0;
    for (int64_t e = 0; e < num_experts; e++) {
      if (count == top_k && !(scores[e] > scores[own[count - 1]])) continue;
      int64_t k = count < top_k ? count++ : count - 1;
      for (; k > 0 && scores[e] > scores[own[k - 1]]; k--) own[k] = own[k - 1];
      own[k] = e;
    }
  }

  // Sigmoids divided by their sum. By their logarithms: it holds where all of them vanish.
  void weigh(float *chosen, int64_t token) const {
    const int64_t count = top_k + num_shared;
    for (int64_t i = 0; i < count; i++)
      chosen[i] = std::min(chosen[i], 0.0f) - std::log1p(std::exp(-std::fabs(chosen[i])));
    const float largest = *std::max_element(chosen, chosen + count);
    float total = 0;
    for (int64_t i = 0; i < count; i++) total += chosen[i] = std::exp(chosen[i] - largest);
    for (int64_t k = 0; k < top_k; k++)
      weights[token * top_k + k] = chosen[k] / total * scale;
    for (int64_t s = 0; s < num_shared; s++)
      gammas[token * num_shared + s] = chosen[top_k + s] / total * scale;
  }
};

// logits[t] = weight · x[t] for all tokens; to be called in a region.
void find_logits(const float *const *x, const float *weight, float *logits, int64_t tokens,
                 int64_t rows, int64_t size) {
  static thread_local std::vector<float> results;
  results.resize(tokens);
  const Share share(rows);
  for (int64_t n = share.begin; n < share.end; n++) {
    multiply<Row<float>, float>({weight + n * size}, size, x, tokens, nullptr, 0, results.data());
    for (int64_t t = 0; t < tokens; t++) logits[t * rows + n] = results[t];
  }
}

template <class T>
void route_tokens(const Router &router, const T *x, const float *weight, const float *given,
                  int64_t tokens, int64_t size, int64_t threads) {
  static thread_local std::vector<float> wide, found;
  static thread_local std::vector<const float *> inputs;
  const int64_t rows = router.num_experts + router.num_shared;
  if (!given) {
    found.resize(tokens * rows);
    wide.assign(tokens * padded(size), 0.0f);
    inputs.resize(tokens);
    for (int64_t t = 0; t < tokens; t++) {
      inputs[t] = wide.data() + t * padded(size);
      to_floats(x + t * size, wide.data() + t * padded(size), size);
    }
  }
  // The threads of the region have vectors of their own by these names.
  const float *const *wide_x = inputs.data();
  float *own_logits = found.data();
  const float *logits = given ? given : own_logits;
  const int64_t work = rows * tokens * (given ? 32 : size);
#pragma omp parallel num_threads(threads) if (work > SMALL_WORK)
  {
    if (!given) {
      find_logits(wide_x, weight, own_logits, tokens, rows, size);
#pragma omp barrier
    }
    const Share share(tokens);
    for (int64_t t = share.begin; t < share.end; t++) router.select(logits + t * rows, t);
  }
}

}  // namespace

// With `logits` there is nothing to multiply, only to select.
#define DEFINE(NAME, T)                                                                           \
  extern "C" void NAME(const T *x, const float *weight, const float *bias, const float *logits,   \
                       int64_t tokens, int64_t size, int64_t num_experts, int64_t num_shared,     \
                       int64_t top_k, float scale, int64_t *ids, float *weights, float *gammas,   \
                       int64_t threads) {                                                         \
    const Router router{num_experts, num_shared, top_k, bias, scale, ids, weights, gammas};       \
    route_tokens(router, x, weight, logits, tokens, size, threads);                               \
  }

DEFINE(route_tokens_f32, float)
DEFINE(route_tokens_bf16, bf16)
