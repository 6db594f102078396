#pragma once

/// Whether products of f32 matrices on a GPU may be computed in TF32: by tensor cores, from
/// operands that are rounded to 10 bits of mantissa, with sums in f32. About three decimal digits
/// instead of seven.

namespace tessera {

/// For the whole process; off at the start, so that f32 means f32. Any thread. It counts when an
/// operation is issued, and changes neither other dtypes nor the CPU. A captured CUDA graph keeps
/// what it was captured with.
void set_tf32_allowed(bool allowed);
bool tf32_allowed();

}  // namespace tessera
