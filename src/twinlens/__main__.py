"""The `twinlens` command."""


def main() -> None:
    """Runs the command line."""
