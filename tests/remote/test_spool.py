"""What handlers said, on disk until the server has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast import InvalidOption
from outlast.protocol import MAX_CALL_BYTES, MAX_REPORTS, split_calls
from outlast.remote import spool as module
from outlast.remote.spool import RECORD_HEAD, Spool, folder_of, orphaned_spools


def filled(folder: Path, number: int, worker: str = "w") -> tuple[Spool, list[int]]:
    spool = Spool.create(folder, worker)
    ends = [spool.append(f"record {n}".encode()) for n in range(number)]
    return spool, [end for end in ends if end is not None]


def left(spool: Spool) -> None:
    """As a killed worker leaves it: nothing is tidied, and the lock is gone."""
    import os

    os.close(spool._fd)


def said(folder: Path) -> list[str]:
    found = []
    for spool in orphaned_spools(folder):
        found += [record.data.decode() for record in spool.unsent()]
        left(spool)
    return found


def test_what_was_not_acknowledged_is_found_again(tmp_path: Path) -> None:
    """R139: those that the server has are not sent again."""
    spool, ends = filled(tmp_path, 5)
    spool.acknowledge(ends[1])
    left(spool)
    assert said(tmp_path) == ["record 2", "record 3", "record 4"]


def test_a_living_worker_s_file_is_nobody_else_s(tmp_path: Path) -> None:
    """R139"""
    spool, _ = filled(tmp_path, 5)
    assert said(tmp_path) == []
    spool.end()
    assert said(tmp_path)[-1] == "record 4"


def test_a_file_is_its_worker_s_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R139: whoever starts at the same moment must not take it for a dead worker's."""
    flock = module.fcntl.flock

    def late(fd: int, how: int) -> None:
        monkeypatch.setattr(module.fcntl, "flock", flock)
        for spool in orphaned_spools(tmp_path):
            spool.end()
        flock(fd, how)

    monkeypatch.setattr(module.fcntl, "flock", late)
    spool, _ = filled(tmp_path, 1)
    left(spool)
    assert said(tmp_path) == ["record 0"]


def test_a_full_disk_costs_what_is_said_and_nothing_else(tmp_path: Path) -> None:
    """R139: no handler fails of it, and what was kept before is sound."""
    import os

    spool, ends = filled(tmp_path, 2)
    whole = spool._fd
    spool._fd = os.open("/dev/full", os.O_RDWR)
    assert spool.append(b"record 2") is None
    left(spool)
    spool._fd = whole
    spool._mark = tmp_path / "nowhere" / "at.all"
    spool.acknowledge(ends[0])
    assert spool.append(b"record 3") is not None
    left(spool)
    assert said(tmp_path) == ["record 0", "record 1", "record 3"]


def test_a_file_of_which_all_was_sent_goes(tmp_path: Path) -> None:
    spool, ends = filled(tmp_path, 2)
    spool.acknowledge(ends[-1])
    spool.end()
    assert list(tmp_path.iterdir()) == []


def test_whatever_byte_is_damaged_the_records_before_it_survive(tmp_path: Path) -> None:
    """R140: the tail is cut, and what is said afterwards stands behind what was sound."""
    spool, ends = filled(tmp_path, 4)
    left(spool)
    whole = spool.file.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x40
        spool.file.write_bytes(bytes(damaged))
        sound = sum(end <= place for end in ends)
        [found] = orphaned_spools(tmp_path)
        assert [r.data.decode() for r in found.unsent()] == [f"record {n}" for n in range(sound)]
        assert found.append(b"after") == found.size
        assert [r.data for r in found.unsent()][-1] == b"after"
        left(found)


def test_wherever_it_was_cut_off_the_records_before_survive(tmp_path: Path) -> None:
    """R140"""
    spool, ends = filled(tmp_path, 3)
    left(spool)
    whole = spool.file.read_bytes()
    for length in range(len(whole)):
        spool.file.write_bytes(whole[:length])
        assert len(said(tmp_path)) == sum(end <= length for end in ends)


def test_a_damaged_mark_means_that_all_is_sent_again(tmp_path: Path) -> None:
    """R140: which the server keeps once."""
    spool, ends = filled(tmp_path, 3)
    spool.acknowledge(ends[1])
    left(spool)
    mark = spool.file.with_suffix(".sent")
    for damaged in (b"", b"\xff" * 12, mark.read_bytes()[:-1]):
        mark.write_bytes(damaged)
        assert len(said(tmp_path)) == 3


def test_a_file_that_grew_begins_anew_when_all_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRUNCATE_AFTER_BYTES", 100)
    spool, ends = filled(tmp_path, 20)
    spool.acknowledge(ends[-1])
    assert spool.file.stat().st_size == 0
    assert spool.append(b"next") == RECORD_HEAD.size + 4
    left(spool)
    assert said(tmp_path) == ["next"]


def test_a_full_disk_quota_drops_what_is_said_and_keeps_what_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SPOOL_BYTES", 100)
    spool, ends = filled(tmp_path, 20)
    assert 0 < len(ends) < 20
    assert len(list(spool.unsent())) == len(ends)


def test_one_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """R141"""
    spool = Spool.create(tmp_path, "w")
    with pytest.raises(InvalidOption, match="at most 1,000,000"):
        spool.append(b"x" * 1_000_001)
    spool.end()


def test_no_call_carries_more_than_it_may() -> None:
    """R141: neither in number nor in bytes; and none is lost or out of order."""
    items = [str(n) * (n % 5000) for n in range(5000)]
    made = split_calls(items)
    assert [item for part in made for item in part] == items
    assert max(map(len, made)) <= MAX_REPORTS
    assert all(sum(map(len, part)) + len(part) <= MAX_CALL_BYTES for part in made)
    assert split_calls(["x" * (2 * MAX_CALL_BYTES), "y"]) == [["x" * (2 * MAX_CALL_BYTES)], ["y"]]


def test_each_server_s_are_kept_apart(tmp_path: Path) -> None:
    one, other = folder_of("https://a", tmp_path), folder_of("https://b", tmp_path)
    assert one != other
    assert one.parent == other.parent == tmp_path


def test_what_is_kept_is_its_owner_s_alone(tmp_path: Path) -> None:
    spool, ends = filled(tmp_path / "new", 1)
    spool.acknowledge(ends[0])
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in (tmp_path / "new").iterdir())
    spool.end()
