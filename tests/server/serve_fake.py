"""A server process with the fake encoder: `python serve_fake.py DATA PORT_FILE [hold]`.

With `hold`, a text that holds "wait" blocks the encoder, and "encoding" is printed when it does.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.fake_encoder import FakeEncoder
from twinlens.encoders.tokenise import TokenisedText
from twinlens.server.logs import configure_logging
from twinlens.server.serve import serve
from twinlens.server.settings import Settings


class Holding(FakeEncoder):
    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        wait = self.prepare_text("wait").ids
        if any(text.ids == wait for text in tokens):
            sys.stderr.write("encoding\n")
            sys.stderr.flush()
            threading.Event().wait(60)
        return super().encode_texts(tokens)


if __name__ == "__main__":
    settings = Settings(data=Path(sys.argv[1]), port=0, port_file=Path(sys.argv[2]))
    configure_logging(settings.log_level, settings.log_format)
    encoder = Holding() if "hold" in sys.argv else FakeEncoder()
    serve(settings, encoder=encoder)
