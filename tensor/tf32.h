#pragma once

/// Whether f32 matrix products on a GPU may be computed in TF32: by tensor cores, from operands
/// rounded to 10 bits of mantissa, with sums in f32. The result has about three correct decimal
/// digits instead of seven.

namespace tessera {

/// For the whole process; off by default, so that f32 means f32. Thread-safe. The setting counts
/// when an operation is issued. It does not affect other dtypes or the CPU. A captured CUDA graph
/// keeps the setting that it was captured with.
void set_tf32_allowed(bool allowed);
bool tf32_allowed();

}  // namespace tessera
