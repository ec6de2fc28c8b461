"""Beginnings of sequences whose keys, values and states are kept for later ones.

A tree for each content of an adapter (keys and values depend on the weights that made them); a
node is one full block of tokens. Keys alone are not enough to go on from: sliding layers need the
blocks of their window, and short convolutions need their last inputs. So a sequence can resume
only at a node with a `Point`, and nodes that lead to no point are not kept.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from inkling_runtime.cache.block_pool import BlockPool


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of a cache."""

    global_blocks: BlockPool
    sliding_blocks: BlockPool
    conv_slots: BlockPool


@dataclass(slots=True)
class Point:
    """What a sequence needs besides global blocks to go on after a node."""

    conv_slot: int
    sliding_blocks: tuple[int, ...]
    """The blocks that hold the window before the next token, in order."""
    num_hits: int = 0


class Node:
    """One block of tokens after those of its parent; the root holds none.

    Args:
        parent: None for a root.
        tokens: the block's tokens.
        block: its global block.
    """

    __slots__ = ("block", "children", "depth", "is_alive", "parent", "point", "tokens")

    def __init__(self, parent: "Node | None", tokens: tuple[int, ...], block: int) -> None:
        self.parent = parent
        self.tokens = tokens
        self.block = block
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[tuple[int, ...], Node] = {}
        self.point: Point | None = None
        self.is_alive = True

    def blocks(self) -> list[int]:
        """Return the global blocks from the first to this one."""
        found: list[int] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            found.append(node.block)
            node = node.parent
        return found[::-1]


class PrefixCache:
    """The trees, and the order in which points are given up.

    Args:
        pools: where kept blocks and slots come from.
        block_size: tokens per block.
    """

    def __init__(self, pools: Pools, block_size: int) -> None:
        self._pools = pools
        self._block_size = block_size
        self._roots: dict[str | None, Node] = {}
        self._points: OrderedDict[Node, Point] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self._points)

    def find(self, content: str | None, token_ids: Sequence[int]) -> Node | None:
        """Return the longest beginning that can be resumed and leaves a token to compute."""
        node, found, size = self._roots.get(content), None, self._block_size
        for start in range(0, len(token_ids) - size, size):
            node = node.children.get(tuple(token_ids[start : start + size])) if node else None
            if node is None:
                break
            if node.point is not None:
                found = node
        if found is not None and found.point is not None:
            found.point.num_hits += 1
            self._points.move_to_end(found)
        return found

    def extend(
        self,
        content: str | None,
        node: Node | None,
        token_ids: Sequence[int],
        blocks: Sequence[int],
        depth: int,
    ) -> Node:
        """Return the node of the first `depth` blocks of a sequence, made where it is missing.

        The caller gives it a point, or `prune`s it.

        Args:
            content: of the sequence's adapter.
            node: where the sequence was last time; its way is not walked again.
            token_ids: the sequence's tokens.
            blocks: its global blocks.
            depth: at least that of `node`.
        """
        if node is None or not node.is_alive:
            node = self._roots.setdefault(content, Node(None, (), -1))
        while node.depth < depth:
            start = node.depth * self._block_size
            tokens = tuple(token_ids[start : start + self._block_size])
            child = node.children.get(tokens)
            if child is None:
                child = node.children[tokens] = Node(node, tokens, blocks[node.depth])
                self._pools.global_blocks.keep([child.block])
            node = child
        return node

    def set_point(self, node: Node, conv_slot: int, sliding_blocks: Sequence[int]) -> None:
        """Let a node without a point be resumed at; what it needs is kept."""
        node.point = self._points[node] = Point(conv_slot, tuple(sliding_blocks))
        self._pools.conv_slots.keep([conv_slot])
        self._pools.sliding_blocks.keep(sliding_blocks)

    def touch(self, node: Node) -> None:
        """Let a node's point be the last to be given up."""
        self._points.move_to_end(node)

    def evict(self) -> bool:
        """Give up the point that was not used for longest; False if there is none."""
        if not self._points:
            return False
        self.remove_point(next(iter(self._points)))
        return True

    def remove_point(self, node: Node) -> None:
        """Give up a node's point, and all blocks that now lead to none."""
        point = self._points.pop(node)
        node.point = None
        self._pools.conv_slots.drop([point.conv_slot])
        self._pools.sliding_blocks.drop(point.sliding_blocks)
        self._prune(node)

    def _prune(self, node: Node) -> None:
        while node.point is None and not node.children:
            node.is_alive = False
            parent = node.parent
            if parent is None:
                self._roots = {key: root for key, root in self._roots.items() if root is not node}
                return
            del parent.children[node.tokens]
            self._pools.global_blocks.drop([node.block])
            node = parent
