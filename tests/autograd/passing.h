// Operations that compute nothing and note in a log when gradients pass by.
#pragma once

#include <string>
#include <vector>

#include "tessera/autograd/function.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {

using Log = std::vector<std::string>;

// x itself; notes in the log when its gradient passes by.
inline Variable passing(const std::string& name, const Variable& x, Log& log) {
  return record_twice("passing", x.tensor(), {x},
                      [name, &log](const Variable& dy, const BackwardContext&) {
                        log.push_back(name);
                        return Gradients{dy};
                      });
}

// All of `inputs`, through one node.
inline std::vector<Variable> passing_all(const std::string& name,
                                         const std::vector<Variable>& inputs, Log& log) {
  std::vector<Tensor> tensors;
  for (const Variable& input : inputs) tensors.push_back(input.tensor());
  return record_differentiable("passing_all", tensors, inputs,
                               [name, &log](const Gradients& dy, const BackwardContext&) {
                                 log.push_back(name);
                                 return dy;
                               });
}

inline void log_accumulation(Variable leaf, const std::string& name, Log& log) {
  leaf.register_post_accumulate_hook([name, &log](const Variable&) { log.push_back(name); });
}

}  // namespace tessera::testing
