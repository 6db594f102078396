#!/usr/bin/env python3
"""tools/check_words.py finds words in prose and comments, and nowhere else."""

import unittest

from checker_test_case import CheckerTestCase


class CheckWordsTest(CheckerTestCase):
    checker = ("check_words.py", "--root")

    def test_each_kind_of_file(self):
        """The line of a comment or of a page is named, with what to write instead."""
        for path, text in {
                "nn/a.h": "int f();\n/// It answers 1.\n",
                "nn/a.cc": "int f() { return 1; }  /* one\nIt answers 1. */\n",
                "tensor/a.cu": "\n// It answers 1.\n",
                "tools/a.py": "x = 1\n# It answers 1.\n",
                "tools/b.py": '"""First line.\n\nIt answers 1."""\n',
                "tools/c": "#!/usr/bin/env python3\n# It answers 1.\n",
                "nn/BUILD": "x(\n    name = 'a',  # It answers 1.\n)\n",
                "tools/run.sh": "true\n# It answers 1.\n",
                "README.md": "# Title\n\nIt answers 1.\n",
        }.items():
            line = next(i for i, line in enumerate(text.split("\n"), 1) if "answers" in line)
            self.assert_red({path: text}, f"{path}:{line}: answers: a function returns a value")

    def test_code_is_not_prose(self):
        self.assert_green({
            "nn/a.cc": 'const char* answers = "answers";\nint who();  // See `answers` and "who".\nchar c = \'"\';\n',
            "tests/nn/a.cc": 'const char* text = "It answers";\n',
            "nn/b.cc": 'const char* t = R"(// nobody)";\n',
            "tools/a.py": "answers = 'nobody'\n",
            "README.md": "See [x](who/answers.md) and `nobody`.\n\n```cpp\n// It answers.\n```\n\n    it answers\n",
        })

    def test_messages(self):
        self.assert_red({"nn/a.cc": 'int a;\nfail("it \\"{}\\" answers");\n'}, "nn/a.cc:2: answers: a function returns a value")

    def test_words_are_whole(self):
        self.assert_green({"nn/a.h": "// The group, a whole number; L2 norm; conv2d; R-squared.\n"})
        for text in ("nobody", "Whoever", "the seeds", "seeds' models", "R12", "T3.", "gives up", "of what", "twins"):
            self.assert_red({"nn/a.h": f"// Some text, {text} and more.\n"}, "check_words: 1 words")

    def test_counts(self):
        self.checker = ("check_words.py", "--count", "--root")
        tree = {"nn/a.h": "// nobody, nobody\n", "nn/b.h": "// who\n", "fsdp/c.h": "// twin\n"}
        self.assert_red(tree, "    3 nn\n    1 fsdp\ncheck_words: 4 words\n")


if __name__ == "__main__":
    unittest.main()
