"""Feeds of streamed output: what they keep, and from which position on."""

from __future__ import annotations

from collections.abc import Mapping

from outlast.model.stream import StreamChunk, StreamCursor, StreamRow
from outlast.protocol import SSE
from outlast.service.events.stream_feeds import MAX_ENCODED_BYTES, StreamFeed, StreamFeeds

ROWS = [StreamRow(1, n, 1, '["x"]', 0.0) for n in range(1, 6)]


async def read(cursors: Mapping[str, StreamCursor], limit: int) -> list[tuple[str, StreamRow]]:
    """The store."""
    return [
        (job, row)
        for job, cursor in cursors.items()
        for row in ROWS
        if (row.fence, row.n) > (cursor.fence, cursor.n)
    ][:limit]


async def test_a_position_that_was_made_up_moves_nobody_else() -> None:
    """R248: others would be behind the feed for ever, and read the store again and again."""
    feeds, here = StreamFeeds(read), StreamCursor(1, 3, 1)
    with feeds.follow("job", StreamCursor(1, 10**17, 1)), feeds.follow("job", here) as feed:
        assert feed.reaches(here)
        await feeds.poll({"job": None})
        page = feed.page(here)
        assert page is not None
        assert [row.n for row in page.rows] == [4, 5]
    assert feeds.jobs() == []


def test_the_frames_of_a_feed_are_bounded() -> None:
    """R137: however much old output its followers read from the store."""
    feed = StreamFeed("job", StreamCursor())
    for n in range(3000):
        id = str(StreamCursor(1, n, 1))
        chunk = StreamChunk(id, "text", 1, 1, "x" * 1000, None)
        assert feed.frame(chunk, SSE) == feed.frame(chunk, SSE)
    assert sum(map(len, feed._encoded.values())) < MAX_ENCODED_BYTES + 2000
