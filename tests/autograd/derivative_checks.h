// Derivatives against differences, as assertions.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "tessera/autograd/grad_check.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {

using Inputs = std::vector<Variable>;
using Function = std::function<Variable(const Inputs&)>;

inline void check_once(const Function& function, const Inputs& inputs) {
  const GradCheckResult result = grad_check(function, inputs);
  INFO(result.message);
  CHECK(result.passed);
}

inline void check_twice(const Function& function, const Inputs& inputs) {
  check_once(function, inputs);
  const GradCheckResult result = grad_grad_check(function, inputs);
  INFO("second derivative: " << result.message);
  CHECK(result.passed);
}

}  // namespace tessera::testing
