#!/usr/bin/env python3
"""tools/mutate tests one defect at a time, reports which test caught it, and restores the tree."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from checker_test_case import TOOLS

sys.path.insert(0, TOOLS)
import mutations  # noqa: E402

SOURCE = "int sum(int a, int b) {\n  return a + b;\n}\n\nint half(int a) {\n  return a / 2;\n}\n"
LIST = """# A comment.

== fsdp-01: fsdp/sum.cc
A sum is
a difference.
tests: //tests/fsdp:sum_test //tests/fsdp:gone_test
 int sum(int a, int b) {
-  return a + b;
+  return a - b;

== fsdp-02: fsdp/sum.cc
Half of it is a third.
tests: //tests/fsdp:sum_test
-  return a / 2;
+  return a / 3;
"""
WITH_DEFECT = SOURCE.replace("a + b", "a - b")
CASES = '<testsuites><testsuite><testcase name="one"/><testcase name="two"><failure/></testcase></testsuite></testsuites>'

# Replaces Bazel: records its arguments and the mutated file, then follows the plan for its last label.
BAZEL = """#!/usr/bin/env -S python3 -S
import json, os, signal, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
labels = sys.argv[sys.argv.index("--") + 1:]
with open("fsdp/sum.cc") as file, open(folder + "/calls", "a") as calls:
    print(json.dumps({"verb": sys.argv[1], "labels": labels, "options": sys.argv[2:sys.argv.index("--")], "text": file.read()}), file=calls)
plan = json.load(open(folder + "/plan")).get(labels[-1], {})
for option in sys.argv:
    if option.startswith("--build_event_json_file="):
        with open(option.partition("=")[2], "w") as events:
            events.writelines(json.dumps(event) + "\\n" for event in plan.get("events", []))
if "signal" in plan:
    signal.signal(signal.SIGINT, lambda *_: (open(folder + "/stopped", "w").close(), sys.exit(8)))
    os.kill(os.getppid(), plan["signal"])
    time.sleep(60)
sys.exit(plan.get("status" if sys.argv[1] == "test" else "build_status", 0))
"""

# Replaces git: the changes and the commit of the work tree are read from files.
GIT = """#!/bin/sh
case "$3" in
  status) cat "$(dirname "$0")/changes" ;;
  rev-parse) cat "$(dirname "$0")/commit" ;;
  *) exit 2 ;;
