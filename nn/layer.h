#pragma once

/// The base of every layer: calling the object runs the hooks around forward().
///
///     class Mlp final : public nn::Layer<Mlp> {
///      public:
///       explicit Mlp(std::int64_t dim)
///           : up_({.in = dim, .out = 4 * dim}), down_({.in = 4 * dim, .out = dim}) {
///         register_module("up", up_);
///         register_module("down", down_);
///       }
///       Variable forward(const Variable& x) { return down_(gelu(up_(x))); }   // any signature
///      private:
///       nn::Linear up_, down_;
///     };
///
/// A call decay-copies its arguments, lets hooks rewrite the copies, then moves them into forward.
/// The result is returned by value, also where forward returns a reference. An argument meant by
/// reference is passed as std::ref(c); forgetting it does not compile. A Tensor where forward takes
/// a Variable is passed as a constant, Variable(tensor).
///
/// Order of a call: pre-hooks, forward, forward hooks. Backward hooks see the arguments as the
/// pre-hooks left them and the results as the forward hooks did. When a pre-hook or forward throws,
/// the forward hooks registered with `always` run with null results; when a forward hook throws,
/// the later ones with `always` do. The first exception is the one that the caller sees.

#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tessera/nn/backward_hooks.h"
#include "tessera/nn/module.h"
#include "tessera/nn/recompute.h"
#include "tessera/nn/visit.h"
#include "tessera/tensor/scope_name.h"

namespace tessera::nn {

namespace detail {
/// The class without namespaces: "Linear".
std::string short_type_name(const std::type_info& type);

template <class Derived, class... Args>
concept ForwardAccepts = requires(Derived& derived, Args&&... args) {
  derived.forward(std::forward<Args>(args)...);
};

/// The type that forward() gets for an argument; `constant`: a Tensor as a Variable.
template <class Arg, bool constant>
using Arriving = std::conditional_t<constant && std::is_same_v<std::decay_t<Arg>, Tensor>, Variable,
                                    std::decay_t<Arg>>;

template <class Derived, std::size_t constants, class... Args, std::size_t... places>
constexpr bool accepts_constants(std::index_sequence<places...>) {
  return ForwardAccepts<Derived, Arriving<Args, (places < constants)>...>;
}

/// At how many leading places tensors have to be constants for forward() to accept the arguments:
/// the least number from `constants` on. Without such a number, one more than there are arguments.
template <class Derived, std::size_t constants, class... Args>
constexpr std::size_t leading_constants() {
  if constexpr (constants > sizeof...(Args) || accepts_constants<Derived, constants, Args...>(
                                                   std::index_sequence_for<Args...>())) {
    return constants;
  } else {
    return leading_constants<Derived, constants + 1, Args...>();
  }
}

/// The forward of a layer as a function. A class of its own, so that a call is compiled once for
/// the types that arrive and not again for each way to pass them.
template <class Derived>
struct CallForward {
  Derived* layer;
  template <class... Copies>
  decltype(auto) operator()(Copies&&... copies) const {
    return layer->forward(std::forward<Copies>(copies)...);
  }
};

/// The forward of a layer that makes a Variable of Variables, without its type: what calls it is
/// compiled once for all such layers.
struct ForwardOfVariables {
  void* layer;
  Variable (*forward)(void* layer, Variable* arguments);
  Variable operator()(std::vector<Variable> arguments) const {
    return forward(layer, arguments.data());
  }
};

template <class Derived, class... Args>
concept IsForwardOfVariables = (std::is_same_v<std::decay_t<Args>, Variable> && ...) &&
                               requires(Derived& derived) {
  requires std::is_same_v<
      std::decay_t<decltype(derived.forward(std::declval<std::decay_t<Args>>()...))>, Variable>;
};

template <class Derived, std::size_t... Indices>
ForwardOfVariables forward_of(Derived* layer, std::index_sequence<Indices...>) {
  return {layer, [](void* erased, Variable* arguments) -> Variable {
            return static_cast<Derived*>(erased)->forward(std::move(arguments[Indices])...);
          }};
}
}  // namespace detail

/// What calls a layer's forward inside its hooks; the part of Layer that does not know the layer.
class HookedModule : public Module {
 public:
  /// The same hooks around another callable, for methods other than forward:
  ///     Variable encode(const Variable& x) {
  ///       return hooked([this](const Variable& x) { return ...; }, x);
  ///     }
  template <class Function, class... Args>
  decltype(auto) hooked(Function&& function, Args&&... args) {
    const NamedScope scope(scope_name());
    std::tuple<std::decay_t<Args>...> copies(std::forward<Args>(args)...);
    return with_hooks(function, copies);
  }

