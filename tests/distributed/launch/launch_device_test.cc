// `launch` of a small program, told by its command line where its ranks compute.

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/tensor.h"

namespace tessera::testing {
namespace {

TEST_CASE("--device says of what the ranks' devices are", "[launch]") {
  const Device expected = default_device();
  std::vector<std::string> words = {"program",
                                    "--launch",
                                    "threads",
                                    "--ranks",
                                    "3",
                                    "--device",
                                    expected.is_cuda() ? "cuda" : "cpu"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  std::atomic<int> right{0};
  const auto body = [&](distributed::World& world) {
    const float mine = static_cast<float>(world.rank() + 1);
    const Tensor x = Tensor::from_vector<float>({mine}, {1}, world.device());
    all_reduce(*world.group(), std::vector{x});
    if (world.device().type == expected.type && x.item<float>() == 6) ++right;
  };
  CHECK(distributed::launch(static_cast<int>(argv.size()), argv.data(), body) == 0);
  CHECK(right == 3);
}

}  // namespace
}  // namespace tessera::testing
