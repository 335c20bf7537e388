#!/usr/bin/env python3
"""The README says what is there: its examples are the files of tests/recipes, its table of options is
the library's own list, and every file and folder it names exists."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Made by running something, so absent from a fresh clone.
MADE = {"report.html"}


def library_options():
    """(key, values, default) of each knob in the table of allocator/base/options.cc."""
    source = (ROOT / "allocator/base/options.cc").read_text(encoding="utf-8")
    table = source[source.index("kKnobs[] = {"):]
    table = table[:table.index("\n};")]
    return re.findall(r'\{"(\w+)",\s*"([^"]+)",\s*"([^"]+)",', table)


class ReadmeTest(unittest.TestCase):

    def test_each_recipe_stands_in_the_readme_word_for_word(self):
        recipes = [p for p in (ROOT / "tests/recipes").iterdir() if p.suffix in {".c", ".cc"}]
        self.assertTrue(recipes)
        for recipe in recipes:
            self.assertIn(recipe.read_text(encoding="utf-8").strip(), README, recipe.name)

    def test_each_c_block_of_the_readme_is_a_recipe(self):
        recipes = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests/recipes").iterdir())
        blocks = re.findall(r"```(?:c|cpp|c\+\+)\n(.*?)```", README, re.DOTALL)
        self.assertTrue(blocks)
        for block in blocks:
            self.assertIn(block.strip(), recipes)

    def test_the_table_of_options_is_the_library_s(self):
        rows = re.findall(r"^\| `(\w+)` \| `([^|`]+(?:\\\|[^|`]+)*)` \| ([^|]+) \|", README, re.MULTILINE)
        documented = [(key, values.replace("\\|", "|"), default.strip()) for key, values, default in rows]
        self.assertEqual(documented, library_options())

    def test_every_path_named_exists(self):
        named = re.findall(r"\]\(([^)#:]+)\)", README)
        named += re.findall(r"`((?:tools|tests|bench|allocator)/[\w./-]*)[^`]*`", README)
        self.assertTrue(named)
        for path in named:
            if path not in MADE:
                self.assertTrue((ROOT / path).exists(), path)


if __name__ == "__main__":
    unittest.main()