esac
"""


class MutateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("tree/fsdp/sum.cc", SOURCE)
        self.write("tree/tests/fsdp/BUILD", 'cc_test(name = "sum_test")\n')
        self.write("list", LIST)
        for name, text in {"bazel": BAZEL, "git": GIT}.items():
            os.chmod(self.write(name, text), 0o755)
        self.write("changes", "")
        self.write("commit", "c1\n")
        self.plan({})

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def plan(self, plan):
        self.write("plan", json.dumps(plan))

    def mutate(self, *arguments):
        """Exit status and output."""
        command = [sys.executable, os.path.join(TOOLS, "mutate"), "--defects", self.path("list"), *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=50, check=False)
        return done.returncode, done.stdout

    def run_defects(self, *arguments):
        status, output = self.mutate("--tree", self.path("tree"), "--out", self.path("results.jsonl"), "--bazel",
                                     self.path("bazel"), "--git", self.path("git"), *arguments)
        self.assertEqual(self.read("tree/fsdp/sum.cc"), SOURCE)
        return status, output

    def calls(self):
        if not os.path.exists(self.path("calls")):
            return []
        return [json.loads(line) for line in self.read("calls").splitlines()]

    def results(self):
        return [json.loads(line) for line in self.read("results.jsonl").splitlines()]

    def failure(self, label):
        xml = {"name": "test.xml", "uri": "file://" + self.write(label.replace("/", "_"), CASES)}
        events = [{"id": {"testResult": {"label": label}}, "testResult": {"status": "FAILED", "testActionOutput": [xml]}},
                  {"id": {"testResult": {"label": "//late"}}, "testResult": {"status": "INCOMPLETE"}}]
        return {"status": 1, "events": events}

    def test_expected_test_finds_it(self):
        self.plan({"//tests/fsdp:sum_test": self.failure("//tests/fsdp:sum_test")})
        status, output = self.run_defects("fsdp-01")
        self.assertIn("fsdp-01: caught by //tests/fsdp:sum_test: two (expected, ", output)
        self.assertIn("mutate: 1 of 1 defects caught", output)
        self.assertEqual(status, 0)
        # gone_test is not in this tree.
        self.assertEqual([call["labels"] for call in self.calls()], [["//tests/fsdp:sum_test"]])
        self.assertEqual(self.calls()[0]["text"], WITH_DEFECT)
        result, = self.results()
        self.assertEqual((result["result"], result["stage"], result["by"], result["commit"]),
                         ("caught", "expected", ["//tests/fsdp:sum_test: two"], "c1"))

    def test_bazel_stops_early_and_leaves_out_what_is_manual(self):
        self.run_defects("fsdp-01", "--stages", "all", "--bazel-option=--config=debug")
        options = self.calls()[0]["options"]
        for option in ("--notest_keep_going", "--test_tag_filters=-manual", "--config=debug"):
            self.assertIn(option, options)

    def test_a_later_stage_finds_it(self):
        self.plan({"//...": self.failure("//tests/models:model_test")})
        status, output = self.run_defects("fsdp-01")
        self.assertEqual([call["labels"] for call in self.calls()],
                         [["//tests/fsdp:sum_test"], ["//tests/fsdp/..."], ["//..."]])
        self.assertIn("fsdp-01: caught by //tests/models:model_test: two (all, ", output)
        self.assertEqual(status, 0)

    def test_no_test_finds_it(self):
        self.plan({"//tests/fsdp/...": {"status": 4}})  # no tests there
        status, output = self.run_defects("fsdp-01")
        self.assertIn("fsdp-01: not found (all, ", output)
        self.assertIn("mutate: 0 of 1 defects caught", output)
        self.assertEqual(status, 1)

    def test_compile_error(self):
        action = {"id": {"actionCompleted": {"label": "//fsdp:fsdp"}}, "action": {"type": "CppCompile", "exitCode": 1}}
        self.plan({"//tests/fsdp:sum_test": {"status": 1, "events": [action]}})
        status, output = self.run_defects("fsdp-01")
        self.assertIn("fsdp-01: compile error by //fsdp:fsdp (expected, ", output)
        self.assertEqual(status, 0)
        calls = [(call["verb"], call["labels"], call["text"]) for call in self.calls()]
        self.assertEqual(calls, [("test", ["//tests/fsdp:sum_test"], WITH_DEFECT), ("build", ["//tests/fsdp:sum_test"], SOURCE)])

    def test_build_that_fails_without_the_defect_says_nothing_of_it(self):
        self.plan({"//tests/fsdp:sum_test": {"status": 1, "build_status": 1}})
        status, output = self.run_defects("fsdp-01")
        self.assertIn("mutate: //tests/fsdp:sum_test cannot be built without the defect either", output)
        self.assertEqual(status, 2)
        self.assertFalse(os.path.exists(self.path("results.jsonl")))

    def test_bazel_that_cannot_run_says_nothing_of_the_defect(self):
        self.plan({"//tests/fsdp:sum_test": {"status": 2}})
        status, output = self.run_defects()
        self.assertIn("bazel ended with exit status 2 for //tests/fsdp:sum_test", output)
        self.assertEqual(status, 2)
        self.assertFalse(os.path.exists(self.path("results.jsonl")))

    def test_interrupted(self):
        for number, expected in {2: 130, 15: 143}.items():
            with self.subTest(signal=number):
                self.plan({"//tests/fsdp:sum_test": {"signal": number}})
                self.assertEqual(self.run_defects()[0], expected)  # checks that the file is restored
                self.assertFalse(os.path.exists(self.path("results.jsonl")))
                os.remove(self.path("stopped"))  # Bazel was interrupted

    def test_goes_on_where_it_stopped(self):
        self.plan({"//tests/fsdp:sum_test": self.failure("//tests/fsdp:sum_test")})
        self.run_defects("fsdp-01")
        self.write("results.jsonl", self.read("results.jsonl") + '{"id": "fsdp-')  # killed while writing
        self.assertIn("mutate: 2 of 2 defects caught", self.run_defects()[1])
        self.assertEqual(len(self.calls()), 2)
        self.run_defects()
        self.assertEqual(len(self.calls()), 2)
        self.write("commit", "c2\n")
        self.run_defects("fsdp-02")
        self.assertEqual(len(self.calls()), 3)

    def test_more_stages_than_before_run_again(self):
        self.run_defects("fsdp-01", "--stages", "expected")
        self.run_defects("fsdp-01", "--stages", "expected")
        self.assertEqual(len(self.calls()), 1)
        self.run_defects("fsdp-01")
        self.assertEqual(len(self.calls()), 4)

    def test_a_changed_tree_is_refused(self):
        self.write("changes", " M fsdp/sum.cc\n")
        status, output = self.run_defects()
        self.assertIn("has uncommitted changes", output)
        self.assertEqual((status, self.calls()), (2, []))

    def result(self, id, result, **more):
        return {"id": id, "file": "fsdp/sum.cc", "digest": "d", "commit": "c", "stages": ["expected"], "result": result,
                "stage": "expected", "by": [], "seconds": 3.2, **more}

    def write_results(self, name, *results):
        return self.write(name, "".join(json.dumps(result) + "\n" for result in results))

    def test_table(self):
        path = self.write_results("before.jsonl", self.result("fsdp-02", "not found"),
                                  self.result("fsdp-01", "caught", by=["//a: x|y", "//b"], stage="floor"))
        self.assertEqual(self.mutate("--table", path), (0, "\n".join([
            "| defect | file | before |",
            "|---|---|---|",
            "| fsdp-01 | `fsdp/sum.cc` | //a: x\\|y and 1 more (3 s, floor) |",
            "| fsdp-02 | `fsdp/sum.cc` | **not found** (3 s) |",
            "",
            "before, commit c: 2 defects, 1 caught, 1 not found, 0 that did not compile; 6 s\n"])))

    def test_table_of_several_commits(self):
        path = self.write_results("mixed.jsonl", self.result("fsdp-01", "caught", commit="a" * 40),
                                  self.result("fsdp-02", "caught"), self.result("fsdp-01", "caught", commit="b" * 40))
        self.assertIn("\nmixed, commit bbbbbbbbbb and c: 2 defects, 2 caught", self.mutate("--table", path)[1])

    def test_table_before_and_after(self):
        before = self.write_results("before.jsonl", self.result("fsdp-01", "caught", by=["//a"]),
                                    self.result("fsdp-02", "not found"), self.result("fsdp-03", "caught"))
        after = self.write_results("after.jsonl", self.result("fsdp-01", "not found"),
                                   self.result("fsdp-02", "compile error", by=["//b"]))
        status, output = self.mutate("--table", before, after)
        self.assertIn("| fsdp-01 | `fsdp/sum.cc` | //a (3 s) | **not found** (3 s) |", output)
        self.assertIn("| fsdp-02 | `fsdp/sum.cc` | **not found** (3 s) | **compile error**: //b (3 s) |", output)
        self.assertIn("| no result |", output)
        self.assertEqual(output.splitlines()[-2:], ["lost: fsdp-01", "lost: fsdp-03"])
        self.assertEqual(status, 1)
        self.assertEqual(self.mutate("--table", after, before)[0], 1)
        self.assertEqual(self.mutate("--table", after, after)[0], 0)

    def test_lines_that_are_there_twice(self):
        double = SOURCE.replace("  return a / 2;\n", "  return a / 2;\n  return a / 2;\n")
        self.write("tree/fsdp/sum.cc", double)
        status, output = self.mutate("--tree", self.path("tree"), "--out", self.path("out"), "--git", self.path("git"))
        self.assertIn("fsdp-02: fsdp/sum.cc contains its lines 2 times instead of once", output)
        self.assertEqual((status, self.calls(), self.read("tree/fsdp/sum.cc")), (2, [], double))

    def check(self, text, message):
        """Checks a list in this process, which is faster than a run of --check."""
        try:
            defects = mutations.read_defects(self.write("list", text))
            errors = [*mutations.misplaced(self.path("tree"), defects), *mutations.missing_tests(self.path("tree"), defects)]
        except mutations.ListError as error:
            errors = [str(error)]
        self.assertIn(message, "\n".join(errors))

    def test_faults_of_a_list(self):
        self.check(LIST.replace("a / 2", "a / 4"), "fsdp-02: fsdp/sum.cc contains its lines 0 times instead of once")
        # Lines are matched whole.
        self.check(LIST.replace("-  return a / 2;", "-  return a"), "fsdp-02: fsdp/sum.cc contains its lines 0 times")
        self.check(LIST.replace("fsdp-02: fsdp/sum.cc", "fsdp-02: fsdp/no.cc"), "fsdp-02: there is no file fsdp/no.cc")
        self.check(LIST, "fsdp-01: there is no target //tests/fsdp:gone_test")
        self.check(LIST.replace("fsdp-02", "nn-02"), "nn-02: there is no target //tests/nn/...")
        self.check(LIST.replace("fsdp-02", "fsdp-01"), "repeated: fsdp-01")
        self.check(LIST.replace("third.", "third"), "fsdp-02: the description must end with a full stop")
        self.check(LIST.replace("/ 3", "/ 2"), "fsdp-02: changes nothing")
        self.check(LIST.replace("//tests/fsdp:sum_test\n-", "sum_test\n-"), "fsdp-02: needs 1 to 3 test labels")
        self.check(LIST.replace("== fsdp-01:", "== fsdp-1:"), "expected a heading")
        self.check(LIST.replace("-  return a /", "return a /"), "a changed line must start with a blank, - or +")

    def test_check_of_a_list_that_fits(self):
        self.write("list", LIST.replace(" //tests/fsdp:gone_test", ""))
        self.assertEqual(self.mutate("--tree", self.path("tree"), "--check"), (0, "mutate: 2 defects, 0 errors\n"))

    def test_check_of_a_list_that_does_not_fit(self):
        status, output = self.mutate("--tree", self.path("tree"), "--check")
        self.assertIn("fsdp-01: there is no target //tests/fsdp:gone_test\nmutate: 2 defects, 1 errors\n", output)
        self.assertEqual(status, 1)

    def test_unknown_id(self):
        status, output = self.mutate("--list", "nn")
        self.assertIn("no defect starts with nn", output)
        self.assertEqual(status, 2)

    def test_list(self):
        self.assertEqual(self.mutate("--list", "fsdp-01"), (0, "fsdp-01  fsdp/sum.cc: A sum is a difference.\n"))

    def test_own_list_can_be_read(self):
        status, output = self.mutate("--list", "--defects", os.path.join(TOOLS, "mutations.txt"))
        self.assertGreaterEqual(len(output.splitlines()), 40)
        self.assertEqual(status, 0)


if __name__ == "__main__":
    unittest.main()
