from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("forked_server.py")


def test_a_forked_child_refuses_to_serve_and_its_parent_serves_on(data: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(data)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    outcome = json.loads(ran.stdout)
    assert outcome["work"].startswith("ForkedProcess: the server was made by process")
    assert outcome["start"].startswith("StartError: the server was made by process")
    assert outcome["serve"].startswith("StartError: the encoder was made by process")
    for message in (outcome["work"], outcome["start"], outcome["serve"]):
        assert "is a fork" in message
        assert "\n" not in message
    assert outcome["parent"] == "embedding"
