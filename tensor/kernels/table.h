#pragma once

/// The list of all kernels, and the table of CPU entry points that each instruction-set build
/// exports. Adding a kernel: include its header and append it to `AllKernels`.

#include <cstdint>
#include <tuple>

#include "tessera/tensor/kernels/all.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// One entry point; a type of its own per kernel, so that std::get finds it.
template <class K>
struct CpuEntry {
  void (*run)(const typename K::Args&, Workspace) = nullptr;
};

template <class List>
struct CpuTableOf;
template <class... K>
struct CpuTableOf<KernelList<K...>> {
  using Type = std::tuple<CpuEntry<K>...>;
  /// Only kernel builds call this: it names the code of every kernel.
  static Type make() { return {CpuEntry<K>{&K::cpu}...}; }
};

using CpuTable = CpuTableOf<AllKernels>::Type;

/// Instruction sets that kernels are built for, weakest first.
enum class CpuIsa : std::uint8_t { kX86V3 };
const char* cpu_isa_name(CpuIsa isa);  ///< "x86-64-v3"

/// What the choice depends on; made-up values test it.
struct CpuFlags {
  bool avx2 = false, fma = false, bmi1 = false, bmi2 = false, f16c = false, lzcnt = false,
       movbe = false;
};
CpuFlags detect_cpu_flags();
/// The best build for a CPU. Throws DeviceError naming the missing features when there is none.
CpuIsa choose_cpu_isa(const CpuFlags& flags);

/// The entry points for this machine; chosen at the first call. Throws DeviceError as
/// choose_cpu_isa.
const CpuTable& cpu_table();

}  // namespace tessera
