"""What `bench/index.py` measures, each figure in a process of its own."""
