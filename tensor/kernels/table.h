#pragma once

/// The list of all kernels, and the table of CPU entry points that each instruction-set build
/// exports. To add a kernel, include its header and append it to `AllKernels` in all.h.

#include <cstdint>
#include <string>
#include <tuple>

#include "tessera/tensor/kernels/all.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// One entry point; a distinct type for each kernel, so that std::get finds it.
template <class K>
struct CpuEntry {
  void (*run)(const typename K::Args&, Workspace) = nullptr;
};

template <class List>
struct CpuTableOf;
template <class... K>
struct CpuTableOf<KernelList<K...>> {
  using Type = std::tuple<CpuEntry<K>...>;
  /// Called only in kernel builds, because it refers to the code of every kernel.
  static Type make() { return {CpuEntry<K>{&K::cpu}...}; }
};

using CpuTable = CpuTableOf<AllKernels>::Type;

/// Instruction sets that kernels are built for, weakest first.
enum class CpuIsa : std::uint8_t { kX86V3, kX86V4 };
const char* cpu_isa_name(CpuIsa isa);  ///< "x86-64-v3"

/// The CPU properties that the choice depends on; tests pass made-up values. A flag is set only if
/// the operating system also saves the registers.
struct CpuFlags {
  bool avx2 = false, fma = false, bmi1 = false, bmi2 = false, f16c = false, lzcnt = false,
       movbe = false;  // v3
  bool avx512f = false, avx512bw = false, avx512cd = false, avx512dq = false,
       avx512vl = false;  // v4
};
CpuFlags detect_cpu_flags();
/// The value of TESSERA_CPU_ISA: "v3" or "v4" requests that build; empty if it is not set.
std::string requested_cpu_isa();
/// The best build for a CPU, or the one that `requested` names unless it is empty. Throws
/// DeviceError with the missing features if the CPU cannot run that build, or any build, and for an
/// unknown name.
CpuIsa choose_cpu_isa(const CpuFlags& flags, const std::string& requested = {});

/// The build that this process uses: choose_cpu_isa of this CPU and TESSERA_CPU_ISA, at the first
/// call.
CpuIsa cpu_isa();
/// The entry points of that build. Throws DeviceError as choose_cpu_isa.
const CpuTable& cpu_table();

}  // namespace tessera