 protected:
  HookedModule() = default;
  Variable call_with_hooks(const detail::ForwardOfVariables& forward,
                           std::span<Variable> arguments);

 private:
  template <class Function, class... Copies>
  decltype(auto) with_hooks(Function& function, std::tuple<Copies...>& copies) {
    const VisitVariables arguments = [&copies](const auto& visit) {
      visit_variables(copies, visit);
    };
    std::shared_ptr<detail::BackwardHookCall> backward;
    const auto call = [&]() -> decltype(auto) {
      run_pre_hooks(arguments);
      backward = watch_arguments(arguments);
      return detail::call_once_or_twice({is_recomputed(), alive()}, function, copies);
    };
    using Result = std::decay_t<decltype(call())>;
    if constexpr (std::is_void_v<Result>) {
      or_tell_hooks(call);
      const VisitVariables nothing = [](const auto&) {};
      run_forward_hooks(&nothing);
    } else {
      Result result = or_tell_hooks(call);
      const VisitVariables results = [&result](const auto& visit) {
        visit_variables(result, visit);
      };
      run_forward_hooks(&results);
      watch_results(backward, results);
      return result;
    }
  }

  template <class Call>
  decltype(auto) or_tell_hooks(const Call& call) {
    try {
      return call();
    } catch (...) {
      note_failed_scope();
      run_forward_hooks(nullptr);  // throws nothing itself when told of a failure
      throw;
    }
  }
};

template <class Derived>
class Layer : public HookedModule {
 public:
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    constexpr std::size_t constants = detail::leading_constants<Derived, 0, Args...>();
    constexpr bool accepts = constants <= sizeof...(Args);
    static_assert(accepts,
                  "forward() of this layer is not public or does not take these arguments; they "
                  "arrive as moved copies, so one that forward() takes as a non-const reference is "
                  "passed as std::ref(argument)");
    if constexpr (accepts && constants > 0) {
      return call_with_constants<constants>(std::index_sequence_for<Args...>(),
                                            std::forward<Args>(args)...);
    } else if constexpr (accepts) {
      const auto derived = static_cast<Derived*>(this);
      if constexpr (sizeof...(Args) > 0 && detail::IsForwardOfVariables<Derived, Args...>) {
        Variable copies[] = {Variable(std::forward<Args>(args))...};
        return call_with_hooks(detail::forward_of(derived, std::index_sequence_for<Args...>()),
                               copies);
      } else {
        return hooked(detail::CallForward<Derived>{derived}, std::forward<Args>(args)...);
      }
    }
  }

  std::string type_name() const override { return detail::short_type_name(typeid(*this)); }
  std::pair<const void*, std::size_t> extent() const override {
    return {static_cast<const Derived*>(this), sizeof(Derived)};
  }

 protected:
  Layer() {
    static_assert(std::is_base_of_v<Layer, Derived>,
                  "derive as: class Mine : public nn::Layer<Mine>");
  }

 private:
  template <std::size_t constants, std::size_t... places, class... Args>
  decltype(auto) call_with_constants(std::index_sequence<places...>, Args&&... args) {
    return (*this)(detail::Arriving<Args, (places < constants)>(std::forward<Args>(args))...);
  }
};

}  // namespace tessera::nn
