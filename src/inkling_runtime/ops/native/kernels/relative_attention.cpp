// Attention with a bias per distance over the block cache (ops/relative_attention.py).
//
// A task is one K/V head, a tile of neighbouring queries of one sequence with the query heads of
// that K/V head as rows, and a span of keys. Keys are taken in tiles that start at multiples of
// TILE positions, whatever the queries: so a row's sums are in one order, alone or among others,
// before and after a sliding layer has given back blocks. Masked keys add exact zeros. The spans of
// a sequence with one query are attended to apart, and joined in order.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "exponential.h"
#include "tile_products.h"

namespace {

constexpr int64_t ROWS = 32;           // rows of a task, roughly: its scratch stays in the L2 cache
constexpr int64_t IN_PLACE_ROWS = 4;   // up to so many rows a tile is read where it is, not copied
constexpr int64_t SPLIT_KEYS = 1024;   // keys per task where a sequence has one query
constexpr double SMALL_WORK = 2e5;     // multiplications below which one thread is faster
constexpr float NEVER = -std::numeric_limits<float>::infinity();

struct Shape {
  int64_t num_heads, num_kv_heads, head_dim, d_rel, extent;
  int64_t block_size, table_width;
  int64_t window;      // 0: none
  float floor, alpha;  // floor 0: no log scaling

  int64_t group() const { return num_heads / num_kv_heads; }
  int64_t padded_dim() const { return up(head_dim, STEP); }
};

struct Task {
  int64_t sequence, kv_head;
  int64_t row, position;  // of the first query, among the step's tokens and in the sequence
  int64_t num_queries;
  int64_t low, high;  // positions of the keys
  int64_t partial;    // where the unfinished result goes, or -1
};

// What one thread needs for one task.
struct Scratch {
  float *queries, *relatives, *scores, *sums, *largest, *totals, *keys, *values, *bias;
  int64_t ld_bias;

  Scratch(const Shape& shape, int64_t max_queries) {
    const int64_t rows = max_queries * shape.group(), dim = shape.padded_dim();
    ld_bias = up(TILE + max_queries, WIDTH);
    static thread_local std::vector<float> memory;
    const size_t size = rows * (2 * dim + shape.d_rel + TILE + 2) + 2 * TILE * dim +
                        shape.d_rel * ld_bias + WIDTH;
    if (memory.size() < size) memory.resize(size);
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory.data());
    keys = memory.data() + (-address % 64) / sizeof(float) % WIDTH;
    values = keys + TILE * dim;
    queries = values + TILE * dim;
    sums = queries + rows * dim;
    scores = sums + rows * dim;
    bias = scores + rows * TILE;
    relatives = bias + shape.d_rel * ld_bias;
    largest = relatives + rows * shape.d_rel;
    totals = largest + rows;
  }
};

template <class T>
void widen(const T* from, float* to, int64_t count, int64_t padded) {
  int64_t d = 0;
  for (; d + WIDTH <= count; d += WIDTH) store(to + d, load(from + d));
  for (; d < count; ++d) to[d] = to_float(from[d]);
  for (; d < padded; ++d) to[d] = 0;
}

template <class T>
struct Attention {
  const T *queries, *relatives, *profiles, *key_cache, *value_cache;
  const int64_t* block_table;
  const int32_t* starts;
  T* y;
  float* partials;  // [rows of partial tasks, padded_dim + 2]
  Shape shape;

  void run(const Task& task, Scratch& scratch) const {
    read_queries(task, scratch);
    const int64_t rows = task.num_queries * shape.group(), dim = shape.padded_dim();
    std::fill_n(scratch.sums, rows * dim, 0.0f);
    std::fill_n(scratch.largest, rows, NEVER);
    std::fill_n(scratch.totals, rows, 0.0f);
    for (int64_t first = down(task.low, TILE); first < task.high; first += TILE) {
      const int64_t from = std::max(task.low - first, int64_t(0));
      const int64_t to = std::min(task.high - first, TILE);
      const int64_t place = find_in_place(task, first, from, to);
      if (place >= 0) {
        const int64_t stride = shape.num_kv_heads * shape.head_dim, start = place - from * stride;
        attend(task, first, from, to, key_cache + start, value_cache + start, stride, scratch);
      } else {
        read_keys(task, first, from, to, scratch);
        attend<float>(task, first, from, to, scratch.keys, scratch.values, dim, scratch);
      }
    }
    task.partial < 0 ? write(task, scratch) : keep(task, scratch);
  }

