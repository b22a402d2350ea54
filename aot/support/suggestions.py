"""What somebody may have meant by a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

from aot.support.text import printable

_CLOSE, _LOOSE = 0.7, 0.6
"""Shares of letters that are the same, from where on a word is near."""


def nearest(word: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """The known words that `word` may stand for, best first, at most `limit`: upper and lower case count as the same.

    Near misses come first, then words that contain it or are contained in it.
    """
    words = {k.lower(): k for k in known}
    asked = word.lower()
    if not asked:
        return []
    alike = {w: SequenceMatcher(None, w, asked).ratio() for w in words}
    parts = [w for w in words if (len(asked) >= 3 and asked in w) or (len(w) >= 3 and w in asked)]
    in_order = sorted(words, key=lambda w: -alike[w])  # stable: as they are listed where they are equally near
    found = [*(w for w in in_order if alike[w] >= _CLOSE), *parts, *(w for w in in_order if alike[w] >= _LOOSE)]
    return [words[w] for w in dict.fromkeys(found)][:limit]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean a or b?)` to stand behind the word in a message; empty when nothing is near."""
    found = [printable(w) for w in nearest(word, known)]
    if not found:
        return ""
    return f" (did you mean {', '.join(found[:-1]) + ' or ' if found[1:] else ''}{found[-1]}?)"
