// Small kernels for tests of the emulated GPU; some are wrong on purpose. Launches throw
// DeviceError.
#pragma once

struct CUstream_st;  // of the CUDA runtime

namespace tessera::testing {

// data[i] = value.
void launch_fill(CUstream_st* stream, float* data, int n, float value);
// data[i] = data[i] * factor + summand.
void launch_scale(CUstream_st* stream, float* data, int n, float factor, float summand);
// One thread: takes this long.
void launch_sleep(CUstream_st* stream, int microseconds);
// Each of 256 threads writes its number to shared memory and reads its neighbour's; `barrier`:
// waits in between.
void launch_neighbours(CUstream_st* stream, int* out, bool barrier);
// out[0] is the sum of 0 ... 255, by block_fold.
void launch_block_sum(CUstream_st* stream, int* out);
// Half of the block waits for the other half, which has ended.
void launch_hang(CUstream_st* stream);
// Asks for dynamic shared memory; `allowed`: after asking the driver for it.
void launch_with_shared(CUstream_st* stream, unsigned bytes, bool allowed);
// Asks for blocks of so many threads.
void launch_with_threads(CUstream_st* stream, unsigned threads);

}  // namespace tessera::testing
