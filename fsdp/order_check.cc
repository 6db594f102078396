#include "tessera/fsdp/order_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/hooks.h"
#include "tessera/distributed/objects.h"
#include "tessera/fsdp/handle.h"
#include "tessera/tensor/check.h"

namespace tessera::fsdp {
namespace {

constexpr const char* kWhere = "fsdp.order_check";

using distributed::packed_texts;
using distributed::unpacked_texts;
using Order = std::vector<std::string>;

// The first position where two lists differ; nullopt if they are equal.
std::optional<std::size_t> first_difference(const Order& a, const Order& b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (at == a.end() && other == b.end()) return std::nullopt;
  return static_cast<std::size_t>(at - a.begin());
}

std::string entry(const Order& order, std::size_t place) {
  return place < order.size() ? fmt::format("\"{}\"", order[place])
                              : fmt::format("nothing (it ran {})", order.size());
}

// Every rank's order, by world rank. It is gathered along one axis after another, and each rank
// forwards what it received along the earlier axes, so no group over several axes is needed.
std::map<int, Order> gathered_orders(const distributed::DeviceMesh& mesh, const Order& mine) {
  std::map<std::string, std::string> known = {{std::to_string(mesh.rank()), packed_texts(mine)}};
  for (const auto& group : mesh.groups()) {
    std::vector<std::string> flat;
    for (const auto& [rank, order] : known) flat.insert(flat.end(), {rank, order});
    for (const std::string& part : distributed::all_gather_texts(*group, packed_texts(flat))) {
      const std::vector<std::string> theirs = unpacked_texts(part);
      for (std::size_t i = 0; i + 1 < theirs.size(); i += 2) known[theirs[i]] = theirs[i + 1];
    }
  }
  std::map<int, Order> out;
  for (const auto& [rank, order] : known) out[std::stoi(rank)] = unpacked_texts(order);
  return out;
}

void check_equal(const std::map<int, Order>& orders) {
  const auto& [reference, order] = *orders.begin();
  std::optional<std::size_t> place;
  int other = reference;
  for (const auto& [rank, theirs] : orders) {
    const std::optional<std::size_t> here = first_difference(order, theirs);
    if (!here || (place && *here >= *place)) continue;
    place = here;
    other = rank;
  }
  TESSERA_CHECK_AS(StateError, !place, kWhere,
                   "the ranks run their sharded modules in different orders: as number {} rank {} "
                   "ran {} and rank {} ran {}; all ranks must call the same modules in the same "
                   "order, also those of which they need no result",
                   *place + 1, reference, entry(order, *place), other,
                   entry(orders.at(other), *place));
}

distributed::DeviceMesh largest_mesh(nn::Module& model, const std::vector<nn::Module*>& sharded) {
  if (has_state(model)) return of(model).options().mesh;
  distributed::DeviceMesh out = of(*sharded.front()).options().mesh;
  for (const nn::Module* module : sharded) {
    const distributed::DeviceMesh& mesh = of(*module).options().mesh;
    if (mesh.size() > out.size()) out = mesh;
  }
  return out;
}

}  // namespace

struct OrderCheck::State {
  OrderCheckOptions options;
  Order order;           // order of this iteration
  bool trained = false;  // a module of it ran in training mode
  std::optional<Order> first;
  std::string change;
  int forwards_compared = 0;
  std::vector<HookHandle> hooks;

  void begin() {
    order.clear();
    trained = false;
  }
  void entered(const nn::Module& module, const std::string& name) {
    if (in_backward()) return;
    order.push_back(name);
    trained = trained || (module.is_training() && grad_enabled());
  }
  void compare_with_ranks() const { check_equal(gathered_orders(options.mesh, order)); }
  void compare_with_first();
  void model_ran();
};

void OrderCheck::State::compare_with_first() {
  if (options.on_change == OrderChange::kAllow || !trained) return;
  if (!first) first = order;
  const std::optional<std::size_t> place = first_difference(*first, order);
  if (!place || (options.on_change == OrderChange::kWarn && !change.empty())) return;
  change = error_text(
      kWhere, fmt::format("the order of sharded modules is not that of the first iteration: as "
                          "number {} ran {}, and {} the first time; what is gathered ahead comes "
                          "too late, and ranks that change differently compute with each other's "
                          "parameters or wait for each other",
                          *place + 1, entry(order, *place), entry(*first, *place)));
  if (options.on_change == OrderChange::kThrow) throw StateError(change);
  fmt::print(stderr, "warning: {}\n", change);
}

void OrderCheck::State::model_ran() {
  if (in_backward()) return;
  if (forwards_compared < options.compare_forwards) {
    ++forwards_compared;
    compare_with_ranks();
  }
  compare_with_first();
}

OrderCheck::OrderCheck(nn::Module& model, const OrderCheckOptions& options)
    : state_(std::make_shared<State>()) {
  TESSERA_CHECK(options.compare_forwards >= 0, kWhere,
                "compare_forwards is {}; expected 0 (only where compare() is called) or more",
                options.compare_forwards);
  TESSERA_CHECK(!model.is_container(), kWhere,
                "{} is a container without a forward, whose iterations have no visible beginning: "
                "check the module that holds it",
                model.type_name());
  const std::vector<nn::Module*> sharded = sharded_modules(model);
  TESSERA_CHECK(!sharded.empty(), kWhere,
                "nothing in {} is sharded; check it after the calls of fully_shard and replicate",
                model.type_name());
  state_->options = options;
  if (!options.mesh.defined()) state_->options.mesh = largest_mesh(model, sharded);

  State* state = state_.get();  // the hooks are removed before the state is destroyed
  for (const nn::NamedModule& named : model.named_modules()) {
    if (!has_state(*named.module)) continue;
    const std::string name = named.name.empty() ? "root" : named.name;
    state->hooks.push_back(named.module->register_forward_pre_hook(
        [state, name](nn::Module& module, const nn::VisitVariables&) {
          state->entered(module, name);
        },
        {.first = true}));
  }
  if (options.compare_forwards == 0) return;
  state->hooks.push_back(model.register_forward_pre_hook(
      [state](nn::Module&, const nn::VisitVariables&) {
        if (!in_backward()) state->begin();
      },
      {.first = true}));
  state->hooks.push_back(model.register_forward_hook(
      [state](nn::Module&, const nn::VisitVariables*) { state->model_ran(); }));
}

OrderCheck::~OrderCheck() {
  for (HookHandle& hook : state_->hooks) hook.remove();
}

void OrderCheck::compare() {
  state_->compare_with_ranks();
  if (state_->options.compare_forwards > 0) return;
  state_->compare_with_first();
  state_->begin();
}

const std::string& OrderCheck::change() const { return state_->change; }

}  // namespace tessera::fsdp
