#include "tessera/models/nets/expert_layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.MixtureFeedForward";

using Counts = std::vector<std::int64_t>;

DType wide_dtype(DType dtype) { return dtype == DType::kF64 ? dtype : DType::kF32; }

Variable as(const Variable& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

Tensor index_tensor(const Counts& values, Device device) {
  return Tensor::from_vector(values, {static_cast<std::int64_t>(values.size())}, device);
}

nn::LinearOptions up_options(const ExpertOptions& options) {
  return {.in = options.dim, .out = options.ffn_dim, .bias = false, .dtype = options.dtype};
}

nn::LinearOptions down_options(const ExpertOptions& options) {
  return {.in = options.ffn_dim, .out = options.dim, .bias = false, .dtype = options.dtype};
}

void check_ranks(const RanksAlong& ranks) {
  TESSERA_CHECK(ranks.mesh != nullptr, kWhere,
                "the mesh is null; pass nn::local_mesh() for one rank alone");
  ranks.size();  // throws for an unknown axis
}

// Every rank's host counts, in rank order. Collective. The null device has no values: it assumes
// that every rank has this rank's counts.
Counts of_all_ranks(const Counts& counts, const RanksAlong& ranks, Device device) {
  const Tensor all = ranks.mesh->all_gather(index_tensor(counts, device), ranks.axis);
  if (!device.is_null()) return all.to_vector<std::int64_t>();
  Counts repeated;
  for (int rank = 0; rank < ranks.size(); ++rank)
    repeated.insert(repeated.end(), counts.begin(), counts.end());
  return repeated;
}

// On the null device there are no choices to read; a plan then assumes that they are spread evenly.
ExpertChoices host_choices(const Tensor& choices, std::int64_t n_experts) {
  ExpertChoices host{.n_experts = n_experts, .top_k = choices.dim(1), .experts = {}};
  if (!choices.device().is_null()) {
    host.experts = choices.to_vector<std::int64_t>();
    return host;
  }
  for (std::int64_t i = 0; i < choices.numel(); ++i) host.experts.push_back(i % n_experts);
  return host;
}

}  // namespace

const MixtureFeedForwardOptions& checked(const MixtureFeedForwardOptions& options) {
  TESSERA_CHECK(options.experts >= 1, kWhere, "experts is {}; it must be at least 1",
                options.experts);
  TESSERA_CHECK(options.top_k_experts >= 1 && options.top_k_experts <= options.experts, kWhere,
                "top_k_experts is {}; it must lie in [1, {}], the number of experts",
                options.top_k_experts, options.experts);
  TESSERA_CHECK(options.capacity_factor >= 0, kWhere,
                "capacity_factor is {}; it must be at least 0, which refuses no token",
                options.capacity_factor);
  TESSERA_CHECK(options.balance_loss >= 0 && options.z_loss >= 0, kWhere,
                "balance_loss is {}, z_loss {}; they must be at least 0", options.balance_loss,
                options.z_loss);
  return options;
}

Expert::Expert(const ExpertOptions& options)
    : gate_(options.kind == ExpertKind::kSwiGlu ? std::make_unique<nn::Linear>(up_options(options))
                                                : nullptr),
      up_(up_options(options)),
      down_(down_options(options)) {
  if (gate_) register_module("gate", *gate_);
  register_module("up", up_);
  register_module("down", down_);
}

Variable Expert::forward(const Variable& x) {
  return down_(gate_ ? swiglu((*gate_)(x), up_(x)) : gelu(up_(x)));
}

Experts::Experts(const ExpertsOptions& options) : here_{.count = options.experts} {
  for (std::int64_t i = 0; i < options.experts; ++i) {
    experts_.push_back(std::make_unique<Expert>(options.expert));
    register_module(std::to_string(i), *experts_.back());
  }
}