  // Adds the keys [from, to) of a tile to the sums.
  template <class K>
  void attend(const Task& task, int64_t first, int64_t from, int64_t to, const K* keys,
              const K* values, int64_t stride, Scratch& scratch) const {
    const int64_t rows = task.num_queries * shape.group(), dim = shape.padded_dim();
    find_scores(task, first, from, to, keys, stride, scratch);
    for (int64_t q = 0; q < task.num_queries; ++q)
      weigh(task.position + q - first, q * shape.group(), from, to, scratch);
    add_product(scratch.scores, TILE, values, stride, scratch.sums, dim, rows, from, to, dim);
  }

  // Where the first needed key of a tile is, if it pays to read the tile where it is, or -1. It
  // does not if many rows share it, it cannot be if it lies in two blocks or ends within a vector.
  int64_t find_in_place(const Task& task, int64_t first, int64_t from, int64_t to) const {
    const int64_t start = starts[task.sequence], size = shape.block_size;
    const int64_t block = (first + from - start) / size;
    if (task.num_queries * shape.group() > IN_PLACE_ROWS ||
        shape.head_dim != shape.padded_dim() || block != (first + to - 1 - start) / size ||
        size % 4 != 0 || start % 4 != 0)
      return -1;
    const int64_t slot = block_table[task.sequence * shape.table_width + block] * size +
                         (first + from - start) % size;
    return (slot * shape.num_kv_heads + task.kv_head) * shape.head_dim;
  }

  void read_queries(const Task& task, Scratch& scratch) const {
    const int64_t group = shape.group(), dim = shape.padded_dim();
    for (int64_t q = 0; q < task.num_queries; ++q) {
      const float tau = log_scaling(task.position + q);
      for (int64_t g = 0; g < group; ++g) {
        const int64_t head = (task.row + q) * shape.num_heads + task.kv_head * group + g;
        float* query = scratch.queries + (q * group + g) * dim;
        float* relative = scratch.relatives + (q * group + g) * shape.d_rel;
        widen(queries + head * shape.head_dim, query, shape.head_dim, dim);
        widen(relatives + head * shape.d_rel, relative, shape.d_rel, shape.d_rel);
        for (int64_t d = 0; d < dim; ++d) query[d] *= tau / float(shape.head_dim);
        for (int64_t i = 0; i < shape.d_rel; ++i) relative[i] *= tau;
      }
    }
  }

  float log_scaling(int64_t position) const {
    if (shape.floor <= 0) return 1;
    return 1 + shape.alpha * std::log(std::max(float(position + 1) / shape.floor, 1.0f));
  }

  // Copies the keys and values of a tile, block after block. What `find_scores` reads besides is
  // zeros.
  void read_keys(const Task& task, int64_t first, int64_t from, int64_t to,
                 Scratch& scratch) const {
    const int64_t dim = shape.padded_dim(), start = starts[task.sequence];
    const int64_t* table = block_table + task.sequence * shape.table_width;
    std::fill(scratch.keys + down(from, 4) * dim, scratch.keys + from * dim, 0.0f);
    std::fill(scratch.keys + to * dim, scratch.keys + up(to, 4) * dim, 0.0f);
    for (int64_t j = from; j < to;) {
      const int64_t block = (first + j - start) / shape.block_size;
      const int64_t inside = first + j - start - block * shape.block_size;
      const int64_t stop = std::min(to, j + shape.block_size - inside);
      int64_t slot = table[block] * shape.block_size + inside;
      for (; j < stop; ++j, ++slot) {
        const int64_t place = (slot * shape.num_kv_heads + task.kv_head) * shape.head_dim;
        widen(key_cache + place, scratch.keys + j * dim, shape.head_dim, dim);
        widen(value_cache + place, scratch.values + j * dim, shape.head_dim, dim);
      }
    }
  }

