"""The reader of an agent's stream: the rule of page.html in Python, which checks what it gets."""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast import StreamChunk


@dataclass
class Transcript:
    """At a mark, drop the turns that were not stored. `token` adds to a turn; `text` is the stored
    text of a turn."""

    turns: dict[int, str] = field(default_factory=dict)
    cut_off: int = 0  # turns that were not stored at a mark
    wrong: list[str] = field(default_factory=list)  # gaps and repeats
    _stored: set[int] = field(default_factory=set)

    def add(self, chunk: StreamChunk) -> None:
        if chunk.kind == "attempt":
            cut = self.turns.keys() - self._stored
            self.turns = {turn: text for turn, text in self.turns.items() if turn not in cut}
            self.cut_off += len(cut)
        elif chunk.kind == "json" and "token" in chunk.data:
            turn = chunk.data["turn"]
            if turn in self._stored:
                self.wrong.append(f"turn {turn} was stored, and streamed again")
            self.turns[turn] = self.turns.get(turn, "") + chunk.data["token"]
        elif chunk.kind == "json" and "text" in chunk.data:
            turn, text = chunk.data["turn"], chunk.data["text"]
            if self.turns.setdefault(turn, text) != text:
                self.wrong.append(
                    f"turn {turn} is {text!r}, and was streamed as {self.turns[turn]!r}"
                )
            self.turns[turn] = text
            self._stored.add(turn)
