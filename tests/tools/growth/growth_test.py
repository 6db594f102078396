#!/usr/bin/env python3
"""tools/bench/growth: it runs, and computes exponents from sizes and figures."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
TOOLS = os.path.join(ROOT, "tools", "bench")
sys.dont_write_bytecode = True
sys.path.insert(0, TOOLS)
SCRIPT = os.path.join(TOOLS, "growth")
LOADER = importlib.machinery.SourceFileLoader("growth", SCRIPT)
growth = importlib.util.module_from_spec(importlib.util.spec_from_loader("growth", LOADER))
sys.modules["growth"] = growth
LOADER.exec_module(growth)


def metrics(step_ms, peak_bytes):
    return [{"step_ms": step_ms, "peak_bytes": peak_bytes}] * 3


class GrowthTest(unittest.TestCase):
    def test_it_runs_every_axis(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            figures, svg = os.path.join(folder, "out.json"), os.path.join(folder, "out.svg")
            done = subprocess.run([sys.executable, SCRIPT, "--smoke", "--programs", ROOT, "--json", figures, "--svg", svg],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-2000:])
            self.assertEqual(done.stdout.splitlines(), [f"{axis}: 2 runs" for axis in growth.AXES])
            with open(figures, encoding="ascii") as file:
                self.assertGreaterEqual(json.load(file)["machine"]["cores"], 1)
            self.assertEqual(len(xml.etree.ElementTree.parse(svg).findall("{*}polyline")), 2 * len(growth.AXES))

    def test_exponents_follow_the_sizes(self):
        runs = []

        def run(model, ranks):
            runs.append((model.layers, ranks))
            return metrics(10 * model.layers ** 2, 2 ** 20 * model.layers)
        rows = growth.rows_of_axis("layers", [1, 2, 8], growth.BASE, run)
        self.assertEqual(runs, [(1, 1), (2, 1), (8, 1)])
        self.assertNotIn("exponents", rows[0])
        self.assertEqual([(row["exponents"]["step_ms"], row["exponents"]["peak_mib"]) for row in rows[1:]], [(2, 1), (2, 1)])
        self.assertEqual(rows[2]["tokens_per_s"], round(1024 / 0.64))
        self.assertTrue(0.9 < rows[2]["exponents"]["operations"] < 1)
        self.assertIn("| 8 | 640 | 1,600 | 8.0 | 2.0 |", growth.table(rows))

    def test_ranks_share_the_model_and_add_tokens(self):
        seen = []
        rows = growth.rows_of_axis("ranks", [1, 2], growth.BASE, lambda model, ranks: seen.append((model, ranks)) or metrics(5, 2 ** 20))
        self.assertEqual(seen, [(growth.BASE, 1), (growth.BASE, 2)])
        self.assertEqual([row["tokens_per_s"] for row in rows], [204800, 409600])
        self.assertEqual(rows[1]["exponents"], {"step_ms": 0, "peak_mib": 0, "operations": 1})

    def test_a_wider_model_has_more_heads_and_a_longer_one_a_smaller_batch(self):
        self.assertEqual(growth.model_of(growth.BASE, "dim", 1024).heads, 16)
        self.assertEqual(growth.model_of(growth.BASE, "length", 4096).batch, 1)

    def test_a_step_has_the_batch_of_each_rank(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            text = os.path.join(folder, "text.txt")
            growth.write_text(text, 20000)
            for ranks in (1, 3):
                rows = growth.measure(os.path.join(ROOT, "tools", "tessera"), folder, text, growth.SMOKE, ranks, 1, 2)
                self.assertEqual(rows[0]["tokens"], growth.SMOKE.batch * growth.SMOKE.length * ranks)

    def test_a_failed_run_is_an_error(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder, self.assertRaises(SystemExit) as caught:
            growth.measure("/bin/false", folder, "no-text", growth.SMOKE, 1, 1, 1)
        self.assertIn("ended with status 1", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
