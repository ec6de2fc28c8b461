// From the joint projection of q, k, v and r to what attention reads (ops/qkvr_prologue.py).

#include "rms_norm.h"
#include "short_conv.h"

namespace {

constexpr int64_t SMALL_WORK = 1 << 15;  // columns of all tokens below which threads do not pay

template <class T> struct Prologue {
  const T *projected;  // [tokens, columns of q, k, v, r]
  int64_t stride;
  int64_t num_heads, num_kv_heads, head_dim, d_rel;
  const float *k_conv, *v_conv;
  int64_t taps;
  T *k_state, *v_state;
  const T *q_norm, *k_norm;
  float eps;
  const int64_t *slot_mapping;
  T *key_cache, *value_cache, *queries, *relatives;

  // A task is a query head, a key head or a value head.
  void run(const ConvPlan &plan, int64_t task) const {
    if (task < num_heads)
      read_query(plan.bounds[plan.num_sequences], task);
    else if (task < num_heads + num_kv_heads)
      write_keys(plan, task - num_heads);
    else
      write_values(plan, task - num_heads - num_kv_heads);
  }

  int64_t num_tasks() const { return num_heads + 2 * num_kv_heads; }

private:
  void read_query(int64_t num_tokens, int64_t head) const {
    const int64_t first = (num_heads + 2 * num_kv_heads) * head_dim;
    for (int64_t t = 0; t < num_tokens; t++) {
      const T *row = projected + t * stride;
      const int64_t place = t * num_heads + head;
      normalize(row + head * head_dim, q_norm, queries + place * head_dim, head_dim, eps);
      memcpy(relatives + place * d_rel, row + first + head * d_rel, d_rel * sizeof(T));
    }
  }

  void write_keys(const ConvPlan &plan, int64_t head) const {
    conv(num_heads, k_conv, k_state)
        .run(plan, head * head_dim, (head + 1) * head_dim, [&](int64_t t, const T *row) {
          normalize(row, k_norm, place(key_cache, t, head), head_dim, eps);
        });
  }

  void write_values(const ConvPlan &plan, int64_t head) const {
    conv(num_heads + num_kv_heads, v_conv, v_state)
        .run(plan, head * head_dim, (head + 1) * head_dim, [&](int64_t t, const T *row) {
          memcpy(place(value_cache, t, head), row, head_dim * sizeof(T));
        });
  }

  ShortConv<T> conv(int64_t first_head, const float *weight, T *state) const {
    return {projected + first_head * head_dim, stride, weight, state, num_kv_heads * head_dim,
            taps};
  }

  T *place(T *cache, int64_t token, int64_t head) const {
    return cache + (slot_mapping[token] * num_kv_heads + head) * head_dim;
  }
};

template <class T>
void qkvr_prologue(const Prologue<T> &prologue, const ConvPlan &plan, int64_t threads) {
  const int64_t work = plan.bounds[plan.num_sequences] * prologue.num_tasks() * prologue.head_dim;
#pragma omp parallel for schedule(static, 1) num_threads(threads) if (work > SMALL_WORK)
  for (int64_t task = 0; task < prologue.num_tasks(); task++) prologue.run(plan, task);
}

}  // namespace

#define DEFINE(NAME, T)                                                                           \
  extern "C" void NAME(                                                                           \
      const T *projected, int64_t stride, int64_t num_heads, int64_t num_kv_heads,                \
      int64_t head_dim, int64_t d_rel, const float *k_conv, const float *v_conv, int64_t taps,    \
      T *k_state, T *v_state, const T *q_norm, const T *k_norm, float eps,                        \
      const int64_t *slot_mapping, T *key_cache, T *value_cache, T *queries, T *relatives,        \
      const int32_t *bounds, const int64_t *read_slots, const int64_t *write_slots,               \
      const int64_t *write_sequences, const int64_t *write_ends, int64_t num_sequences,           \
      int64_t num_writes, int64_t threads) {                                                      \
    const ConvPlan plan{bounds,     read_slots,    write_slots, write_sequences,                  \
                        write_ends, num_sequences, num_writes};                                   \
    const Prologue<T> prologue{projected, stride,  num_heads, num_kv_heads, head_dim, d_rel,      \
                               k_conv,    v_conv,  taps,      k_state,      v_state,  q_norm,     \
                               k_norm,    eps,     slot_mapping, key_cache, value_cache, queries, \
                               relatives};                                                        \
    qkvr_prologue(prologue, plan, threads);                                                       \
  }

DEFINE(qkvr_prologue_f32, float)
DEFINE(qkvr_prologue_bf16, bf16)
