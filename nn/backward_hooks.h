#pragma once

/// How a module's backward hooks hear of a call's gradients: two identity nodes, one around the
/// call's arguments and one around its results. For Module and Layer.

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "tessera/autograd/graph.h"
#include "tessera/nn/visit.h"

namespace tessera::nn::detail {

class BackwardHookCall : public std::enable_shared_from_this<BackwardHookCall> {
 public:
  /// What to call; `on_results` may replace the gradients of the results, `on_arguments` those of
  /// the arguments. Both must bear that the module is gone.
  struct Callbacks {
    std::function<void(Gradients& result_gradients)> on_results;
    std::function<void(Gradients& argument_gradients, const Gradients& result_gradients)>
        on_arguments;
  };
  explicit BackwardHookCall(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}

  void watch_arguments(const VisitVariables& arguments);
  void watch_results(const VisitVariables& results);

 private:
  void results_arrived(Gradients& gradients);
  void arguments_arrived(Gradients& gradients);

  Callbacks callbacks_;
  std::size_t arguments_ = 0;
  bool waits_for_arguments_ = false;
  Gradients result_gradients_;  // between both nodes
};

}  // namespace tessera::nn::detail
