"""The reader of an agent's stream: the rule of page.html in Python."""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast import StreamChunk


@dataclass
class Transcript:
    """Tokens of a turn that come from a later claim replace those of an earlier one."""

    turns: dict[int, str] = field(default_factory=dict)
    cut_off: int = 0  # turns that were streamed again
    _fences: dict[int, int] = field(default_factory=dict)  # the claim that streamed each turn

    def add(self, chunk: StreamChunk) -> None:
        if chunk.kind != "json" or "token" not in chunk.data:
            return
        turn = chunk.data["turn"]
        if self._fences.setdefault(turn, chunk.fence) != chunk.fence:
            self._fences[turn], self.turns[turn] = chunk.fence, ""
            self.cut_off += 1
        self.turns[turn] = self.turns.get(turn, "") + chunk.data["token"]
