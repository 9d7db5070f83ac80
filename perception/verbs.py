"""Verbs of the command line that need neither simulator nor policy. Imports are inside, so that `--help` is instant."""
