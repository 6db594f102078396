#pragma once

// Shared by the benchmarks on a GPU: the device, and timing of two things in turns.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor/device.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tools/bench/bench_timing.h"

namespace tessera {

struct BenchRun {
  Device device{DeviceType::kCuda, 0};
  // Runs everything once and small, on the CPU if there is no GPU, without times.
  bool smoke = false;

  int pairs() const { return smoke ? 1 : 9; }
};

// The run on `device` for a command line with no argument or --smoke. Null, after a message, if it
// cannot run: without that GPU ("skipped: no GPU" on stdout, exit status 0), and for other arguments
// (on stderr, exit status 2).
struct BenchStart {
  std::optional<BenchRun> run;
  int exit_status = 0;
};
BenchStart start_benchmark(int argc, char** argv, Device device = {DeviceType::kCuda, 0});

// Prints one line of JSON: the members `what`, then `figures`. A smoke run has no figures; it
// prints "smoke": true instead.
void print_row(const BenchRun& run, const std::string& what, const std::string& figures);

// Standard normal numbers, seeded by the name: power, and so a GPU's speed, depends on the data.
Tensor random_tensor(const Shape& shape, const TensorOptions& options, std::string_view name);

// Microseconds of one call of `body`, including the GPU's work, over `calls` calls in a row.
template <class Body>
double microseconds_per_call(const BenchRun& run, int calls, const Body& body) {
  const DeviceStream& stream = current_stream(run.device);
  stream.synchronize();
  const double all = microseconds([&] {
    for (int i = 0; i < calls; ++i) body();
    stream.synchronize();
  });
  return all / calls;
}

// The number of calls for which issuing the first and waiting for the last can be neglected. On the CPU they take some
// time slices of the system, so that it spreads the threads over the cores. Calls `body` a few times, which makes plans and fills
// pools.
template <class Body>
int calls_for(const BenchRun& run, const Body& body) {
  const double measured_us = run.device == kCpu ? 20000 : 5000;
  body();
  if (run.smoke) return 1;
  const double once = microseconds_per_call(run, 3, body);
  return static_cast<int>(std::clamp(measured_us / once, 3.0, 2000.0));
}

struct Comparison {
  double ours = 0, theirs = 0;  // microseconds of a call: medians
  double ratio = 0;             // of theirs to ours, the median over pairs
};

template <class Ours, class Theirs>
Comparison compare(const BenchRun& run, const Ours& ours, const Theirs& theirs) {
  const int our_calls = calls_for(run, ours), their_calls = calls_for(run, theirs);
  std::vector<double> a, b, ratios;
  for (int pair = 0; pair < run.pairs(); ++pair) {
    a.push_back(microseconds_per_call(run, our_calls, ours));
    b.push_back(microseconds_per_call(run, their_calls, theirs));
    ratios.push_back(b.back() / a.back());
  }
  return {.ours = median(a), .theirs = median(b), .ratio = median(ratios)};
}

}  // namespace tessera