  // Scores of four keys at a time: those of keys that are not needed come from whatever is there,
  // and are overwritten by `weigh`.
  template <class K>
  void find_scores(const Task& task, int64_t first, int64_t from, int64_t to, const K* keys,
                   int64_t stride, Scratch& scratch) const {
    const int64_t rows = task.num_queries * shape.group(), dim = shape.padded_dim();
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2)
      dot_rows<2>(scratch.queries + r * dim, keys, stride, scratch.scores + r * TILE, dim,
                  down(from, 4), to);
    if (r < rows)
      dot_rows<1>(scratch.queries + r * dim, keys, stride, scratch.scores + r * TILE, dim,
                  down(from, 4), to);
    if (task.position - (first + to - 1) >= shape.extent) return;
    read_profiles(task.position + task.num_queries - 1 - first, scratch);
    for (int64_t q = 0; q < task.num_queries; ++q) {
      const int64_t row = q * shape.group(), begin = down(from, STEP);
      add_product(scratch.relatives + row * shape.d_rel, shape.d_rel,
                  scratch.bias + begin + task.num_queries - 1 - q, scratch.ld_bias,
                  scratch.scores + row * TILE + begin, TILE, shape.group(), 0, shape.d_rel,
                  up(to, STEP) - begin);
    }
  }

  // bias[i][u] = profiles[i][distance - u], 0 beyond the extent: the order of keys. A query
  // before the last one finds its own a few columns further.
  void read_profiles(int64_t distance, Scratch& scratch) const {
    for (int64_t i = 0; i < shape.d_rel; ++i) {
      const T* from = profiles + i * shape.extent;
      float* to = scratch.bias + i * scratch.ld_bias;
      int64_t u = 0;
      const int64_t zeros = std::min(distance + 1 - shape.extent, scratch.ld_bias);
      for (; u < zeros; ++u) to[u] = 0;
      const int64_t stop = std::min(distance + 1, scratch.ld_bias);
      for (; u + WIDTH <= stop; u += WIDTH)
        store(to + u, reversed(load(from + distance - u - (WIDTH - 1))));
      for (; u < stop; ++u) to[u] = to_float(from[distance - u]);
      for (; u < scratch.ld_bias; ++u) to[u] = 0;
    }
  }

  // Turns the scores of one query's rows into weights; `distance` is that of the tile's start.
  void weigh(int64_t distance, int64_t first_row, int64_t from, int64_t to,
               Scratch& scratch) const {
    const int64_t dim = shape.padded_dim();
    const int64_t stop = std::min(to, distance + 1);
    const int64_t begin = shape.window ? std::max(from, distance - shape.window + 1) : from;
    for (int64_t row = first_row; row < first_row + shape.group(); ++row) {
      float* scores = scratch.scores + row * TILE;
      if (begin >= stop) {
        std::fill(scores + from, scores + to, 0.0f);
        continue;
      }
      const int64_t low = down(from, WIDTH), high = up(to, WIDTH);
      std::fill(scores + low, scores + begin, NEVER);
      std::fill(scores + stop, scores + high, NEVER);
      vfloat most = load(scores + low);
      for (int64_t j = low + WIDTH; j < high; j += WIDTH) {
        const vfloat s = load(scores + j);
        most = s > most ? s : most;
      }
      float largest = scratch.largest[row];
      for (int i = 0; i < WIDTH; ++i) largest = std::max(largest, most[i]);
      vfloat total = {};
      for (int64_t j = low; j < high; j += WIDTH) {
        const vfloat w = exponential(load(scores + j) - largest);
        store(scores + j, w);
        total += w;
      }
      if (largest > scratch.largest[row]) {
        const float shrink = std::exp(scratch.largest[row] - largest);
        scratch.totals[row] *= shrink;
        for (int64_t d = 0; d < dim; ++d) scratch.sums[row * dim + d] *= shrink;
        scratch.largest[row] = largest;
      }
      scratch.totals[row] += sum(total);
    }
  }

  void write(const Task& task, const Scratch& scratch) const {
    const int64_t group = shape.group();
    for (int64_t row = 0; row < task.num_queries * group; ++row) {
      const int64_t token = task.row + row / group;
      const int64_t head = token * shape.num_heads + task.kv_head * group + row % group;
      write_row(scratch.sums + row * shape.padded_dim(), scratch.totals[row], head);
    }
  }

  void write_row(const float* sums, float total, int64_t head) const {
    T* to = y + head * shape.head_dim;
    for (int64_t d = 0; d < shape.head_dim; ++d) store(to + d, sums[d] / total);
  }

  void keep(const Task& task, const Scratch& scratch) const {
    const int64_t dim = shape.padded_dim();
    for (int64_t row = 0; row < shape.group(); ++row) {
      float* to = partials + (task.partial * shape.group() + row) * (dim + 2);
      std::copy_n(scratch.sums + row * dim, dim, to);
      to[dim] = scratch.largest[row];
      to[dim + 1] = scratch.totals[row];
    }
  }

  // Joins the spans of one query, in the order of the keys; `task` is the first of them.
  void join(const Task& task, int64_t count) const {
    const int64_t dim = shape.padded_dim(), group = shape.group();
    const int64_t stride = group * (dim + 2);
    for (int64_t row = 0; row < group; ++row) {
      float* first = partials + (task.partial * group + row) * (dim + 2);
      float largest = NEVER, total = 0;
      for (int64_t s = 0; s < count; ++s)
        largest = std::max(largest, first[s * stride + dim]);
      for (int64_t s = 0; s < count; ++s) {
        float* part = first + s * stride;
        const float scale = std::exp(part[dim] - largest);
        total += scale * part[dim + 1];
        for (int64_t d = 0; d < dim; ++d)
          first[d] = s ? first[d] + scale * part[d] : scale * part[d];
      }
      write_row(first, total, task.row * shape.num_heads + task.kv_head * group + row);
    }
  }
};

