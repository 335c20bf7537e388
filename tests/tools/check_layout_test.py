#!/usr/bin/env python3
"""Each rule of tools/check_layout finds a file that breaks it, and a clean tree passes."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "check_layout"
GOOD_HEADER = ("// Owns nothing.\n#ifndef WEIR_POOL_GOOD_H_\n#define WEIR_POOL_GOOD_H_\n"
               '#include "allocator/base/bytes.h"\n#include "weir/weir.h"\n#endif\n')


class CheckLayoutTest(unittest.TestCase):

    def check(self, files):
        """Runs the tool over a tree of {path: text}; returns its exit code and output."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                target = pathlib.Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True,
                                  check=False)
            return done.returncode, done.stdout + done.stderr

    def assert_violation(self, path, text, message, **more_files):
        code, output = self.check({path: text, **more_files})
        self.assertEqual(code, 1, output)
        self.assertIn(f"{path}:", output)
        self.assertIn(message, output)

    def test_a_clean_tree_passes(self):
        code, output = self.check({
            "allocator/pool/good.h": GOOD_HEADER,
            "allocator/pool/good.cc": '#include "allocator/pool/good.h"\n',
            "allocator/driver/table.cc": "// The table.\n#include <cuda.h>\n",
            "allocator/base/env.cc": '// Reads.\nchar* e = getenv("WEIR_CONF");\n',
            "tests/pool/seed_test.cc": '// Seeds.\nchar* e = getenv("WEIR_TEST_SEED");\n',
        })
        self.assertEqual((code, output), (0, "5 files, 0 violations\n"))

    def test_a_long_file(self):
        self.assert_violation("tools/x.py", "# Long.\n" * 401, "has 401 lines")

    def test_a_missing_head_comment(self):
        self.assert_violation("tools/x.cc", "int x;\n", "begin with a comment")

    def test_a_wrong_header_guard(self):
        self.assert_violation("allocator/pool/good.h", GOOD_HEADER.replace("POOL", "POL"),
                              "expected WEIR_POOL_GOOD_H_")

    def test_cuda_outside_its_folders(self):
        self.assert_violation("allocator/pool/x.cc", "// X.\n#include <cuda.h>\n", "includes cuda.h")

    def test_the_environment_outside_its_reader(self):
        self.assert_violation("allocator/pool/x.cc", '// X.\nint y = getenv("A") != nullptr;\n',
                              "reads the environment")

    def test_an_include_to_the_right(self):
        self.assert_violation("allocator/block/x.cc", '// X.\n#include "allocator/vmm/y.h"\n',
                              "allocator/block includes allocator/vmm/y.h")

    def test_a_folder_without_a_layer(self):
        self.assert_violation("allocator/misc/x.cc", "// X.\n", "has no place in LAYERS")

    def test_the_simulated_device_uses_the_library(self):
        self.assert_violation("tools/simcuda/x.cc", '// X.\n#include "allocator/vmm/y.h"\n',
                              "of the library it may use allocator/base only")

    def test_commented_code_is_not_code(self):
        code, output = self.check({"allocator/pool/x.cc": '/* X.\n getenv("A")\n*/ // getenv("B")\n'})
        self.assertEqual(code, 0, output)

    def test_an_empty_tree_is_an_error(self):
        code, output = self.check({"README": ""})
        self.assertEqual(code, 1)
        self.assertIn("no source file", output)


if __name__ == "__main__":
    unittest.main()
