// LoRA factors, read from the tables of `lora_slots.py`, and the products A · x.
#pragma once

#include <vector>

#include "dot.h"

// Both factors of one site of one adapter; rank 0: the adapter does not have the site.
template <class T> struct Factors {
  const T *a = nullptr, *b = nullptr;
  int64_t rank = 0, a_stride = 0, b_stride = 0;  // elements per expert, 0: shared by all
  float scaling = 0;
};

// A site: two int64 of an argument, the addresses of its table and scalings; 0: nobody has it.
struct Site {
  int64_t table, scalings;

  template <class T> Factors<T> at(int64_t slot) const {
    if (!table || slot < 0) return {};
    const int64_t *row = (const int64_t *)table + 5 * slot;
    float scaling = ((const float *)scalings)[slot];
    return {(const T *)row[0], (const T *)row[1], row[2], row[3], row[4], scaling};
  }
};

// Products of whole factors A with the inputs that they meet.
template <class T> class Shrinks {
public:
  void clear() {
    jobs.clear();
    inputs.clear();
    targets.clear();
    rows = 0;
  }

  // Begin a factor A [rank, size]; its inputs follow.
  void add_factor(const T *a, int64_t rank, float scaling) {
    jobs.push_back({a, rank, scaling, int64_t(inputs.size())});
    rows += rank;
  }

  void add_input(const float *x, float *target) {
    inputs.push_back(x);
    targets.push_back(target);
  }

  bool empty() const { return jobs.empty(); }

  // Write scaling · A · x to all targets, in the order that B wants. Within a parallel region: the
  // rows of all factors are shared out among the threads.
  void run(int64_t size) const {
    Share share(rows);
    std::vector<float> results(inputs.size());
    int64_t offset = 0;
    for (size_t j = 0; j < jobs.size(); j++) {
      const Job &job = jobs[j];
      int64_t stop = j + 1 < jobs.size() ? jobs[j + 1].start : int64_t(inputs.size());
      int64_t begin = std::max(share.begin - offset, int64_t(0));
      int64_t end = std::min(share.end - offset, job.rank);
      for (int64_t r = begin; r < end; r++) {
        multiply<Row<T>, T>({job.a + r * size}, size, inputs.data() + job.start, stop - job.start,
                            nullptr, 0, results.data());
        for (int64_t i = job.start; i < stop; i++)
          targets[i][Row<T>::place(r)] = job.scaling * results[i - job.start];
      }
      offset += job.rank;
    }
  }

private:
  struct Job {
    const T *a;
    int64_t rank;
    float scaling;
    int64_t start;  // of its inputs
  };
  std::vector<Job> jobs;
  std::vector<const float *> inputs;
  std::vector<float *> targets;
  int64_t rows = 0;
};

// Sort indices by small keys from 0 on; those of one key keep their order.
template <class Key>
static inline void sort_by(std::vector<int64_t> &indices, int64_t num_keys, const Key &key) {
  std::vector<int64_t> starts(num_keys + 1, 0), sorted(indices.size());
  for (int64_t i : indices) starts[key(i) + 1]++;
  for (int64_t k = 0; k < num_keys; k++) starts[k + 1] += starts[k];
  for (int64_t i : indices) sorted[starts[key(i)]++] = i;
  indices.swap(sorted);
}

// The tokens of a batch in the order of their adapters, those without one left out.
static inline std::vector<int64_t> tokens_by_adapter(const int64_t *ids, int64_t count) {
  std::vector<int64_t> tokens;
  int64_t slots = 0;
  for (int64_t t = 0; t < count; t++)
    if (ids[t] >= 0) {
      tokens.push_back(t);
      slots = std::max(slots, ids[t] + 1);
    }
  sort_by(tokens, slots, [&](int64_t t) { return ids[t]; });
  return tokens;
}

// fp32 memory that a thread keeps between calls: fresh pages would cost more than the work.
template <int NUMBER> static inline float *scratch(int64_t size) {
  static thread_local std::vector<float> memory;
  if (int64_t(memory.size()) < size) memory.resize(size);
  return memory.data();
}

// Inputs x [tokens, size] laid out for rows of T: an address per token.
template <class T>
static inline std::vector<const float *> lay_out_all(const T *x, int64_t stride, int64_t tokens,
                                                     int64_t size, float *target) {
  std::vector<const float *> pointers;
  for (int64_t t = 0; t < tokens; t++) {
    float *row = target + t * padded(size);
    lay_out(x + t * stride, row, size);
    pointers.push_back(row);
  }
  return pointers;
}
