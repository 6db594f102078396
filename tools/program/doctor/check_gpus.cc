#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/distributed/launch/gpu_plan.h"
#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/tensor/kernels/cuda/cudnn/paths.h"
#include "tessera/tools/program/doctor/checks.h"

namespace tessera::tools::doctor {
namespace {

// The GPUs that cannot be used though others can.
std::map<int, std::string> refused(const cuda::MachineFacts& machine) {
  std::map<int, std::string> all;
  for (int gpu = 0; gpu < static_cast<int>(machine.devices.size()); ++gpu)
    if (std::string problem = cuda::gpu_problem(machine, gpu); !problem.empty())
      all[gpu] = std::move(problem);
  return all;
}

std::string cuda_text(int version) {
  constexpr int kMajor = 1000, kMinor = 10;
  return fmt::format("{}.{}", version / kMajor, version % kMajor / kMinor);
}

std::string nccl_text(int version) {
  constexpr int kMajor = 10000, kMinor = 100;
  return fmt::format("{}.{}.{}", version / kMajor, version % kMajor / kMinor, version % kMinor);
}

std::string devices_text(const cuda::MachineFacts& machine) {
  std::map<std::string, int> counts;
  for (const cuda::DeviceFacts& each : machine.devices)
    ++counts[fmt::format("{} ({}.{})", each.name, each.major, each.minor)];
  std::string text;
  for (const auto& [name, count] : counts)
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
  return text;
}

// The driver and the GPUs; true if a GPU can be used.
bool check_devices(const GpuFacts& gpu, const Plan& plan, std::vector<Finding>& findings) {
  Check check("gpus", findings);
  const std::string problem = cuda::machine_problem(gpu.machine);
  if (!problem.empty()) {
    const std::string there = gpu.pci > 0 ? fmt::format("{} NVIDIA device{} on the bus, but ",
                                                        gpu.pci, gpu.pci == 1 ? "" : "s")
                                          : "";
    const auto [what, remedy] = parted(problem, "; ");
    const std::string text = there + what;
    if (plan.on_gpus) {
      check.fail(text, remedy);
    } else if (gpu.pci > 0 || gpu.machine.driver_version != 0) {
      check.warn(text, remedy);
    }
    check.ok("none; runs use the CPU");
    return false;
  }
  const std::map<int, std::string> unusable = refused(gpu.machine);
  for (const auto& [device, why] : unusable)
    check.warn(why, "leave this GPU out with CUDA_VISIBLE_DEVICES");
  if (plan.on_gpus) {
    const std::string shortage =
        distributed::gpu_shortage({.ranks = plan.ranks, .device = {DeviceType::kCuda, 0}},
                                  {.gpus = static_cast<int>(gpu.machine.devices.size()),
                                   .has_nccl = gpu.nccl > 0,
                                   .refused = unusable});
    if (!shortage.empty()) {
      const auto [text, remedy] = parted(shortage, "; ");
      check.fail(text, remedy);
    }
  }
  check.ok(fmt::format("{}, driver for CUDA {}, program for CUDA {}", devices_text(gpu.machine),
                       cuda_text(gpu.machine.driver_version),
                       cuda_text(gpu.machine.runtime_version)));
  return true;
}

void check_cudnn_version(const GpuFacts& gpu, bool usable, std::vector<Finding>& findings) {
  Check check("cudnn", findings);
  const char* reason = nullptr;
  if (usable)
    reason = cuda::detail::facts_against_cudnn({.version = static_cast<std::size_t>(gpu.cudnn),
                                                .major = gpu.machine.devices.front().major});
  if (reason != nullptr) {
    const auto [text, remedy] = parted(reason, ": ");
    check.warn(text + "; attention and convolution of 16 bits are slow without it", remedy);
  }
  check.ok(gpu.cudnn == 0 ? "not used" : fmt::format("version {}", gpu.cudnn));
}

void check_nccl_version(const GpuFacts& gpu, bool usable, std::vector<Finding>& findings) {
  Check check("nccl", findings);
  const bool several = usable && gpu.machine.devices.size() > 1;
  if (several && gpu.nccl == 0)
    check.warn("this build has no NCCL, which rank processes on several GPUs need",
               "install NCCL and build again, or start threads (--launch threads)");
  else if (usable && gpu.nccl > 0 && gpu.nccl < distributed::kOldestNccl)
    check.warn(fmt::format("NCCL {} is older than {}, with which Tessera was tried",
                           nccl_text(gpu.nccl), nccl_text(distributed::kOldestNccl)),
               "put the folder of a newer libnccl.so.2 first in LD_LIBRARY_PATH");
  check.ok(gpu.nccl == 0 ? "not used" : "version " + nccl_text(gpu.nccl));
}

void check_peers(const GpuFacts& gpu, bool usable, std::vector<Finding>& findings) {
  Check check("peer access", findings);
  if (usable && !gpu.without_peer_access.empty()) {
    std::string pairs;
    for (const auto& [from, to] : gpu.without_peer_access)
      pairs += fmt::format("{}{}-{}", pairs.empty() ? "" : ", ", from, to);
    check.warn(
        fmt::format("GPUs cannot read each other's memory: {}; data passes through the host",
                    pairs),
        "look at nvidia-smi topo -m; ACS or an IOMMU may be on, or a virtual machine divides "
        "the GPUs");
  }
  check.ok(usable && gpu.machine.devices.size() > 1 ? "between all GPUs" : "not used");
}

}  // namespace

void check_gpus(const Facts& facts, const Plan& plan, std::vector<Finding>& findings) {
  const bool usable = check_devices(facts.gpu, plan, findings);
  check_cudnn_version(facts.gpu, usable, findings);
  check_nccl_version(facts.gpu, usable, findings);
  check_peers(facts.gpu, usable, findings);
}

}  // namespace tessera::tools::doctor
