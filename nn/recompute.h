#pragma once

/// Memory for time, as a property of a module: its forward keeps its arguments only, and runs again
/// during backward; see autograd/recompute.h.
///
///     for (auto& block : blocks) nn::recompute(block);
///
/// Names, parameters and state dict stay as they are. The module's own hooks run once, around the
/// first forward; those of modules inside it run again with the second, which backward calls under
/// the autocast and the random keys of the first, so train() and eval() are not called in between.
/// Values and gradients keep their bits.
///
/// Calls throw StateError where an argument is passed by std::ref, or cannot be copied: the second
/// forward would find it changed. A forward without a result is not recomputed. A backward after
/// the module is gone throws StateError.

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/autograd/recompute.h"
#include "tessera/nn/module.h"
#include "tessera/nn/visit.h"

namespace tessera::nn::detail {

/// The call of a forward inside its hooks, recorded as one recomputation where the module asks for
/// it. For Layer.
struct RecomputeSettings {
  bool on = false;
  std::weak_ptr<const void> module;  ///< expires with it
};

/// Throws StateError: the module's forward cannot run twice.
[[noreturn]] void throw_not_recomputable(const char* why);
/// Throws StateError when the module is gone.
void check_still_there(const std::weak_ptr<const void>& module);

template <class T>
inline constexpr bool is_reference_wrapper = false;
template <class T>
inline constexpr bool is_reference_wrapper<std::reference_wrapper<T>> = true;

template <class Values>
std::vector<Variable> variables_in(Values& values) {
  std::vector<Variable> out;
  visit_variables(values, [&out](Variable& variable) { out.push_back(variable); });
  return out;
}

template <class Values>
void put_variables(Values& values, const std::vector<Variable>& variables) {
  std::size_t i = 0;
  visit_variables(values, [&](Variable& variable) { variable = variables[i++]; });
}

template <class Result, class Function, class... Args>
Result call_recomputed(const std::weak_ptr<const void>& module, Function& function,
                       std::tuple<Args...>& arguments) {
  if constexpr ((is_reference_wrapper<Args> || ...)) {
    throw_not_recomputable("an argument is passed by std::ref, which it may change");
  } else if constexpr (!std::is_copy_constructible_v<std::tuple<Args...>> ||
                       !std::is_copy_constructible_v<std::decay_t<Function>>) {
    throw_not_recomputable("an argument cannot be copied");
  } else {
    // What is in the result beside Variables comes from the first run.
    struct FirstRun {
      std::optional<Result> result;
      bool done = false;
    };
    const auto first = std::make_shared<FirstRun>();
    const std::vector<Variable> outputs = tessera::recompute(
        [first, module, function, arguments](const std::vector<Variable>& inputs) mutable {
          check_still_there(module);
          std::tuple<Args...> again = arguments;
          put_variables(again, inputs);
          Result result = std::apply(function, std::move(again));
          std::vector<Variable> out = variables_in(result);
          if (!std::exchange(first->done, true)) first->result = std::move(result);
          return out;
        },
        variables_in(arguments));
    Result result = *std::exchange(first->result, std::nullopt);
    put_variables(result, outputs);
    return result;
  }
}

template <class Function, class... Args>
decltype(auto) call_once_or_twice(const RecomputeSettings& settings, Function& function,
                                  std::tuple<Args...>& arguments) {
  using Result = std::decay_t<decltype(std::apply(function, std::move(arguments)))>;
  if constexpr (std::is_void_v<Result>) {
    std::apply(function, std::move(arguments));
  } else {
    if (settings.on) return call_recomputed<Result>(settings.module, function, arguments);
    return Result(std::apply(function, std::move(arguments)));
  }
}

}  // namespace tessera::nn::detail

namespace tessera::nn {

/// From the next call on. `on` false: an ordinary module again.
inline void recompute(Module& module, bool on = true) { module.set_recomputed(on); }

}  // namespace tessera::nn