Variable Experts::forward(const Variable& rows, const Counts& counts) {
  std::vector<Variable> out;
  if (!counts.empty()) out = split(rows, counts, 0);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = (*experts_[static_cast<std::size_t>(here_.first) + i])(out[i]);
  if (out.empty()) out.push_back(rows);  // a rank without experts has no rows
  // Other ranks' experts have no elements here and run on zero rows. All ranks thus have gradients
  // of the same parameters, and optimizers have the same states.
  for (std::int64_t i = 0; i < count(); ++i) {
    if (is_here(i)) continue;
    for (const nn::Parameter& parameter : experts_[static_cast<std::size_t>(i)]->parameters())
      out.push_back(as(reshape(parameter.value(), {0, rows.dim(1)}), out.front().dtype()));
  }
  return cat(out, 0);
}

void Experts::split_over(const RanksAlong& ranks) {
  here_ = experts_of(count(), ranks.size(), ranks.rank());
  for (std::int64_t i = 0; i < count(); ++i) {
    for (nn::Parameter& parameter : experts_[static_cast<std::size_t>(i)]->parameters()) {
      nn::ShardSpec spec = nn::ShardSpec::whole(parameter.shape());
      if (!is_here(i)) spec.boxes.front().extent[0] = 0;
      // Makes gradient norms sum over the ranks.
      if (ranks.size() > 1) spec.sharded_axes = {ranks.axis};
      parameter.cut(std::move(spec), ranks.mesh);
    }
  }
}

Router::Router(const Options& options)
    : weight_({.shape = {options.experts, options.dim},
               .dtype = options.dtype,
               .init = nn::init::normal(0, 0.02)}) {
  register_parameter("weight", weight_);
}

Variable Router::forward(const Variable& x) {
  const AutocastGuard wide(std::nullopt);
  const DType dtype = wide_dtype(x.dtype());
  return linear(as(x, dtype), as(weight_.value(), dtype), {});
}

// The router's result for this rank's tokens.
struct MixtureFeedForward::Routing {
  Variable logits;         // [tokens, experts]
  Variable probabilities;  // [tokens, experts]
  Tensor choices;          // [tokens, top_k_experts], the best first
  Variable weights;        // [tokens, top_k_experts]
};

MixtureFeedForward::MixtureFeedForward(const MixtureFeedForwardOptions& options)
    : options_(checked(options)),
      router_(
          {.dim = options.expert.dim, .experts = options.experts, .dtype = options.expert.dtype}),
      experts_({.experts = options.experts, .expert = options.expert}) {
  if (std::isinf(options_.capacity_factor)) options_.capacity_factor = 0;
  register_module("router", router_);
  register_module("experts", experts_);
}

void MixtureFeedForward::share_batch(const RanksAlong& ranks) {
  check_ranks(ranks);
  batch_ = ranks;
}

void MixtureFeedForward::split_experts(const RanksAlong& ranks) {
  check_ranks(ranks);
  TESSERA_CHECK_AS(StateError, !is_split_, kWhere,
                   "the experts are split over {} ranks already: build the model anew",
                   ranks_.size());
  experts_.split_over(ranks);
  ranks_ = ranks;
  is_split_ = true;
}

MixtureFeedForward::Routing MixtureFeedForward::route(const Variable& x) {
  const Variable logits = router_(x);
  const Variable probabilities = softmax(logits);
  // Choose by logits: two probabilities may round to the same number.
  const Tensor choices = topk(logits.tensor(), options_.top_k_experts).indices;
  const Variable chosen = gather(probabilities, 1, choices);
  return {.logits = logits,
          .probabilities = probabilities,
          .choices = choices,
          .weights = options_.normalize_weights ? div(chosen, sum(chosen, {1}, true)) : chosen};
}

bool MixtureFeedForward::has_auxiliary_loss() const {
  return is_training() && (options_.balance_loss > 0 || options_.z_loss > 0);
}

// The set of collectives depends only on options and mode, which are equal on all ranks.
ExpertPlan MixtureFeedForward::plan(const Tensor& choices) const {
  const ExpertChoices host = host_choices(choices, options_.experts);
  const double capacity_factor = is_training() ? options_.capacity_factor : 0;
  const RanksAlong alone;
  const RanksAlong& batch = capacity_factor > 0 || has_auxiliary_loss() ? batch_ : alone;
  const Counts all = of_all_ranks(choice_counts(host), batch, choices.device());
  return plan_experts(host, batch_counts(all, batch.size(), batch.rank()), capacity_factor);
}

