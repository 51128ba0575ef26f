"""The tester is tested: a protocol that is broken on purpose does not get away with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.verify.mutation import MUTANTS, Mutant, Unbreakable, breed, hunt

AT_ONCE = {"finish before the handler", "a reclaim sets attempts back", "finish without the fence"}


def marked(mutant: Mutant) -> object:
    """A sample runs always, the others with the campaigns."""
    marks = [] if mutant.name in AT_ONCE else [pytest.mark.campaign]
    return pytest.param(mutant, marks=marks, id=mutant.name)


@pytest.mark.parametrize("mutant", [marked(mutant) for mutant in MUTANTS])
def test_a_broken_protocol_is_noticed(
    mutant: Mutant, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """R207: with the net removed, the campaign is red."""
    url = None
    if mutant.only == "postgres":
        url = request.getfixturevalue("postgres_url").url
    found = hunt(mutant, tmp_path, url)
    assert found["violations"] > 0, found
    assert found["wrong"][0]["told"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_changes_the_source_as_it_is(mutant: Mutant, tmp_path: Path) -> None:
    """R207: a mutant whose words are gone would be the source itself."""
    copy = breed(mutant, tmp_path) / "outlast" / mutant.file
    assert mutant.new in copy.read_text()
    assert mutant.old not in copy.read_text()


def test_a_mutant_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unbreakable, match="stands 0 times"):
        breed(Mutant("none", "ops/finish.py", "words that are not there", ""), tmp_path)
