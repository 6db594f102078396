#include "tessera/tests/support/emulated_gpu/runtime/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(TESSERA_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

// Saves the running context's stack pointer in *save and goes on with another: the registers that a
// call preserves lie on the stacks.
extern "C" void tessera_switch_stack(void** save, void* load);
asm(R"(
.text
.globl tessera_switch_stack
.hidden tessera_switch_stack
.type tessera_switch_stack, @function
tessera_switch_stack:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tessera_switch_stack, .-tessera_switch_stack
)");

namespace tessera::emulated {
namespace {

constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr std::size_t kSavedRegisters = 6;
// Stacks begin at different offsets: at equal ones they would share few lines of the caches.
constexpr std::size_t kOffsets = 61, kOffsetBytes = 320;

std::size_t next_offset() {
  static constinit std::atomic<std::size_t> count{0};
  return count++ % kOffsets * kOffsetBytes;
}

}  // namespace

Fiber::Fiber() : offset_(next_offset()) {
  void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<std::byte*>(stack);
#if defined(TESSERA_THREAD_SANITIZER)
  race_context_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_destroy_fiber(race_context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, kStackBytes);  // a fiber that never ended
#endif
  munmap(stack_, kStackBytes);
}

void Fiber::start(void (*main)()) {
  auto* top = reinterpret_cast<std::uint64_t*>(stack_ + kStackBytes - offset_);
  *--top = 0;  // `main` never returns; keeps the stack aligned as after a call
  *--top = reinterpret_cast<std::uint64_t>(main);
  for (std::size_t i = 0; i < kSavedRegisters; ++i) *--top = 0;
  stack_pointer_ = top;
}

void Fiber::enter() {
#if defined(TESSERA_THREAD_SANITIZER)
  host_race_context_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(race_context_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_, kStackBytes);
#endif
  tessera_switch_stack(&host_stack_pointer_, stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::arrive() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &host_stack_, &host_stack_bytes_);
#endif
}

void Fiber::leave([[maybe_unused]] bool for_good) {
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_switch_to_fiber(host_race_context_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, host_stack_, host_stack_bytes_);
#endif
  tessera_switch_stack(&stack_pointer_, host_stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &host_stack_, &host_stack_bytes_);
#endif
}

void release([[maybe_unused]] const void* address) {
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_release(const_cast<void*>(address));
#endif
}

void acquire([[maybe_unused]] const void* address) {
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_acquire(const_cast<void*>(address));
#endif
}

}  // namespace tessera::emulated
