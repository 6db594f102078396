#pragma once

// Gloo's own collectives, as a program without Tessera would call them: what bench_collectives
// compares with.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

class PlainGloo {
 public:
  // Every rank calls it, with a folder that all of them see and that is empty at first.
  PlainGloo(int rank, int size, const std::string& folder);
  ~PlainGloo();

  // Counts are of floats. `out` has size * count elements in all_gather, count in the others.
  void all_gather(float* in, float* out, std::size_t count);
  void all_reduce(float* in, float* out, std::size_t count);
  void broadcast(float* data, std::size_t count, int root);
  void all_to_all(float* in, float* out, std::size_t count);  // count: of all parts together
  void barrier();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
