// Names of errors, the last error of a thread, the failure of a GPU.

#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"

#include <array>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <string_view>
#include <utility>

namespace tessera::emulated {
namespace {

constexpr int kMostDevices = 64;
constexpr const char* kUnknownCode = "unrecognized error code";

thread_local cudaError_t last_error = cudaSuccess;
thread_local bool in_host_function = false;
constinit std::atomic<int> failures[kMostDevices];

// "... [with cudaError code = cudaErrorInvalidValue; ...", or "= (cudaError)5;" for no enumerator:
// the compiler knows the names of the toolkit's header.
template <cudaError_t code>
constexpr std::string_view spelled() {
  return __PRETTY_FUNCTION__;
}

std::string name_in(std::string_view text) {
  const std::string_view before = "code = ";
  const std::size_t begin = text.find(before) + before.size();
  const std::string_view name = text.substr(begin, text.find_first_of(";]", begin) - begin);
  return std::string(name.front() == '(' ? kUnknownCode : name);
}

// "cudaErrorMemoryAllocation" says what it is: "memory allocation".
std::string text_of(const std::string& name) {
  if (name == "cudaSuccess") return "no error";
  const std::string_view prefix = "cudaError";
  if (!name.starts_with(prefix)) return name;
  std::string text;
  for (const char letter : name.substr(prefix.size())) {
    const bool starts = std::isupper(static_cast<unsigned char>(letter)) != 0 && !text.empty() &&
                        std::islower(static_cast<unsigned char>(text.back())) != 0;
    if (starts) text += ' ';
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return text;
}

constexpr int kCodes = 1000;

struct Names {
  std::array<std::string, kCodes> names, texts;
};

template <int... codes>
Names make_names(std::integer_sequence<int, codes...>) {
  Names all{{name_in(spelled<static_cast<cudaError_t>(codes)>())...}, {}};
  for (std::size_t i = 0; i < kCodes; ++i) all.texts[i] = text_of(all.names[i]);
  return all;
}

const Names& names() {
  static const Names* all = new Names(make_names(std::make_integer_sequence<int, kCodes>{}));
  return *all;
}

bool in_table(cudaError_t error) {
  return static_cast<int>(error) >= 0 && static_cast<int>(error) < kCodes;
}

}  // namespace

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void fail_device(int device, cudaError_t error, const std::string& text) {
  int expected = cudaSuccess;
  if (failures[device].compare_exchange_strong(expected, error))
    std::fprintf(stderr, "emulated GPU %d fails with %s: %s\n", device, cudaGetErrorName(error),
                 text.c_str());
}

cudaError_t failure_of(int device) { return static_cast<cudaError_t>(failures[device].load()); }

void forget_failure(int device) { failures[device] = cudaSuccess; }

HostFunctionScope::HostFunctionScope() { in_host_function = true; }
HostFunctionScope::~HostFunctionScope() { in_host_function = false; }

cudaError_t refusal() {
  if (in_host_function) return cudaErrorNotPermitted;
  if (device_count() == 0) return cudaErrorNoDevice;
  return failure_of(current_device());
}

bool is_device(int device) { return device >= 0 && device < device_count(); }

}  // namespace tessera::emulated

using namespace tessera::emulated;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  return in_table(error) ? names().names[static_cast<std::size_t>(error)].c_str() : kUnknownCode;
}

const char* cudaGetErrorString(cudaError_t error) {
  return in_table(error) ? names().texts[static_cast<std::size_t>(error)].c_str() : kUnknownCode;
}

// The failure of a GPU stays.
cudaError_t cudaGetLastError() {
  const cudaError_t failure = device_count() == 0 ? cudaSuccess : failure_of(current_device());
  const cudaError_t last = std::exchange(last_error, cudaSuccess);
  return failure != cudaSuccess ? failure : last;
}

}  // extern "C"
