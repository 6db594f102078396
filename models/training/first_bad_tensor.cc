#include "tessera/models/training/first_bad_tensor.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/distributed/objects.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::models {
namespace {

enum Stage : std::int64_t { kParameters, kActivations, kGradients };

struct Find {
  // The position in the order of the search, which the ranks compare: the stage, and the number of
  // tensors seen.
  std::pair<std::int64_t, std::int64_t> place;
  std::string text;
};

// The serialised find; an empty text if there is none.
std::string packed(const std::optional<Find>& find) {
  if (!find) return distributed::packed_texts({});
  return distributed::packed_texts(
      {distributed::packed_numbers({find->place.first, find->place.second}), find->text});
}

std::optional<Find> unpacked(const std::string& text) {
  const std::vector<std::string> texts = distributed::unpacked_texts(text);
  if (texts.empty()) return std::nullopt;
  const std::vector<std::int64_t> place = distributed::unpacked_numbers(texts.at(0));
  return Find{.place = {place.at(0), place.at(1)}, .text = texts.at(1)};
}

std::int64_t count_not_finite(const Tensor& tensor) {
  if (!tensor.defined() || !is_floating(tensor.dtype()) || tensor.numel() == 0) return 0;
  return tensor.numel() - sum(isfinite(tensor)).item<std::int64_t>();
}

// This rank's first find.
class Search {
 public:
  // Checks one more tensor, unless a bad one was found before. `what` names it.
  template <class Name>
  void look(Stage stage, const Tensor& tensor, const Name& what) {
    ++seen_;
    if (find_) return;
    const std::int64_t count = count_not_finite(tensor);
    if (count == 0) return;
    find_ = Find{.place = {stage, seen_},
                 .text = fmt::format("{} has {} value{} not finite", what(), count,
                                     count == 1 ? " that is" : "s that are")};
  }
  const std::optional<Find>& find() const { return find_; }

 private:
  std::int64_t seen_ = 0;
  std::optional<Find> find_;
};

// Hooks on every module that pass its arguments and results to the search, until the end of the
// scope.
class WatchedModules {
 public:
  WatchedModules(nn::Module& root, Search& search) : search_(search) {
    for (const nn::NamedModule& named : root.named_modules()) watch(named);
  }
  ~WatchedModules() {
    for (HookHandle& hook : hooks_) hook.remove();
  }
  WatchedModules(const WatchedModules&) = delete;
  WatchedModules& operator=(const WatchedModules&) = delete;

 private:
  void watch(const nn::NamedModule& named) {
    const std::string name = named.name.empty() ? "the model" : fmt::format("\"{}\"", named.name);
    hooks_.push_back(named.module->register_forward_pre_hook(
        [this, name](nn::Module& module, const nn::VisitVariables& arguments) {
          look(arguments, "an argument of", name, module);
        }));
    hooks_.push_back(named.module->register_forward_hook(
        [this, name](nn::Module& module, const nn::VisitVariables* results) {
          look(*results, "the result of", name, module);
        }));
  }
  void look(const nn::VisitVariables& variables, const char* place, const std::string& name,
            nn::Module& module) {
    variables([&](Variable& variable) {
      search_.look(kActivations, variable.tensor(),
                   [&] { return fmt::format("{} {} ({})", place, name, module.type_name()); });
    });
  }

  Search& search_;
  std::vector<HookHandle> hooks_;
};

std::optional<Find> search_this_rank(nn::Module& module, const std::function<void()>& forward) {
  Search search;
  const std::vector<nn::NamedParameter> parameters = module.named_parameters();
  for (const auto& [name, parameter] : parameters)
    search.look(kParameters, parameter.local().tensor(),
                [&] { return fmt::format("parameter \"{}\"", name); });
  {
    // Runs even after a find, because the other ranks wait for this one in forward.
    const WatchedModules watched(module, search);
    const NoGradGuard no_grad;
    forward();
  }
  for (const auto& [name, parameter] : parameters)
    search.look(kGradients, parameter.grad(),
                [&] { return fmt::format("the gradient of \"{}\"", name); });
  return search.find();
}

}  // namespace

std::string first_bad_tensor(nn::Module& module, const std::function<void()>& forward,
                             distributed::ProcessGroup& group) {
  const std::string mine = packed(search_this_rank(module, forward));
  std::vector<std::optional<Find>> finds;
  for (const std::string& text : distributed::all_gather_texts(group, mine))
    finds.push_back(unpacked(text));
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < finds.size(); ++i)
    if (finds[i] && (!first || finds[i]->place < finds[*first]->place)) first = i;
  if (!first) return "no tensor of this rank";
  return fmt::format("{} on rank {}", finds[*first]->text, group.ranks()[*first]);
}

}  // namespace tessera::models
