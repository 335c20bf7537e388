"""Builds the plugin for the PyTorch under test, once, before the tests that need it."""

from weir import _plugin

print(_plugin.build())
