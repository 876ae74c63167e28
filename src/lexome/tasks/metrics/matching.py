"""The largest set of pairs in which nothing occurs twice."""

from collections import deque
from collections.abc import Sequence


def largest_matching(neighbours: Sequence[Sequence[int]]) -> dict[int, int]:
    """Pairs of left and right, as many as there can be, where left `i` may be paired with `neighbours[i]`.

    Each left one is tried in turn; where all its neighbours are taken, those that took them are moved on along the
    shortest chain of changes that frees one. What was paired stays paired, if not with the same.
    """
    pairs: dict[int, int] = {}
    owner: dict[int, int] = {}
    for start in range(len(neighbours)):
        came_from: dict[int, int] = {}  # each right one that was reached, and the left one that reached it
        waiting = deque([start])
        free: int | None = None
        while waiting and free is None:
            left = waiting.popleft()
            for right in neighbours[left]:
                if right in came_from:
                    continue
                came_from[right] = left
                if right not in owner:
                    free = right
                    break
                waiting.append(owner[right])
        while free is not None:
            left = came_from[free]
            before = pairs.get(left)
            pairs[left], owner[free] = free, left
            free = before if left != start else None
    return pairs
