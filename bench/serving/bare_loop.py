"""The same session without a server, a process of its own: `python -m bench.serving.bare_loop ORDER`.

Pictures are decoded in a pool and encoded in batches by one loop, with the threads that the server would use. ORDER is
a JSON object: `bundle`, `provider`, `precision`, `photos`, `batches`, `seconds` for each, and `warm_s`. Prints pictures
a second by batch size, and the CPU time of a picture's decoding alone, as JSON.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.serving.photo_bytes import distinct, read_photos  # noqa: E402
from twinlens.server.native_threads import bound_native_threads  # noqa: E402
from twinlens.server.settings import load_settings  # noqa: E402

# Batches that are decoded ahead of the one that runs.
_AHEAD = 2


def main(argument: str) -> None:
    """Prints one line of JSON."""
    order = json.loads(argument)
    settings = load_settings(provider=order["provider"], precision=order["precision"])
    bound_native_threads(settings)  # before what follows loads NumPy
    from twinlens.encoders.encoder import Encoder  # noqa: PLC0415
    from twinlens.server.core.thread_shares import thread_shares  # noqa: PLC0415

    shares = thread_shares(settings)
    encoder = Encoder.load(
        order["bundle"],
        provider=order["provider"],
        precision=order["precision"],
        threads=shares.encode,
        verify=False,
    )
    photos = read_photos(Path(order["photos"]))
    found: dict[str, Any] = {"threads": shares._asdict(), "per_s": {}, "cpu_ms": {}}
    found["decode_ms"] = _decode_ms(encoder, photos)
    with ThreadPoolExecutor(shares.prepare) as pool:
        for batch in order["batches"]:
            rate, cpu_ms = _rate(encoder, photos, pool, batch, order["warm_s"], order["seconds"])
            found["per_s"][str(batch)] = rate
            found["cpu_ms"][str(batch)] = cpu_ms
    print(json.dumps(found))


def _decode_ms(encoder: Any, photos: list[bytes]) -> float:
    some = photos[:32]
    begun_s = time.thread_time()  # not by the wall, which also tells who else wanted the processor
    for photo in some:
        encoder.prepare_image(photo)
    return (time.thread_time() - begun_s) / len(some) * 1000


def _rate(
    encoder: Any, photos: list[bytes], pool: ThreadPoolExecutor, batch: int, warm_s: float, seconds: float
) -> tuple[float, float]:
    """Pictures a second, and milliseconds of all threads together for one."""
    import numpy as np  # noqa: PLC0415 - after the threads were bound

    waiting: deque[Future[Any]] = deque()

    def pictures() -> Iterator[bytes]:
        for number in itertools.count():
            yield distinct(photos[number % len(photos)], number)

    bytes_of = pictures()
    begun_s = cpu_s = 0.0
    count = 0
    started_s = time.perf_counter()
    while True:
        while len(waiting) < batch * (_AHEAD + 1):
            waiting.append(pool.submit(encoder.prepare_image, next(bytes_of)))
        pixels = np.stack([waiting.popleft().result() for _ in range(batch)])
        encoder.encode_images(pixels)
        now_s = time.perf_counter()
        if not begun_s:
            if now_s - started_s >= warm_s:
                begun_s, cpu_s = now_s, time.process_time()
            continue
        count += batch
        if now_s - begun_s >= seconds:
            break
    taken_s, used_s = now_s - begun_s, time.process_time() - cpu_s
    for future in waiting:
        future.cancel()
    return count / taken_s, used_s / count * 1000


if __name__ == "__main__":
    main(sys.argv[1])
