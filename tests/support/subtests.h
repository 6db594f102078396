// Runs a body for all combinations of some settings, inside one set of ranks, like run_subtests and
// subtest_name of PyTorch's FSDP tests.
//
//     run_subtests(
//         t, [&](bool offload, std::optional<DType> reduce) { train(t, offload, reduce); },
//         axis("offload", {false, true}),
//         axis("reduce", {value("same", std::optional<DType>()), value("f32", ...)}));
//
// The last axis varies fastest. A barrier separates the combinations. Failures and exceptions name
// the combination: "[offload=true reduce=none] ...".
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

// A value in names of cases; "none" for an absent one.
inline std::string value_name(bool value) { return value ? "true" : "false"; }
inline std::string value_name(DType value) { return dtype_name(value); }
inline std::string value_name(const std::string& value) { return value; }
template <class T>
requires std::is_arithmetic_v<T> std::string value_name(T value) {
  return fmt::format("{}", value);
}
template <class T>
std::string value_name(const std::optional<T>& value) {
  return value ? value_name(*value) : "none";
}

template <class T>
struct SubtestValue {
  std::string name;
  T value;
};
template <class T>
SubtestValue<T> value(std::string name, T value) {
  return {std::move(name), std::move(value)};
}

template <class T>
struct SubtestAxis {
  std::string name;
  std::vector<SubtestValue<T>> values;
};
// Values with explicit names, or named after themselves.
template <class T>
SubtestAxis<T> axis(std::string name, std::initializer_list<SubtestValue<T>> values) {
  return {std::move(name), values};
}
template <class T>
SubtestAxis<T> axis(std::string name, std::initializer_list<T> values) {
  SubtestAxis<T> out{std::move(name), {}};
  for (const T& each : values) out.values.push_back({value_name(each), each});
  return out;
}

namespace detail {

template <class Body, class... Values>
void run_subtest(RankTest& t, const std::string& name, const Body& body, const Values&... values) {
  const RankTest::NamedCase named(t, name);
  try {
    body(values...);
  } catch (const std::exception& error) {
    t.fail(fmt::format("threw: {}", error.what()));
    throw;
  }
  distributed::barrier(t.group(), "subtests");
}

template <class Body, class... Chosen>
void choose(RankTest& t, const std::string& name, const Body& body,
            const std::tuple<Chosen...>& chosen) {
  std::apply([&](const Chosen&... values) { run_subtest(t, name, body, values...); }, chosen);
}

template <class Body, class... Chosen, class T, class... Rest>
void choose(RankTest& t, const std::string& name, const Body& body,
            const std::tuple<Chosen...>& chosen, const SubtestAxis<T>& first,
            const SubtestAxis<Rest>&... rest) {
  for (const SubtestValue<T>& each : first.values) {
    choose(t, fmt::format("{}{}{}={}", name, name.empty() ? "" : " ", first.name, each.name), body,
           std::tuple_cat(chosen, std::tuple<T>(each.value)), rest...);
  }
}

}  // namespace detail

template <class Body, class... T>
void run_subtests(RankTest& t, const Body& body, const SubtestAxis<T>&... axes) {
  detail::choose(t, "", body, std::tuple<>(), axes...);
}

}  // namespace tessera::testing