struct Plan {
  std::vector<Task> tasks;
  std::vector<std::pair<int64_t, int64_t>> joins;  // first task and number of its spans
  int64_t max_queries = 1, num_partials = 0;
  double work = 0;
};

void add_split(Plan& plan, Task task) {
  const int64_t high = task.high, first = task.low / SPLIT_KEYS;
  const int64_t count = (high - 1) / SPLIT_KEYS - first + 1;
  if (count > 1) plan.joins.emplace_back(int64_t(plan.tasks.size()), count);
  for (int64_t s = 0; s < count; ++s) {
    if (count > 1) task.partial = plan.num_partials++;
    task.high = std::min(high, (first + s + 1) * SPLIT_KEYS);
    plan.tasks.push_back(task);
    task.low = task.high;
  }
}

Plan make_plan(const Shape& shape, const int32_t* bounds, const int32_t* starts,
               const int32_t* lengths, int64_t num_sequences) {
  Plan plan;
  const int64_t tile = std::max(ROWS / shape.group(), int64_t(1));
  for (int64_t b = 0; b < num_sequences; ++b) {
    const int64_t count = bounds[b + 1] - bounds[b], before = lengths[b] - count;
    for (int64_t q = 0; q < count; q += tile) {
      Task task{b, 0, bounds[b] + q, before + q, std::min(tile, count - q), 0, 0, -1};
      const int64_t seen = shape.window ? task.position - shape.window + 1 : 0;
      task.low = std::max(seen, int64_t(starts[b]));
      task.high = task.position + task.num_queries;
      plan.max_queries = std::max(plan.max_queries, task.num_queries);
      plan.work += double(task.num_queries) * double(task.high - task.low);
      for (task.kv_head = 0; task.kv_head < shape.num_kv_heads; ++task.kv_head)
        if (count == 1) add_split(plan, task);
        else plan.tasks.push_back(task);
    }
  }
  plan.work *= double(shape.num_heads * (2 * shape.head_dim + shape.d_rel));
  return plan;
}

template <class T>
void attend(Attention<T> attention, const Plan& plan, int threads) {
  const Shape& shape = attention.shape;
  std::vector<float> partials(plan.num_partials * shape.group() * (shape.padded_dim() + 2));
  attention.partials = partials.data();
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Scratch scratch(shape, plan.max_queries);
#pragma omp for schedule(static, 1)
    for (int64_t i = 0; i < int64_t(plan.tasks.size()); ++i)
      attention.run(plan.tasks[i], scratch);
#pragma omp for schedule(static, 1) nowait
    for (int64_t i = 0; i < int64_t(plan.joins.size()); ++i)
      attention.join(plan.tasks[plan.joins[i].first], plan.joins[i].second);
  }
}

}  // namespace

#define DEFINE(NAME, T)                                                                           \
  extern "C" void NAME(const T* queries, const T* relatives, const T* profiles,                   \
                       const T* key_cache, const T* value_cache, const int32_t* bounds,           \
                       const int64_t* block_table, const int32_t* starts, const int32_t* lengths, \
                       int64_t num_sequences, int64_t table_width, int64_t num_heads,             \
                       int64_t num_kv_heads, int64_t head_dim, int64_t d_rel, int64_t extent,     \
                       int64_t block_size, int64_t window, float floor, float alpha, T* y,        \
                       int64_t threads) {                                                         \
    const Shape shape{num_heads,  num_kv_heads, head_dim, d_rel, extent,                          \
                      block_size, table_width,  window,   floor, alpha};                          \
    const Plan plan = make_plan(shape, bounds, starts, lengths, num_sequences);                   \
    Attention<T> attention{queries,     relatives, profiles, key_cache, value_cache,              \
                           block_table, starts,    y,        nullptr,   shape};                   \
    attend(attention, plan, plan.work < SMALL_WORK ? 1 : int(threads));                           \
  }

DEFINE(relative_attention_f32, float)
DEFINE(relative_attention_bf16, bf16)
