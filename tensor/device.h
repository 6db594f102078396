#pragma once

/// Devices, and the default device of new tensors.

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace tessera {

/// True in a build with the CUDA toolkit.
#if defined(TESSERA_CUDA) && TESSERA_CUDA
inline constexpr bool kBuiltWithCuda = true;
#else
inline constexpr bool kBuiltWithCuda = false;
#endif

enum class DeviceType : std::uint8_t {
  kCpu,
  kCuda,
  kNull,  ///< shapes, dtypes and reserved addresses but no bytes; kernels do nothing. For planning.
};

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  bool is_cpu() const { return type == DeviceType::kCpu; }
  bool is_cuda() const { return type == DeviceType::kCuda; }
  bool is_null() const { return type == DeviceType::kNull; }
  /// "cpu", "null", "cuda:0".
  std::string str() const {
    switch (type) {
      case DeviceType::kCpu:
        return "cpu";
      case DeviceType::kNull:
        return "null";
      case DeviceType::kCuda:
        return "cuda:" + std::to_string(index);
    }
    return "?";
  }
};

/// Prints str().
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                             const Device& device) {
  return out << device.str();
}

inline constexpr Device kCpu{DeviceType::kCpu, 0};
inline constexpr Device kNull{DeviceType::kNull, 0};

/// The device of new tensors for which none is named: that of the calling thread's innermost
/// DefaultDeviceScope, else the process's, which is the CPU until set_default_device().
Device default_device();
/// For all threads of the process that have no DefaultDeviceScope. Thread-safe.
void set_default_device(Device device);

/// Sets the calling thread's default device until the end of the scope.
class DefaultDeviceScope {
 public:
  explicit DefaultDeviceScope(Device device);
  ~DefaultDeviceScope();
  DefaultDeviceScope(const DefaultDeviceScope&) = delete;
  DefaultDeviceScope& operator=(const DefaultDeviceScope&) = delete;

 private:
  std::optional<Device> previous_;
};

/// The number of CUDA GPUs that this process can use; 0 in a build without CUDA, without a driver
/// or without a GPU. Never throws.
int cuda_device_count();

}  // namespace tessera
