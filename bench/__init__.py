"""Benchmarks: each prints a table and, with --json FILE, writes its figures."""