// Rows are sent to the ranks of their experts and come back in the original order.
Variable MixtureFeedForward::through_experts(const Variable& rows, const Counts& sent) {
  const ReceivedRows received =
      received_rows(of_all_ranks(sent, ranks_, rows.device()), options_.experts, experts_.here());
  nn::RowCounts there{.sent = {}, .received = received.from};
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const ExpertRange range = experts_of(options_.experts, ranks_.size(), rank);
    const auto first = sent.begin() + range.first;
    there.sent.push_back(std::reduce(first, first + range.count, std::int64_t{0}));
  }
  const nn::RowCounts back{.sent = received.from, .received = there.sent};
  const Variable came = nn::all_to_all(rows, ranks_.mesh, ranks_.axis, there);
  const Variable sorted = index_select(came, 0, index_tensor(received.order, rows.device()));
  const Variable results = index_select(experts_(sorted, received.counts), 0,
                                        index_tensor(received.inverse, rows.device()));
  return nn::all_to_all(results, ranks_.mesh, ranks_.axis, back);
}

// A token's contributions are added in the order of its experts, on whatever ranks these are.
Variable MixtureFeedForward::mixed(const Variable& x, const Routing& routing,
                                   const ExpertPlan& plan) {
  Counts tokens = plan.rows;
  for (std::int64_t& token : tokens) token /= options_.top_k_experts;
  const Tensor index = index_tensor(tokens, x.device());
  const Variable results = through_experts(index_select(x, 0, index), plan.sent);
  const Variable& weights = routing.weights;
  const Variable of_rows =
      index_select(reshape(weights, {weights.numel()}), 0, index_tensor(plan.rows, x.device()));
  const Variable terms = mul(as(results, weights.dtype()), unsqueeze(of_rows, 1));
  const Variable nothing(zeros(x.shape(), {.dtype = weights.dtype(), .device = x.device()}));
  return as(index_put(nothing, {index}, terms, {.accumulate = true}), x.dtype());
}

// Each rank's own loss contains this loss, and the mean of them is trained. The all_reduce
// therefore sums the gradients that the ranks computed of each other's sums.
Variable MixtureFeedForward::auxiliary_loss(const Routing& routing, const ExpertPlan& plan) const {
  const DType dtype = routing.logits.dtype();
  const auto tokens = static_cast<double>(std::max<std::int64_t>(plan.batch_tokens, 1));
  const auto experts = static_cast<double>(options_.experts);
  const Variable squares = sum(square(logsumexp(routing.logits, {1})));
  const Variable sums = nn::all_reduce(
      cat({sum(routing.probabilities, {0}), reshape(squares, {1})}), batch_.mesh, batch_.axis);
  // Both losses are sums over these values, with the factors f_i and 1.
  std::vector<double> factors;
  for (const std::int64_t demand : plan.demand) {
    const double share =
        static_cast<double>(demand) / (tokens * static_cast<double>(options_.top_k_experts));
    factors.push_back(options_.balance_loss * experts * share / tokens);
  }
  factors.push_back(options_.z_loss / tokens);
  const Tensor constant = Tensor::from_vector(factors, sums.shape(), sums.device());
  return sum(mul(sums, Variable(cast(constant, dtype))));
}

MixtureFeedForwardResult MixtureFeedForward::forward(const Variable& x) {
  const std::int64_t dim = options_.expert.dim;
  TESSERA_CHECK(x.ndim() >= 1 && x.shape().back() == dim, kWhere,
                "expected an input [..., {}], got {}", dim, x.shape().str());
  const Variable flat = reshape(x, {x.numel() / dim, dim});
  const Routing routing = route(flat);
  const ExpertPlan plan = this->plan(routing.choices);
  MixtureFeedForwardResult result{.output = reshape(mixed(flat, routing, plan), x.shape())};
  if (has_auxiliary_loss()) result.auxiliary_loss = auxiliary_loss(routing, plan);
  return result;
}

}  // namespace tessera::models
