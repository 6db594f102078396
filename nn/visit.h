#pragma once

/// Finding every Variable inside the arguments and results of a forward, whatever their types.
///
/// Found: Variable itself, where defined; inside std::vector, array, map, unordered_map, optional,
/// pair, tuple, variant, reference_wrapper; and inside a class with a member `template <class F>
/// void visit_tensors(F&& f)` that calls f on each part. Passed over: arithmetic types, enums,
/// strings, Tensor (it carries no gradient), pointers to const char, and types for which
/// `holds_no_tensors<T>` is true. Anything else fails one static_assert that says what to add.

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/autograd/variable.h"

namespace tessera::nn {

/// "Visit every Variable in here": how hooks reach arguments and results of any type, and may
/// replace them.
using VisitVariables = std::function<void(const std::function<void(Variable&)>&)>;

/// Specialise to true for a class that never holds a Variable.
template <class T>
inline constexpr bool holds_no_tensors =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string> ||
    std::is_same_v<T, std::string_view> || std::is_same_v<T, const char*> ||
    std::is_same_v<T, Tensor> || std::is_same_v<T, std::nullptr_t> ||
    std::is_same_v<T, std::nullopt_t> || std::is_same_v<T, Shape> || std::is_same_v<T, Device> ||
    std::is_same_v<T, std::monostate>;

namespace detail {

/// Stands for the f of visit_tensors where only its presence is asked.
struct AnyPart {
  template <class... Parts>
  void operator()(Parts&&...) const {}
};

template <class T>
concept OffersVisitTensors = requires(T& value) {
  value.visit_tensors(AnyPart{});
};

/// How to reach the parts of a T; the members of a specialisation say it, this one is for classes
/// of users.
template <class T>
struct Parts {
  template <class Visit>
  static void each(T& value, Visit&& visit) {
    static_assert(OffersVisitTensors<T>,
                  "Tessera cannot tell whether an argument or a result of forward() holds "
                  "Variables: give its class a member `template <class F> void "
                  "visit_tensors(F&& f)` that calls f on each part that may, or specialise "
                  "tessera::nn::holds_no_tensors<T> to true");
    if constexpr (OffersVisitTensors<T>) {
      value.visit_tensors([&visit](auto&... parts) { (visit(parts), ...); });
    }
  }
};

template <class Container>
struct RangeParts {
  template <class Visit>
  static void each(Container& values, Visit&& visit) {
    if constexpr (!holds_no_tensors<typename Container::value_type>) {
      for (auto& value : values) visit(value);
    }
  }
};
template <class T, class A>
struct Parts<std::vector<T, A>> : RangeParts<std::vector<T, A>> {};
template <class T, std::size_t N>
struct Parts<std::array<T, N>> : RangeParts<std::array<T, N>> {};

template <class Map>
struct MapParts {
  static_assert(holds_no_tensors<typename Map::key_type>,
                "the keys of a map are const: keep Variables in its values");
  template <class Visit>
  static void each(Map& map, Visit&& visit) {
    for (auto& [key, value] : map) visit(value);
  }
};
template <class... A>
struct Parts<std::map<A...>> : MapParts<std::map<A...>> {};
template <class... A>
struct Parts<std::unordered_map<A...>> : MapParts<std::unordered_map<A...>> {};

template <class T>
struct Parts<std::optional<T>> {
  template <class Visit>
  static void each(std::optional<T>& value, Visit&& visit) {
    if (value) visit(*value);
  }
};

template <class Tuple>
struct TupleParts {
  template <class Visit>
  static void each(Tuple& tuple, Visit&& visit) {
    std::apply([&visit](auto&... parts) { (visit(parts), ...); }, tuple);
  }
};
template <class... T>
struct Parts<std::tuple<T...>> : TupleParts<std::tuple<T...>> {};
template <class A, class B>
struct Parts<std::pair<A, B>> : TupleParts<std::pair<A, B>> {};

template <class... T>
struct Parts<std::variant<T...>> {
  template <class Visit>
  static void each(std::variant<T...>& value, Visit&& visit) {
    if (!value.valueless_by_exception()) std::visit([&visit](auto& part) { visit(part); }, value);
  }
};

template <class T>
struct Parts<std::reference_wrapper<T>> {
  template <class Visit>
  static void each(std::reference_wrapper<T>& value, Visit&& visit) {
    visit(value.get());
  }
};

}  // namespace detail

/// Calls `function(Variable&)` for every defined Variable inside `value`, in the order in which
/// they stand there (an unordered_map's: its own). The function may replace them.
template <class T, class Function>
void visit_variables(T& value, Function&& function) {
  using Bare = std::remove_const_t<T>;
  if constexpr (holds_no_tensors<Bare>) {
    return;
  } else {
    static_assert(!std::is_const_v<T>,
                  "hooks cannot reach a Variable behind const: pass it by value, or std::ref");
    if constexpr (std::is_const_v<T>) {
      return;
    } else if constexpr (std::is_same_v<Bare, Variable>) {
      if (value.defined()) function(value);
    } else {
      detail::Parts<Bare>::each(value,
                                [&function](auto& part) { visit_variables(part, function); });
    }
  }
}

}  // namespace tessera::nn
