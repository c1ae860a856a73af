"""Build steps that pyproject.toml cannot express; all metadata stands there."""

from setuptools import setup

setup()
