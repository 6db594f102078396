// Runs a kernel whose threads read what their neighbours wrote:  races barrier|none
#include <cstring>

#include "tessera/tests/tools/emulated_gpu/gpu.h"
#include "tessera/tests/tools/emulated_gpu/kernels.h"

int main(int argc, char** argv) {
  const bool barrier = argc > 1 && std::strcmp(argv[1], "barrier") == 0;
  const tessera::testing::TestStream stream;
  const tessera::testing::TestBuffer<int> out(256);
  tessera::testing::launch_neighbours(stream, out.data(), barrier);
  stream.synchronize();
  return 0;
}
