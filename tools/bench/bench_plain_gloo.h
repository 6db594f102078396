#pragma once

// Gloo's own collectives, as a program without Tessera would call them, for bench_collectives.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

class PlainGloo {
 public:
  // Every rank calls it with the same folder, which is empty at first.
  PlainGloo(int rank, int size, const std::string& folder);
  ~PlainGloo();

  // Counts are in floats. `out` has size * count elements in all_gather, count in the others.
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
