#pragma once

extern "C" {

// The sum of `n` numbers; the entry point.
using SumEntry = float (*)(const float* x, long n);
SumEntry tessera_small_kernels();
}
