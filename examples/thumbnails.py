"""Thumbnails: a sync task with progress, retries and permanent failures.

    python thumbnails.py cat.ppm dog.ppm     enqueues them, runs a worker, and shows the results

Pictures are binary PPM (P6), so that nothing needs to be installed. A missing picture is retried; a
file that is no picture is not.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from outlast import Context, JobDead, Outlast, Permanent, Retry

ol = Outlast("sqlite:///thumbnails.db")


@ol.task(queue="pictures", timeout=30, retry=Retry(max_attempts=5, base=0.2, cap=5.0))
def shrink(picture: str, factor: int, ctx: Context) -> str:
    """Keep every `factor`-th pixel of every `factor`-th row."""
    width, height, pixels = read(Path(picture))
    rows = range(0, height, factor)
    small = bytearray()
    for done, y in enumerate(rows, start=1):
        if ctx.cancelled.is_set():
            raise InterruptedError(f"stopped at row {y}")
        row = pixels[y * width * 3 : (y + 1) * width * 3]
        for x in range(0, width, factor):
            small += row[x * 3 : x * 3 + 3]
        ctx.progress(done, len(rows))
    columns = len(range(0, width, factor))
    target = Path(picture).with_suffix(".small.ppm")
    # Write to a temporary file and rename it: idempotent, and no reader sees a partial picture.
    aside = target.with_suffix(f".{ctx.fence}")
    aside.write_bytes(b"P6 %d %d 255\n" % (columns, len(rows)) + small)
    aside.rename(target)
    return target.name


def read(path: Path) -> tuple[int, int, bytes]:
    magic, width, height, _, pixels = path.read_bytes().split(maxsplit=4)
    if magic != b"P6" or len(pixels) < int(width) * int(height) * 3:
        raise Permanent(f"{path.name} is no PPM picture")
    return int(width), int(height), pixels


async def main(pictures: list[str]) -> None:
    jobs = await ol.aenqueue(*(shrink.job(picture, factor=2) for picture in pictures))
    async with ol.worker(queues="pictures"):
        for picture, job in zip(pictures, jobs, strict=True):
            try:
                print(f"{picture}: {await ol.aresult(job.id, timeout=60)}")
            except JobDead as error:
                print(f"{picture}: {error.reason}")
    await ol.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
