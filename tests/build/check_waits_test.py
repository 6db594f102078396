#!/usr/bin/env python3
"""tools/check_waits.py finds waits without a limit in distributed code, unless a comment says why they end."""

import unittest

from checker_test_case import CheckerTestCase

UNTIMED = [
    "changed_.wait(lock, [this] { return done_; });",
    "barrier.changed.wait(guard_lock);",
    "changed_->wait(guard);",
    "thread_.join();",
    "thread->join();",
    "wait4(child, &status, 0, nullptr);",
    "::wait(nullptr);",
    "std::latch open(1);",
    "auto value = std::async(run);",
    "waitpid(child, &status, 0);",
    "poll(&wanted, 1, -1);",
    "poll(wanted.data(),\n     wanted.size(), -1);",
    "ppoll(&wanted, 1, nullptr, &mask);",
    "epoll_wait(fd, events, 8, -1);",
    "select(fd + 1, &set, nullptr, nullptr, nullptr);",
    "syscall(SYS_futex, &word, FUTEX_WAIT, seen, nullptr, nullptr, 0);",
    "sigwait(&set, &number);",
    "pause();",
    "flock(fd, LOCK_EX);",
    "fcntl(fd, F_SETLKW, &region);",
    "getaddrinfo(name, port, &hints, &list);",
    "cudaStreamSynchronize(stream);",
    "Socket mine(socket(AF_INET, SOCK_STREAM, 0));",
    "accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);",
]
TIMED = [
    "changed_.wait_for(lock, kTick);",
    "changed_.wait_until(lock, deadline);",
    "store.wait(keys, timeout);",
    "store->wait(keys, timeout);",
    "wait4(child, &status, WNOHANG, nullptr);",
    "work.wait();",
    "waitpid(child, &status, WNOHANG | WUNTRACED);",
    "poll(&wanted, 1, left());",
    "epoll_wait(fd, events, 8, milliseconds);",
    "syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);",
    "flock(fd, LOCK_EX | LOCK_NB);",
    "Socket mine(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));",
    "accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);",
    "pause(looks);",
    "// thread_.join();",
    'print("thread_.join();");',
]


def function(line):
    return {"distributed/a/b.cc": f"int x;\nvoid f() {{\n  {line}\n}}\n"}


class CheckWaitsTest(CheckerTestCase):
    checker = ("check_waits.py",)

    def test_untimed(self):
        for line in UNTIMED:
            with self.subTest(line):
                self.assert_red(function(line), "check_waits: distributed/a/b.cc:3: ")
                self.assert_red(function(line), "1 waits without a limit or a reason, in 1 files")

    def test_timed(self):
        for line in TIMED:
            with self.subTest(line):
                self.assert_green(function(line))

    def test_reasons(self):
        for line in UNTIMED:
            with self.subTest(line):
                self.assert_green(function("// Untimed: it was told to end.\n  " + line))
                self.assert_green(function("// A thread.\n  // Untimed: it was told to end, which\n  // it does.\n  " + line))
        self.assert_green(function("thread_.join();  // Untimed: it was told to end"))
        self.assert_green(function("// Untimed: limits of its own.\n  const int error =\n      getaddrinfo(a, b, c, d);"))

    def test_what_is_no_reason(self):
        for text in ["// Untimed:\n  thread_.join();", "// It ends.\n  thread_.join();",
                     "// Untimed: it was told to end.\n  a_.join();\n  thread_.join();",
                     "// Untimed: it was told to end.\n\n  thread_.join();"]:
            with self.subTest(text):
                self.assert_red(function(text), "1 waits without a limit or a reason")

    def test_folders(self):
        for path in ["fsdp/a.h", "distributed/nccl/a.cu"]:
            self.assert_red({path: "void f() { thread_.join(); }\n"}, f"check_waits: {path}:1: ")
        self.assert_green({"tensor/a.cc": "void f() { thread_.join(); }\n", "distributed/README.md": "thread_.join();\n"})


if __name__ == "__main__":
    unittest.main()
