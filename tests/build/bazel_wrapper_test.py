#!/usr/bin/env python3
"""tools/bazel on machines that lack packages: its messages, the packages it installs, and when it fails.

apt-get, dpkg-query, id and sudo are replaced by small scripts; nothing is installed.
"""

import os
import shutil
import subprocess
import tempfile
import unittest

from checker_test_case import TOOLS

# The programs of a minimal machine that tools/bazel may use.
COREUTILS = "bash cat cksum dirname env find flock grep mkdir mktemp mv rm sed sort tail touch"


def listed_packages():
    with open(os.path.join(TOOLS, "packages.txt"), encoding="utf-8") as file:
        return [line.split()[0] for line in file if not line.startswith("#")]


class BazelWrapperTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.bin = os.path.join(self.folder, "bin")
        self.home = os.path.join(self.folder, "home")
        os.makedirs(self.bin)
        os.makedirs(self.home)
        for name in COREUTILS.split():
            self.program(name, f'exec /usr/bin/{name} "$@"')
        self.program("id", "echo 0")
        self.installed(*listed_packages())

    def program(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/bash\n" + text + "\n")
        os.chmod(path, 0o755)

    def installed(self, *packages):
        self.program("dpkg-query", "cat <<'EOF'\n" + "".join(f"{name} ii \n" for name in packages) + "EOF")

    def apt_get(self, answer):
        """apt-get that records its arguments and then runs `answer`."""
        self.program("apt-get", f'echo "$*" >> {self.folder}/apt\n{answer}')

    def asked_of_apt(self):
        with open(os.path.join(self.folder, "apt"), encoding="utf-8") as file:
            return file.read()

    def run_wrapper(self, *arguments, wrapper=os.path.join(TOOLS, "bazel"), cwd=None, **environment):
        done = subprocess.run([wrapper, *(arguments or ["--version"])], stdin=subprocess.DEVNULL, text=True, cwd=cwd,
                              env={"PATH": self.bin, "HOME": self.home, **environment},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        return done.returncode, done.stdout, done.stderr

    def copy_wrapper(self, tree):
        os.makedirs(os.path.join(tree, "tools"))
        for name in ("bazel", "packages.txt"):
            shutil.copy(os.path.join(TOOLS, name), os.path.join(tree, "tools", name))

    def test_nothing_missing(self):
        status, output, said = self.run_wrapper()
        self.assertEqual((status, said), (0, ""))
        self.assertIn("bazel", output)
        with open(os.path.join(self.home, ".cache/tessera/bazelrc"), encoding="utf-8") as file:
            self.assertIn(f"build --disk_cache={self.home}/.cache/tessera/bazel\n", file.read())

    def test_cache_folder_of_the_user(self):
        self.run_wrapper(XDG_CACHE_HOME=self.folder + "/cache")
        self.assertTrue(os.path.exists(self.folder + "/cache/tessera/bazelrc"))

    def test_moved_headers_are_forgotten(self):
        for name in ("tree", ".tree", "bazel-tree"):
            self.check_moved_headers(os.path.join(self.folder, name))

    def check_moved_headers(self, tree):
        links = os.path.join(tree, "bazel-out/k8-opt/bin/nn/_virtual_includes")
        self.copy_wrapper(tree)

        def left_after(build_file):
            """Whether the folders of links are still there after a run with this text of a BUILD file."""
            os.makedirs(os.path.join(links, "linear/tessera"), exist_ok=True)
            with open(os.path.join(tree, "BUILD"), "w", encoding="utf-8") as file:
                file.write(build_file)
            self.assertEqual(self.run_wrapper(wrapper=os.path.join(tree, "tools/bazel"))[0], 0)
            self.assertTrue(os.path.isdir(os.path.dirname(links)))
            return os.path.exists(links)

        self.assertFalse(left_after("# one"))  # nothing is known about this tree yet
        self.assertTrue(left_after("# one"))
        self.assertFalse(left_after("# two"))
        self.assertTrue(left_after("# two"))

    def test_headers_of_an_older_clone_are_forgotten(self):
        """Bazel keeps the output of a clone that was deleted; the next clone at the same path has no bazel-out yet."""
        tree = os.path.join(self.folder, "clone")
        self.copy_wrapper(tree)
        for name in ("WORKSPACE", "BUILD"):
            with open(os.path.join(tree, name), "w", encoding="utf-8"):
                pass

        def run(*command):
            # The whole PATH: Bazel's server looks for Java there.
            status, output, said = self.run_wrapper(*command, wrapper=os.path.join(tree, "tools/bazel"), cwd=tree,
                                                    PATH=os.environ["PATH"])
            self.assertEqual(status, 0, said)
            return output.strip()

        self.addCleanup(run, "shutdown")
        links = os.path.join(run("info", "output_path"), "k8-opt/bin/nn/_virtual_includes")
        os.makedirs(os.path.join(links, "linear/tessera"))
        self.assertFalse(os.path.exists(os.path.join(tree, "bazel-out")))
        with open(os.path.join(tree, "BUILD"), "a", encoding="utf-8") as file:
            file.write("# changed")
        run("--version")
        self.assertTrue(os.path.isdir(os.path.dirname(links)))
        self.assertFalse(os.path.exists(links))

    def test_installs_exactly_what_is_missing(self):
        self.installed(*[name for name in listed_packages() if name not in ("catch2", "libgloo-dev")])
        self.apt_get("exit 0")
        status, _, said = self.run_wrapper()
        self.assertEqual(status, 0, said)
        self.assertIn("installing 2 Debian packages", said)
        self.assertRegex(said, r"libgloo-dev +collectives between processes")
        self.assertRegex(self.asked_of_apt(), r"install --yes --no-install-recommends catch2 libgloo-dev\n$")

    def test_unpacked_but_not_installed(self):
        self.program("dpkg-query", "echo 'catch2 rc '")
        self.apt_get("exit 0")
        self.assertIn(f"installing {len(listed_packages())} Debian packages", self.run_wrapper()[2])

    def test_no_network(self):
        self.installed()
        self.apt_get("echo 'E: could not resolve' >&2; exit 100")
        status, _, said = self.run_wrapper()
        self.assertEqual(status, 1)
        self.assertIn("E: could not resolve", said)
        self.assertIn("apt-get could not install them", said)
        for name in listed_packages():
            self.assertIn(f"  {name} ", said)

    def test_not_root_and_no_sudo(self):
        self.program("id", "echo 1000")
        self.installed()
        status, _, said = self.run_wrapper()
        self.assertEqual(status, 1)
        self.assertIn("there is no sudo", said)

    def test_not_root_with_sudo(self):
        self.program("id", "echo 1000")
        self.program("sudo", f'echo "$1" > {self.folder}/sudo; shift; exec "$@"')
        self.installed(*listed_packages()[1:])
        self.apt_get("exit 0")
        self.assertEqual(self.run_wrapper()[0], 0)
        with open(os.path.join(self.folder, "sudo"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "--non-interactive\n")

    def test_not_debian(self):
        """Without dpkg-query no package counts as installed; grep is replaced to read the /etc/os-release of another
        system.
        """
        os.remove(os.path.join(self.bin, "dpkg-query"))
        self.program("grep", 'case "$*" in *os-release*) echo ID=fedora; echo PRETTY_NAME=\\"Fedora 40\\";; '
                             '*) exec /usr/bin/grep "$@";; esac')
        status, _, said = self.run_wrapper()
        self.assertEqual(status, 1)
        self.assertIn("this is not Debian 12 (Fedora 40)", said)
        for name in listed_packages():
            self.assertIn(f"  {name} ", said)


if __name__ == "__main__":
    unittest.main()
