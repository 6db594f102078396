#pragma once

// The cost of one small operation for the thread that issues it.

#include <functional>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tools/bench/bench_timing.h"

namespace tessera {

// Nanoseconds of one operation of a chain.
struct ChainCost {
  double record = 0;
  double destroy = 0;
  double backward = 0;
};

// A round is `ops` operations; a figure is the median of all rounds in nanoseconds, divided by
// `ops`.
struct HostCost {
  int rounds = 1000;
  int ops = 1000;
  int warm_up = 20;                      // rounds that are not measured
  std::function<void()> settle = [] {};  // between rounds: waits for issued work

  // The cost of `op()`.
  template <class Op>
  double each(const Op& op) const {
    std::vector<double> took;
    for (int round = -warm_up; round < rounds; ++round) {
      const double us = microseconds([&] {
        for (int i = 0; i < ops; ++i) op();
      });
      settle();
      if (round >= 0) took.push_back(us);
    }
    return of_one(took);
  }

  // The cost of y = op(y), from `start`; op returns a Variable.
  template <class Op>
  ChainCost chain(const Variable& start, const Op& op) const {
    std::vector<double> record, destroy, run;
    const auto build = [&](Variable& y) {
      y = start;
      for (int i = 0; i < ops; ++i) y = op(y);
    };
    const Tensor gradient = ones(start.shape());
    for (int round = -warm_up; round < rounds; ++round) {
      Variable y;
      const double recorded = microseconds([&] { build(y); });
      settle();
      const double destroyed = microseconds([&] { y = Variable(); });
      build(y);
      settle();
      const double ran = microseconds([&] { backward(y, {.gradient = gradient}); });
      settle();
      if (round < 0) continue;
      record.push_back(recorded);
      destroy.push_back(destroyed);
      run.push_back(ran);
    }
    return {.record = of_one(record), .destroy = of_one(destroy), .backward = of_one(run)};
  }

 private:
  double of_one(const std::vector<double>& took) const { return median(took) * 1e3 / ops; }
};

}  // namespace tessera
