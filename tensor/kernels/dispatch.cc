#include <string>

#include "tessera/tensor/check.h"
#include "tessera/tensor/kernels/cpu/entry.h"
#include "tessera/tensor/kernels/table.h"

namespace tessera {

const char* cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kX86V3:
      return "x86-64-v3";
  }
  return "?";
}

CpuFlags detect_cpu_flags() {
  __builtin_cpu_init();
  return {.avx2 = __builtin_cpu_supports("avx2") != 0,
          .fma = __builtin_cpu_supports("fma") != 0,
          .bmi1 = __builtin_cpu_supports("bmi") != 0,
          .bmi2 = __builtin_cpu_supports("bmi2") != 0,
          .f16c = __builtin_cpu_supports("f16c") != 0,
          .lzcnt = __builtin_cpu_supports("lzcnt") != 0,
          .movbe = __builtin_cpu_supports("movbe") != 0};
}

CpuIsa choose_cpu_isa(const CpuFlags& flags) {
  std::string missing;
  const auto need = [&](bool present, const char* name) {
    if (!present) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  need(flags.avx2, "avx2");
  need(flags.fma, "fma");
  need(flags.bmi1, "bmi1");
  need(flags.bmi2, "bmi2");
  need(flags.f16c, "f16c");
  need(flags.lzcnt, "lzcnt");
  need(flags.movbe, "movbe");
  TESSERA_CHECK_AS(DeviceError, missing.empty(), "cpu_table",
                   "this CPU lacks {}; the kernels need {}, which x86 CPUs since 2013-2015 have",
                   missing, cpu_isa_name(CpuIsa::kX86V3));
  return CpuIsa::kX86V3;
}

const CpuTable& cpu_table() {
  static const CpuTable& table = [&]() -> const CpuTable& {
    switch (choose_cpu_isa(detect_cpu_flags())) {
      case CpuIsa::kX86V3:
        return *tessera_cpu_kernels_v3();
    }
    __builtin_unreachable();
  }();
  return table;
}

}  // namespace tessera
