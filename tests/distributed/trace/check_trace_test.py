#!/usr/bin/env python3
"""Traces that a sharded training writes pass tools/check_trace.py; each way of breaking one is found.

Ranks as threads and as processes, with inline and with queued compute.
"""

import copy
import json
import os
import subprocess
import sys
import unittest

ROOT = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
CHECKER = os.path.join(ROOT, "tools", "check_trace.py")
PROGRAM = os.path.join(ROOT, "tests", "distributed", "trace", "trace_program")
FOLDER = os.environ["TEST_TMPDIR"]


def write_trace(compute, mode, ranks):
    path = os.path.join(FOLDER, f"{compute}_{mode}_{ranks}.json")
    subprocess.run([PROGRAM, path, compute, mode, str(ranks)], check=True)
    return path


def check(path):
    done = subprocess.run(
        [sys.executable, CHECKER, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def first(trace, **wanted):
    return next(e for e in trace["traceEvents"] if all(e.get(key) == value for key, value in wanted.items()))


def collective(trace, op, rank):
    return next(
        e
        for e in trace["traceEvents"]
        if e["ph"] == "X" and e["cat"] == "collective" and e["pid"] == rank and e["args"]["op"] == op
    )


class TracesTest(unittest.TestCase):
    def test_threads_and_processes(self):
        for compute, mode, ranks in (
            ("inline", "threads", 1),
            ("inline", "processes", 2),
            ("queued", "threads", 3),
            ("queued", "processes", 2),
        ):
            path = write_trace(compute, mode, ranks)
            status, output = check(path)
            self.assertEqual(status, 0, output)
            self.assertIn(f"{ranks} ranks", output)
            with open(path, encoding="utf-8") as file:
                self.check_contents(json.load(file), ranks)

    def test_kernels_lie_in_their_modules(self):
        """On the stream that ran them."""
        with open(write_trace("queued", "threads", 1), encoding="utf-8") as file:
            trace = json.load(file)
        compute = next(
            e["tid"] for e in trace["traceEvents"] if e["name"] == "thread_name" and e["args"]["name"] == "compute"
        )
        kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel" and e["tid"] == compute]
        modules = [e for e in trace["traceEvents"] if e.get("cat") == "module" and e["ph"] == "X" and e["tid"] == compute]
        for kernel in kernels:
            path = kernel["args"].get("module")
            around = [m for m in modules if m["name"] == path and m["ts"] <= kernel["ts"] <= m["ts"] + m["dur"]]
            self.assertEqual(len(around), 1 if path else 0, kernel)

    def check_contents(self, trace, ranks):
        """Modules forward and backward, groups, both directions of communication, memory, on each rank."""
        for rank in range(ranks):
            names = {e.get("name") for e in trace["traceEvents"] if e["pid"] == rank}
            for name in (
                "step 2",
                "step 3",
                "layers.1.attention",
                "layers.1.attention backward",
                "backward",
                "AdamW step",
                "unsharded layers.1",
                "memory",
                *(["reduce_scatter"] if ranks > 1 else []),
            ):
                self.assertIn(name, names)
            self.assertNotIn("step 1", names)
            self.assertNotIn("step 4", names)
        if ranks > 1:  # one rank's shards are whole
            self.assertTrue(collective(trace, "all_gather", ranks - 1)["args"]["label"])


class BrokenTracesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(write_trace("queued", "threads", 2), encoding="utf-8") as file:
            cls.trace = json.load(file)

    def check_text(self, text):
        path = os.path.join(FOLDER, "broken.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return check(path)

    def check_changed(self, change):
        trace = copy.deepcopy(self.trace)
        change(trace)
        return self.check_text(json.dumps(trace))

    def refuses(self, message, change):
        status, output = self.check_changed(change)
        self.assertEqual(status, 1, output)
        self.assertIn(message, output)

    def refuses_text(self, message, text):
        status, output = self.check_text(text)
        self.assertEqual(status, 1, output)
        self.assertIn(message, output)

    def test_what_is_no_trace(self):
        self.refuses_text("no JSON", '{"traceEvents": [')
        self.refuses_text("no object with a list", "[]")
        self.refuses_text("no object with a list", '{"traceEvents": 3}')
        self.refuses_text("says nothing of its ranks", '{"traceEvents": []}')
        self.refuses_text("says nothing of its ranks", '{"traceEvents": [], "otherData": {"ranks": "2"}}')
        self.refuses_text("no slices", '{"traceEvents": [], "otherData": {"ranks": 0}}')
        status, output = check(os.path.join(FOLDER, "none.json"))
        self.assertEqual(status, 2, output)

    def test_events_without_form(self):
        self.refuses("not an object", lambda t: t["traceEvents"].append(3))
        self.refuses("has the phase 'Q'", lambda t: first(t, ph="X").update(ph="Q"))
        self.refuses("no number as its pid", lambda t: first(t, ph="X").pop("pid"))
        self.refuses("no number as its tid", lambda t: first(t, ph="X").update(tid="host"))
        self.refuses("no finite ts", lambda t: first(t, ph="X").update(ts=float("nan")))
        self.refuses("no finite dur", lambda t: first(t, ph="X").pop("dur"))
        self.refuses("the args of an event are no object", lambda t: first(t, ph="X").update(args=[]))

    def test_slices(self):
        self.refuses("lasts -1.000 us", lambda t: first(t, ph="X").update(dur=-1))
        self.refuses("an end without a beginning", lambda t: t["traceEvents"].remove(first(t, ph="B")))
        self.refuses("a beginning without an end", lambda t: t["traceEvents"].remove(first(t, ph="E")))
        self.refuses("goes back in time", lambda t: first(t, ph="E").update(ts=0))

        def rename(trace):
            first(trace, ph="E")["name"] = "other"

        self.refuses('but "other" ends', rename)

        def stretch(trace):
            """Into the next slice of its track."""
            slices = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] > 9 and e["pid"] == 0]
            slices = sorted((e for e in slices if e["tid"] == slices[0]["tid"]), key=lambda e: e["ts"])
            slices[3]["dur"] = slices[4]["ts"] + slices[4]["dur"] / 2 - slices[3]["ts"]

        self.refuses("ends behind it", stretch)

        def put_behind_its_work(trace):
            module = first(trace, ph="X", cat="module")
            trace["traceEvents"].remove(module)
            trace["traceEvents"].append(module)

        self.refuses("which is around it", put_behind_its_work)

    def test_names_and_steps(self):
        self.refuses("no process_name", lambda t: first(t, name="process_name").update(name="x"))
        self.refuses("no thread_name", lambda t: first(t, name="thread_name").update(name="x"))
        self.refuses("expected [0, 1, 2]", lambda t: t["otherData"].update(ranks=3))

        def other_step(trace):
            for event in trace["traceEvents"]:
                if event.get("name") == "step 3" and event["pid"] == 1:
                    event["name"] = "step 4"

        self.refuses("rank 1 went through the steps", other_step)

        def of_a_full_trace(trace):
            other_step(trace)
            trace["otherData"]["dropped"] = [0, 7]

        status, output = self.check_changed(of_a_full_trace)
        self.assertEqual(status, 0, output)

    def test_collectives(self):
        def change(which, **values):
            return lambda t: collective(t, which, 1)["args"].update(values)

        self.refuses("on rank 0 and", change("all_gather", bytes=12))
        self.refuses("on rank 0 and", change("all_gather", dtype="bf16"))
        self.refuses("on rank 0 and", change("reduce_scatter", reduction="max"))
        self.refuses("on rank 0 and", change("reduce_scatter", op="all_reduce"))
        self.refuses("is missing on rank 0", change("all_gather", sequence=1_000_000))
        self.refuses("no number as its sequence", change("all_gather", sequence="first"))
        self.refuses("is of a group with the ranks [0]", change("all_gather", ranks=[0]))
        self.refuses("was issued before", change("all_gather", queued_us=-10_000_000))
        self.refuses("is missing on rank 1", lambda t: t["traceEvents"].remove(collective(t, "all_gather", 1)))
        self.refuses("is on rank 1 twice", lambda t: t["traceEvents"].append(collective(t, "all_gather", 1)))

    def test_clocks(self):
        def shift(trace):
            for event in trace["traceEvents"]:
                if event["pid"] == 1 and "ts" in event:
                    event["ts"] += 50_000

        self.refuses("left a barrier", shift)
        self.refuses("not proved to agree with that of rank 0", shift)

        def no_barriers(trace):
            for event in trace["traceEvents"]:
                if event["ph"] == "X" and event["cat"] == "collective" and event["args"]["op"] == "barrier":
                    event["args"]["op"] = "all_reduce"

        self.refuses("no barrier", no_barriers)

    def test_arrows_spans_and_counters(self):
        for arrow in ("event", "collective"):
            self.refuses("an arrow has the ends s", lambda t, a=arrow: t["traceEvents"].remove(first(t, ph="f", cat=a)))
            self.refuses("an arrow has the ends f", lambda t, a=arrow: t["traceEvents"].remove(first(t, ph="s", cat=a)))
            self.refuses("lies in no slice", lambda t, a=arrow: first(t, ph="s", cat=a).update(ts=-5.0))
            self.refuses("an arrow goes back", lambda t, a=arrow: first(t, ph="s", cat=a).update(ts=1e9))
        self.refuses("do not take turns", lambda t: t["traceEvents"].remove(first(t, ph="b")))
        self.refuses("a span goes back in time", lambda t: first(t, ph="b").update(ts=1e9))
        self.refuses("a counter says -1", lambda t: first(t, ph="C")["args"].update(parameter=-1))
        self.refuses("a counter goes back in time", lambda t: first(t, ph="C").update(ts=1e9))


if __name__ == "__main__":
    unittest.main()
