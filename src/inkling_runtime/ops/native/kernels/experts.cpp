// The experts of a few tokens, with the deltas of their adapters: `ops/routed_experts.py` and
// `ops/shared_experts.py`.
//
// A route is a (token, expert) pair. Every distinct expert is read once, for all its routes, and
// its rows are shared out among the threads, never whole experts. There are one to three barriers:
// activation before down products, and each A · x before its B.
#include "exponential.h"
#include "lora.h"
#include "nvfp4.h"

namespace {

// The matrices of all experts. Plain ones have no scales.
template <class T> struct Matrices {
  const void *data;
  const uint8_t *scales;
  const float *scales2;
  int64_t expert_stride, row_stride;  // elements

  // Multiply row n of an expert with its inputs; row m of the extras joins.
  void multiply_row(int64_t expert, int64_t n, int64_t size, const float *const *x, int64_t count,
                    const Extra<T> *extras, int64_t m, float *results) const {
    int64_t index = expert * expert_stride + n * row_stride;
    if (scales)
      multiply<Nvfp4Row<T>, T>(
          {(const uint8_t *)data + index / 2, scales + index / PAIR, scales2[expert]}, size, x,
          count, extras, m, results);
    else
      multiply<Row<T>, T>({(const T *)data + index}, size, x, count, extras, m, results);
  }
};

// Who uses which expert. `ids` null: every token uses experts 0 to top_k - 1.
struct Routing {
  int64_t tokens, top_k;
  const int64_t *ids;
  int64_t ids_stride;
  const float *weights;
  int64_t weights_stride;

