// The linear map of a few tokens, with the deltas of their adapters: `ops/lora_linear.py`.
//
// B · (A · x) joins the sum of the weight's row before it is rounded, so a delta costs the reading
// of its factors and little else. A · x of all tokens comes first.
#include "lora.h"

namespace {

// A site within the output features: four int64 of an argument.
struct Part {
  int64_t start, stop;
  Site site;
};

// The deltas of all parts: what is to be shrunk, and where the results are to be expanded.
template <class T> struct Deltas {
  Shrinks<T> shrinks;
  std::vector<Extra<T>> extras;  // [part][token]

  void find(const Part *parts, int64_t num_parts, const int64_t *ids, int64_t tokens,
            const float *const *x) {
    extras.assign(num_parts * tokens, {});
    std::vector<int64_t> order = tokens_by_adapter(ids, tokens);
    int64_t width = 0;
    for (int64_t p = 0; p < num_parts; p++)
      for (int64_t t : order) {
        Factors<T> factors = parts[p].site.at<T>(ids[t]);
        extras[p * tokens + t] = {factors.b, nullptr, factors.rank};
        width = std::max(width, padded(factors.rank));
      }
    float *z = scratch<1>(num_parts * tokens * width);
    std::fill(z, z + num_parts * tokens * width, 0.0f);
    for (int64_t p = 0; p < num_parts; p++)
      for (size_t i = 0; i < order.size(); i++) {
        int64_t t = order[i];
        Factors<T> factors = parts[p].site.at<T>(ids[t]);
        if (!factors.rank) continue;
        if (i == 0 || ids[t] != ids[order[i - 1]])
          shrinks.add_factor(factors.a, factors.rank, factors.scaling);
        float *target = z + (p * tokens + t) * width;
        shrinks.add_input(x[t], target);
        extras[p * tokens + t].z = target;
      }
  }
};

template <class T>
void linear(const T *x, int64_t x_stride, const T *weight, T *y, int64_t tokens, int64_t rows,
            int64_t size, const Part *parts, int64_t num_parts, const int64_t *ids,
            int64_t threads) {
  std::vector<const float *> inputs =
      lay_out_all(x, x_stride, tokens, size, scratch<0>(tokens * padded(size)));
  Deltas<T> deltas;
  if (num_parts) deltas.find(parts, num_parts, ids, tokens, inputs.data());
  if (deltas.shrinks.empty()) num_parts = 0;

#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    if (num_parts) {
      deltas.shrinks.run(size);
#pragma omp barrier
    }
    std::vector<float> results(tokens);
    auto fill = [&](int64_t begin, int64_t end, const Extra<T> *extras, int64_t start) {
      for (int64_t n = begin; n < end; n++) {
        multiply<Row<T>, T>({weight + n * size}, size, inputs.data(), tokens, extras, n - start,
                            results.data());
        for (int64_t t = 0; t < tokens; t++) store(y + t * rows + n, results[t]);
      }
    };
    Share share(rows);
    int64_t done = share.begin;
    for (int64_t p = 0; p < num_parts; p++) {
      int64_t begin = std::max(done, parts[p].start), end = std::min(share.end, parts[p].stop);
      if (begin >= end) continue;
      fill(done, begin, nullptr, 0);
      fill(begin, end, deltas.extras.data() + p * tokens, parts[p].start);
      done = end;
    }
    fill(done, share.end, nullptr, 0);
  }
}

}  // namespace

// `parts`: [num_parts] of Part, ascending; `ids`: int64 [tokens]; both unused without parts.
#define LINEAR(NAME, T)                                                                            \
  extern "C" void linear_##NAME(const T *x, int64_t x_stride, const T *weight, T *y,               \
                                int64_t tokens, int64_t rows, int64_t size, const void *parts,     \
                                int64_t num_parts, const int64_t *ids, int64_t threads) {          \
    linear<T>(x, x_stride, weight, y, tokens, rows, size, (const Part *)parts, num_parts, ids,     \
              threads);                                                                            \
  }

LINEAR(f32, float)
LINEAR(bf16, bf16)
