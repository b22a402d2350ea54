"""Sparse constants: the dense array that TensorFlow Lite's sparsity format describes.

A tensor of D dimensions with B blocked ones is stored as a tree of D + B levels, in `traversal_order`; numbers below D are the
tensor's dimensions (counted in blocks if blocked), numbers from D on are positions within a block, along dimension
`block_map[i - D]`.  A DENSE level has all its positions, a SPARSE_CSR level those that `segments` and `indices` list for each
parent node.  The stored values are the leaves.  Source: the comments of `SparsityParameters` in the schema.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from aot.frontend.view import SparseDim, SparsityView

Ints = npt.NDArray[np.int64]


class SparsityError(ValueError):
    """A description that contradicts itself, the shape or the number of stored values."""


def to_dense(values: npt.NDArray[Any], shape: tuple[int, ...], sparsity: SparsityView) -> npt.NDArray[Any]:
    """The tensor of `shape`, zero where nothing is stored; raises SparsityError."""
    levels = len(shape) + len(sparsity.block_map)
    order = sparsity.traversal_order
    if sorted(order) != list(range(levels)) or len(sparsity.dims) != levels:
        raise SparsityError(f"traversal order {list(order)} of {levels} levels")
    if any(not 0 <= d < len(shape) for d in sparsity.block_map) or len(set(sparsity.block_map)) != len(sparsity.block_map):
        raise SparsityError(f"blocks of dimensions {list(sparsity.block_map)}")
    extents = _extents(shape, sparsity)
    coordinates: dict[int, Ints] = {}
    nodes = 1
    for level, dim in zip(order, sparsity.dims, strict=True):
        parents, positions = _children(dim, nodes, extents[level], most=prod(shape))
        coordinates = {k: v[parents] for k, v in coordinates.items()} | {level: positions}
        nodes = len(positions)
    if nodes != values.size:
        raise SparsityError(f"{nodes} positions for {values.size} stored values")
    dense = np.zeros(shape, values.dtype)
    dense[tuple(_index(coordinates, d, len(shape), sparsity, extents) for d in range(len(shape)))] = values.reshape(-1)
    return dense


def _extents(shape: tuple[int, ...], sparsity: SparsityView) -> list[int]:
    """Positions of each level, by its number: blocks of each dimension, then elements of each block."""
    extents = list(shape)
    sizes = dict(zip(sparsity.traversal_order, (d.size for d in sparsity.dims), strict=True))
    for i, dimension in enumerate(sparsity.block_map):
        size = sizes[len(shape) + i]
        if size <= 0 or shape[dimension] % size:
            raise SparsityError(f"blocks of {size} along a dimension of {shape[dimension]}")
        extents[dimension] = shape[dimension] // size
        extents.append(size)
    return extents


def _children(dim: SparseDim, nodes: int, extent: int, *, most: int) -> tuple[Ints, Ints]:
    """The parent and the position of every node of the next level."""
    if dim.format == "DENSE":
        if dim.size != extent or nodes * extent > most:
            raise SparsityError(f"a dense level of {dim.size}, expected {extent} positions")
        return np.repeat(np.arange(nodes), extent), np.tile(np.arange(extent), nodes)
    counts = np.diff(dim.segments)
    whole = dim.segments.size == nodes + 1 and dim.segments[0] == 0 and dim.segments[-1] == dim.indices.size
    if not whole or (counts < 0).any() or dim.indices.size > most:
        raise SparsityError(f"segments of {dim.indices.size} indices for {nodes} rows")
    if dim.indices.size and not (dim.indices.min() >= 0 and dim.indices.max() < extent):
        raise SparsityError(f"indices up to {dim.indices.max()} of {extent} positions")
    return np.repeat(np.arange(nodes), counts), dim.indices


def _index(coordinates: dict[int, Ints], dimension: int, rank: int, sparsity: SparsityView, extents: list[int]) -> Ints:
    """The index along a dimension of every stored value."""
    if dimension not in sparsity.block_map:
        return coordinates[dimension]
    block = rank + sparsity.block_map.index(dimension)
    return coordinates[dimension] * extents[block] + coordinates[block]
