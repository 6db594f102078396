#include "tessera/tools/bench/bench_gpu_support.h"

#include <cstdio>

#include "tessera/tensor/random.h"

namespace tessera {

BenchStart start_benchmark(int argc, char** argv, Device device) {
  BenchRun run{.device = device};
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--smoke") {
      std::fprintf(stderr, "unknown argument \"%s\"; there is: --smoke\n", argv[i]);
      return {.run = {}, .exit_status = 2};
    }
    run.smoke = true;
  }
  if (device.is_cuda() && cuda_device_count() == 0) {
    if (!run.smoke) {
      std::printf("skipped: no GPU\n");
      return {};
    }
    run.device = kCpu;
  }
  set_default_device(run.device);
  return {.run = run};
}

void print_row(const BenchRun& run, const std::string& what, const std::string& figures) {
  const std::string rest = run.smoke ? "\"smoke\": true" : figures;
  std::printf("{%s, %s}\n", what.c_str(), rest.c_str());
  std::fflush(stdout);
}

Tensor random_tensor(const Shape& shape, const TensorOptions& options, std::string_view name) {
  const Tensor out = Tensor::empty(shape, options);
  random::fill_normal(out, random::named_key(1, name), random::whole(shape), 0, 1);
  return out;
}

}  // namespace tessera
