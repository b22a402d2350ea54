"""Suggestions for a misspelt word."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

from aot.support.text import printable

_CLOSE, _LOOSE = 0.7, 0.6
"""Similarity ratios from which on a word is suggested."""


def nearest(word: str, candidates: Iterable[str], *, limit: int = 3) -> list[str]:
    """At most `limit` candidates that `word` may mean, best first, ignoring case.

    Near misses come first, then candidates that contain the word or are contained in it.
    """
    words = {c.lower(): c for c in candidates}
    typed = word.lower()
    if not typed:
        return []
    ratio = {w: SequenceMatcher(None, w, typed).ratio() for w in words}
    parts = [w for w in words if (len(typed) >= 3 and typed in w) or (len(w) >= 3 and w in typed)]
    in_order = sorted(words, key=lambda w: -ratio[w])  # stable: equal ratios keep the order of the candidates
    matches = [*(w for w in in_order if ratio[w] >= _CLOSE), *parts, *(w for w in in_order if ratio[w] >= _LOOSE)]
    return [words[w] for w in dict.fromkeys(matches)][:limit]


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """` (did you mean a or b?)`, to follow the word in a message; empty without suggestions."""
    words = [printable(w) for w in nearest(word, candidates)]
    if not words:
        return ""
    return f" (did you mean {', '.join(words[:-1]) + ' or ' if words[1:] else ''}{words[-1]}?)"