  int64_t expert(int64_t t, int64_t k) const { return ids ? ids[t * ids_stride + k] : k; }
};

struct Sites {
  Site gate, up, down;
};

struct Route {
  int64_t token, expert, slot;  // slot -1: no adapter
};

constexpr int64_t ROW_BLOCK = 64;  // of the down product: its results stay in the first cache

// One call: the routes in the order of experts and adapters, and the memory of what is between
// the two halves of an expert.
template <class T> struct Plan {
  const Routing &routing;
  int64_t num_routes;
  std::vector<Route> routes;
  std::vector<int64_t> bounds;               // of each distinct expert's routes
  std::vector<int64_t> places;  // [token][k]: the route's index in `routes`, -1: not held here
  std::vector<const float *> inputs, hidden;  // of each route
  std::vector<Extra<T>> gate, up, down;      // of each route, empty without adapters
  std::vector<Extra<T>> total;               // of each token: B shared by all experts
  Shrinks<T> outer, inner;                   // A of gate and up; A of down

  Plan(const Routing &routing, const int64_t *adapters) : routing(routing) {
    std::vector<Route> all;
    std::vector<int64_t> order;
    int64_t num_experts = 0, num_slots = 0;
    for (int64_t t = 0; t < routing.tokens; t++)
      for (int64_t k = 0; k < routing.top_k; k++) {
        Route route = {t, routing.expert(t, k), adapters ? adapters[t] : -1};
        num_experts = std::max(num_experts, route.expert + 1);
        num_slots = std::max(num_slots, route.slot + 1);
        if (route.expert >= 0) order.push_back(int64_t(all.size()));
        all.push_back(route);
      }
    sort_by(order, num_slots + 1, [&](int64_t i) { return all[i].slot + 1; });
    sort_by(order, num_experts, [&](int64_t i) { return all[i].expert; });
    num_routes = int64_t(order.size());
    places.assign(all.size(), -1);
    for (int64_t i = 0; i < num_routes; i++) {
      routes.push_back(all[order[i]]);
      places[order[i]] = i;
      if (i == 0 || routes[i].expert != routes[i - 1].expert) bounds.push_back(i);
    }
    bounds.push_back(num_routes);
  }

  // Whether a route is the first of its expert and adapter.
  bool starts_run(int64_t i) const {
    return i == 0 || routes[i].expert != routes[i - 1].expert ||
           routes[i].slot != routes[i - 1].slot;
  }
};

int64_t max_rank(const Sites &sites, const int64_t *adapters, int64_t tokens) {
  int64_t largest = 0;
  for (const Site *site : {&sites.gate, &sites.up, &sites.down})
    for (int64_t t = 0; t < tokens; t++)
      largest = std::max(largest, site->at<float>(adapters[t]).rank);
  return largest;
}

// Plan the products of gate or up. A shared by all experts meets each token once, not each route.
template <class T>
void plan_outer(Plan<T> &plan, std::vector<Extra<T>> &extras, const Site &site,
                const int64_t *adapters, const std::vector<int64_t> &order,
                const float *const *x, float *z, int64_t width) {
  extras.assign(plan.num_routes, {});
  for (size_t i = 0; i < order.size(); i++) {
    Factors<T> factors = site.at<T>(adapters[order[i]]);
    if (!factors.rank || factors.a_stride) continue;
    if (i == 0 || adapters[order[i]] != adapters[order[i - 1]])
      plan.outer.add_factor(factors.a, factors.rank, factors.scaling);
    plan.outer.add_input(x[order[i]], z + order[i] * width);
  }
  // The first places of z are the tokens', behind them are the routes'.
  float *own = z + plan.routing.tokens * width;
  for (int64_t i = 0; i < plan.num_routes; i++) {
    const Route &route = plan.routes[i];
    Factors<T> factors = site.at<T>(route.slot);
    if (!factors.rank) continue;
    float *target = factors.a_stride ? own + i * width : z + route.token * width;
    if (factors.a_stride) {
      if (plan.starts_run(i))
        plan.outer.add_factor(factors.a + route.expert * factors.a_stride, factors.rank,
                              factors.scaling);
      plan.outer.add_input(x[route.token], target);
    }
    extras[i] = {factors.b + route.expert * factors.b_stride, target, factors.rank};
  }
}

// Plan the products of down. B shared by all experts is left to `total`: it is applied once per
// token, to the weighted sum of its routes.
template <class T>
void plan_inner(Plan<T> &plan, const Site &site, float *z, int64_t width) {
  plan.down.assign(plan.num_routes, {});
  plan.total.assign(plan.routing.tokens, {});
  for (int64_t i = 0; i < plan.num_routes; i++) {
    const Route &route = plan.routes[i];
    Factors<T> factors = site.at<T>(route.slot);
    if (!factors.rank) continue;
    if (plan.starts_run(i))
      plan.inner.add_factor(factors.a + route.expert * factors.a_stride, factors.rank,
                            factors.scaling);
    plan.inner.add_input(plan.hidden[i], z + i * width);
    plan.down[i] = {factors.b + route.expert * factors.b_stride, z + i * width,
                    factors.b_stride ? factors.rank : 0};
    if (!factors.b_stride) plan.total[route.token] = {factors.b, nullptr, factors.rank};
  }
}

// silu(W1 · x) · (W3 · x) of all routes, this thread's share: rows by the pair, as they lie in
// `hidden`. Where the width is not a whole number of pairs, the rest stays 0.
template <class T>
void activate(const Plan<T> &plan, const Matrices<T> &w13, int64_t size, int64_t width,
              float *hidden) {
  const Extra<T> *gates = plan.gate.data(), *ups = plan.up.data();
  std::vector<float> results(plan.num_routes), memory(2 * plan.num_routes * PAIR);
  float *gate = memory.data(), *up = gate + plan.num_routes * PAIR;
  int64_t pairs = padded(width) / PAIR;
  Share share((int64_t(plan.bounds.size()) - 1) * pairs);
  for (int64_t unit = share.begin; unit < share.end; unit++) {
    int64_t begin = plan.bounds[unit / pairs], count = plan.bounds[unit / pairs + 1] - begin;
    int64_t expert = plan.routes[begin].expert, start = unit % pairs * PAIR;
    auto fill = [&](int64_t offset, const Extra<T> *extras, float *target) {
      std::fill(target, target + count * PAIR, 0.0f);
      for (int64_t f = start; f < std::min(start + PAIR, width); f++) {
        w13.multiply_row(expert, offset + f, size, plan.inputs.data() + begin, count,
                         extras ? extras + begin : nullptr, f, results.data());
        for (int64_t i = 0; i < count; i++) target[i * PAIR + Row<T>::place(f - start)] = results[i];
      }
    };
    fill(0, gates, gate);
    fill(width, ups, up);
    for (int64_t i = 0; i < count; i++)
      for (int64_t half = 0; half < PAIR; half += WIDTH) {
        vfloat g = load(gate + i * PAIR + half), u = load(up + i * PAIR + half);
        store(hidden + (begin + i) * padded(width) + start + half,
              g / (1.0f + exponential(-g)) * u);
      }
  }
}

// The weighted sums in rank space of the tokens whose B is shared, for this thread alone.
template <class T>
std::vector<Extra<T>> sum_routes(const Plan<T> &plan, int64_t width, std::vector<float> &memory) {
  const Routing &routing = plan.routing;
  std::vector<Extra<T>> total = plan.total;
  memory.assign(routing.tokens * width, 0.0f);
  for (int64_t t = 0; t < routing.tokens; t++) {
    if (!total[t].rank) continue;
    float *sum = memory.data() + t * width;
    for (int64_t k = 0; k < routing.top_k; k++) {
      int64_t place = plan.places[t * routing.top_k + k];
      if (place < 0) continue;
      const float *z = plan.down[place].z;
      for (int64_t r = 0; r < padded(total[t].rank); r++)
        sum[r] += routing.weights[t * routing.weights_stride + k] * z[r];
    }
    total[t].z = sum;
  }
  return total;
}

// y of this thread's rows. Every row has its sum over the routes here: no thread waits.
template <class T>
void combine(const Plan<T> &plan, const Matrices<T> &w2, int64_t size, int64_t width,
             const std::vector<Extra<T>> &total, T *y) {
  const Routing &routing = plan.routing;
  const Extra<T> *downs = plan.down.data();
  std::vector<float> results(ROW_BLOCK * plan.num_routes);
  Share share(size);
  for (int64_t block = share.begin; block < share.end; block += ROW_BLOCK) {
    int64_t rows = std::min(ROW_BLOCK, share.end - block);
    for (size_t g = 0; g + 1 < plan.bounds.size(); g++) {
      int64_t begin = plan.bounds[g], count = plan.bounds[g + 1] - begin;
      for (int64_t n = 0; n < rows; n++)
        w2.multiply_row(plan.routes[begin].expert, block + n, width, plan.hidden.data() + begin,
                        count, downs ? downs + begin : nullptr, block + n,
                        results.data() + n * plan.num_routes + begin);
    }
    for (int64_t t = 0; t < routing.tokens; t++)
      for (int64_t n = 0; n < rows; n++) {
        float value = 0;
        if (!total.empty() && total[t].rank)
          value = sum(multiply_one(Row<T>{total[t].b + (block + n) * total[t].rank}, total[t].rank,
                                   total[t].z));
        for (int64_t k = 0; k < routing.top_k; k++) {
          int64_t place = plan.places[t * routing.top_k + k];
          if (place >= 0)
            value += routing.weights[t * routing.weights_stride + k] *
                     results[n * plan.num_routes + place];
        }
        store(y + t * size + block + n, value);
      }
  }
}

template <class T>
void experts(const T *x, int64_t x_stride, const Matrices<T> &w13, const Matrices<T> &w2,
             int64_t size, int64_t width, const Routing &routing, const Sites *sites,
             const int64_t *adapters, T *y, int64_t threads) {
  int64_t tokens = routing.tokens;
  std::vector<const float *> inputs =
      lay_out_all(x, x_stride, tokens, size, scratch<0>(tokens * padded(size)));
  Plan<T> plan(routing, sites ? adapters : nullptr);
  float *hidden = scratch<1>(plan.num_routes * padded(width));
  for (int64_t i = 0; i < plan.num_routes; i++) {
    plan.inputs.push_back(inputs[plan.routes[i].token]);
    plan.hidden.push_back(hidden + i * padded(width));
  }
  int64_t rank = sites ? padded(max_rank(*sites, adapters, tokens)) : 0;
  if (rank) {
    int64_t part = (plan.num_routes + tokens) * rank;
    float *z = scratch<2>(3 * part);
    std::fill(z, z + 3 * part, 0.0f);
    std::vector<int64_t> order = tokens_by_adapter(adapters, tokens);
    plan_outer(plan, plan.gate, sites->gate, adapters, order, inputs.data(), z, rank);
    plan_outer(plan, plan.up, sites->up, adapters, order, inputs.data(), z + part, rank);
    plan_inner(plan, sites->down, z + 2 * part, rank);
  }

#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    if (!plan.outer.empty()) {
      plan.outer.run(size);
#pragma omp barrier
    }
    activate(plan, w13, size, width, hidden);
#pragma omp barrier
    std::vector<Extra<T>> total;
    std::vector<float> memory;
    if (!plan.inner.empty()) {
      plan.inner.run(width);
#pragma omp barrier
      total = sum_routes(plan, rank, memory);
    }
    combine(plan, w2, size, width, total, y);
  }
}

}  // namespace

