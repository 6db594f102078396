"""A bundle of small scripts with run.py of tools/gpu_check, on a machine with a fake CUDA."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"])
FAKE = os.path.join(ROOT, "tests/tools/gpu_check/libfake_cuda.so")

# A test program: one passed case, named after its settings.
PASSES = """#!/bin/bash
echo x >> runs
cat > "$XML_OUTPUT_FILE" <<END
<testsuite><testcase name="$TESSERA_TEST_DEVICE $TESSERA_TEST_TRANSPORT $TESSERA_TEST_WORLDS $POISON$CUDA_MODULE_LOADING"/></testsuite>
END
"""
FAILS = PASSES.replace("/></", "><failure>no</failure></testcase></") + "exit 1\n"
# When it is ended, it names its current case, as a Catch2 program does.
HANGS = """#!/bin/bash
ends() {
  echo '<testsuite><testcase name="first"/><testcase name="stuck"><failure/></testcase></testsuite>' > "$XML_OUTPUT_FILE"
  exit 1
}
trap ends TERM
echo "so far"
sleep 60 &
wait
"""
SANITIZER = """#!/bin/bash
tool=$2
echo "$@" >> sanitized
while [[ $1 != /* ]]; do shift; done
"$@"
[[ $tool != racecheck ]] || exit 99
"""


def test(name, gpus=1, transport="local", **settings):
    return {"name": name, "program": name, "gpus": gpus, "device": "cuda", "transport": transport, "settings": settings}


class BundleCase(unittest.TestCase):
    """Each test has a bundle of its own."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(self._folder.cleanup)
        self.root = self._folder.name
        self.bundle, self.libraries = f"{self.root}/gpu_check", f"{self.root}/lib"
        for folder in [f"{self.bundle}/programs", f"{self.bundle}/benchmarks", self.libraries]:
            os.makedirs(folder)
        for script in glob.glob(f"{ROOT}/tools/gpu_check/*.py"):
            shutil.copy(script, self.bundle)
        for name in ["libcuda.so.1", "libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"]:
            shutil.copy(FAKE, f"{self.libraries}/{name}")

    def make(self, programs, tests):
        """A bundle: name -> text of its program, and its list of tests."""
        for name, text in programs.items():
            self.write(f"gpu_check/programs/{name}", text)
        self.write("gpu_check/tests.json", json.dumps(tests))

    def write(self, name, text):
        path = f"{self.root}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def run_bundle(self, *words, gpus=1, status=0, **settings):
        """The content of the result file."""
        environment = dict(os.environ, FAKE_GPUS=str(gpus), **{"LD_LIBRARY_PATH": self.libraries, **settings})
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as if unset
        command = [sys.executable, f"{self.bundle}/run.py", "--out", f"{self.root}/out.json", *words]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        self.output = done.stdout
        if not os.path.exists(f"{self.root}/out.json"):
            return None
        with open(f"{self.root}/out.json", encoding="utf-8") as file:
            return json.load(file)

    def cases(self, content, name):
        return [(case["name"], case["result"], case["reason"]) for result in content["results"] if result["name"] == name
                for case in result["cases"]]

    def names(self, content):
        return [result["name"] for result in content["results"]]

    def runs(self):
        with open(f"{self.bundle}/runs", encoding="utf-8") as file:
            return len(file.readlines())