// `scales` of both kinds are null for plain matrices; `ids` null: every token uses experts 0 to
// top_k - 1, an id of -1: an expert that is not held here; `sites`: three Site, for gate, up and down, or null; `adapters`: int64 [tokens].
#define EXPERTS(NAME, T)                                                                           \
  extern "C" void experts_##NAME(                                                                  \
      const T *x, int64_t x_stride, const void *w13, const uint8_t *w13_scales,                    \
      const float *w13_scales2, const void *w2, const uint8_t *w2_scales, const float *w2_scales2, \
      int64_t w2_expert_stride, int64_t w2_row_stride, int64_t size, int64_t width,                \
      const int64_t *ids, int64_t ids_stride, const float *weights, int64_t weights_stride,        \
      int64_t tokens, int64_t top_k, const void *sites, const int64_t *adapters, T *y,             \
      int64_t threads) {                                                                           \
    experts<T>(x, x_stride, {w13, w13_scales, w13_scales2, 2 * width * size, size},                \
               {w2, w2_scales, w2_scales2, w2_expert_stride, w2_row_stride}, size, width,          \
               {tokens, top_k, ids, ids_stride, weights, weights_stride}, (const Sites *)sites,    \
               adapters, y, threads);                                                              \
  }

EXPERTS(f32, float)
EXPERTS(bf16, bf16)
