"""The kernels that can run a fused group, lowered and priced; groups are cut where that gives their layer a kernel."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, lru_cache
from statistics import median
from typing import Any

from aot.errors import Problem, UnsupportedError, internal
from aot.executor.cascade_search import CascadeSearch
from aot.executor.config import Counts, PlanConfig, SelectionConfig
from aot.executor.lowered import LoweredModule
from aot.executor.selection import Candidate, Stored, stored
from aot.ir.module import IRModule
from aot.ir.op import T_OP_PATTERN, Op
from aot.relay.analysis import LAYERS, group_key, workload_key
from aot.relay.expr import Call, Constant, Expr, Function, all_functions, map_inner_functions, operands, post_order, with_operands
from aot.relay.transform.fuse_ops import call_group
from aot.support.dataclass import dataclass
from aot.system.disk_memo import recall
from aot.target.target import Target
from aot.tir.function import PrimFunc
from aot.tir.transform import equal_key, interface_key, sharing_key, simplified, structural_key
from aot.topi.strategy import Group, Lowered, OpImplementation, external_impl, implementations


def group_of(func: Function) -> Group:
    """Find anchor and followers of a primitive function.

    The anchor is the first call of the highest pattern kind; the followers are the calls after it.  Where a call in front of the
    anchor belongs to the group too (an injective producer), the group is one for the generic path, and the last call
    is its anchor.
    """
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    kinds = [T_OP_PATTERN.get(c.op.name) for c in calls if isinstance(c.op, Op)]
    if len(kinds) != len(calls):
        raise internal("a primitive function holds operator calls only")
    best = kinds.index(max(kinds))
    if best > 0:
        return Group(func, calls[-1], ())
    return Group(func, calls[0], tuple(calls[1:]))


Accepted = dict[tuple[OpImplementation, Group], bool]
"""Whether a kernel takes a group: asked when groups are cut, and again when they are lowered."""


def accepting(group: Group, target: Target, known: Accepted | None = None) -> list[OpImplementation]:
    """The kernels that take a group, best plevel first, the generic path last.  What is in `known` is not asked again."""
    return list(_accepting(group, target, {} if known is None else known))


def _accepting(group: Group, target: Target, known: Accepted) -> Iterator[OpImplementation]:
    external = external_impl(group.func)
    if external is not None:
        yield external
        return
    name = str(getattr(group.anchor.op, "name", "?"))
    for impl in implementations(name, target):
        if (impl, group) not in known:
            known[impl, group] = impl.accepts(group, target)
        if known[impl, group]:
            yield impl


def with_cut_groups(func: Function, target: Target, known: Accepted | None = None) -> Function:
    """The fused main function with those groups cut for which no kernel is made, though there is one for less of them.

    Such a group is a layer (LAYERS) with followers that its kernels cannot take along (say an operand that is a constant); the
    generic path would run all of it, at many times the instructions.  The first part is the layer with as many followers as a
    kernel takes.  The rest is one group, or one for each call where kernels for single calls are better (by plevel).

    `known` keeps which kernels were found to take a group, for who lowers it.
    """
    known = {} if known is None else known
    return _cut_all(map_inner_functions(func, lambda f: _cut_all(f, target, known)), target, known)


def _cut_all(func: Function, target: Target, known: Accepted) -> Function:
    done: dict[int, Expr] = {}
    for expr in post_order(func.body):
        done[id(expr)] = _cut(with_operands(expr, [done[id(o)] for o in operands(expr)]), target, known)
    return Function(func.params, done[id(func.body)], func.attrs)


def _cut(expr: Expr, target: Target, known: Accepted) -> Expr:
    if not isinstance(expr, Call) or not isinstance(expr.op, Function):
        return expr
    group = group_of(expr.op)
    if "Compiler" in expr.op.attrs:
        return expr
    if not group.followers or getattr(group.anchor.op, "name", "") not in LAYERS:
        return expr
    if any(i.anchor != "*" for i in _accepting(group, target, known)):
        return expr
    calls = (group.anchor, *group.followers)
    for n in range(len(calls) - 1, 0, -1):
        if any(i.anchor != "*" and i.cuts for i in _accepting(_alone(calls[:n]), target, {})):
            return _in_parts((calls[:n], *_parts(calls[n:], target)), expr)
    return expr


def _parts(calls: Sequence[Call], target: Target) -> Sequence[Sequence[Call]]:
    """`calls` as one group, or each alone where the worst of those is better than the whole."""
    singles = [calls[i : i + 1] for i in range(len(calls))]
    return singles if min(_plevel(s, target) for s in singles) > _plevel(calls, target) else [calls]


def _plevel(calls: Sequence[Call], target: Target) -> int:
    return max((i.plevel for i in accepting(_alone(calls), target)), default=-1)


def _alone(calls: Sequence[Call]) -> Group:
    """Calls of a group as a separate group; what they read from outside becomes a parameter."""
    func = call_group(calls, {id(o): o for c in calls for o in operands(c)}).op
    assert isinstance(func, Function)
    return group_of(func)


def _in_parts(parts: Sequence[Sequence[Call]], whole: Call) -> Expr:
    """The parts of a group as calls of primitive functions, each of which gives its result to those after it."""
    assert isinstance(whole.op, Function)
    outside: dict[int, Expr] = {id(v): a for v, a in zip(whole.op.params, whole.args, strict=True)}
    for calls in parts:
        outside[id(calls[-1])] = call_group(calls, outside)
    return outside[id(parts[-1][-1])]


# ---- a model before its kernels are chosen, and what is kept of it between choices


@dataclass(frozen=True, slots=True)
class CachedLayer:
    """A group, the kernels that accept it, its weights and biases, the key of its function, and its candidates.

    These are by implementation and kind of their code's key.
    """

    group: Group
    accepting: tuple[OpImplementation, ...]
    weights: tuple[Stored, ...]
    key: bytes | None = None
    lowered: dict[tuple[str, str], Candidate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoweringCache:
    """What was made for one model and target, and is kept for the next config with the same `kernels`.

    `layers` by id of the function: it (its id stays its own), and what is known of its layer, which equal functions share.
    `by_key`: the same by name and key of the function.  `drafts` and `items` by what of the config they depend on.
    `functions`: the first of each that are equal, by what is cheap to compare.  `accepted`: which kernels take a group.
    """

    layers: dict[tuple[int, str], tuple[Function, CachedLayer]] = field(default_factory=dict)
    by_key: dict[tuple[str, bytes], CachedLayer] = field(default_factory=dict)
    drafts: dict[Hashable, CandidateModule] = field(default_factory=dict)
    items: dict[Hashable, CascadeSearch] = field(default_factory=dict)
    functions: dict[Hashable, list[PrimFunc]] = field(default_factory=dict)
    accepted: Accepted = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedModule(IRModule):
    """A relay main whose calls are those of fused functions, and what it is to be lowered for."""

    target: Target
    config: SelectionConfig = field(default_factory=SelectionConfig)
    planning: PlanConfig = field(default_factory=PlanConfig)
    known: LoweringCache = field(default_factory=LoweringCache)

    @property
    def main(self) -> Function:
        func = self["main"]
        assert isinstance(func, Function)
        return func


@dataclass(frozen=True, slots=True)
class CandidateModule(LoweredModule):
    """The calls of a model in their order with the preferred kernel of each.

    `groups` and `found`: the fused functions of the calls, and all their kernels; `preferred`: the functions as lowered.
    """

    groups: tuple[Function, ...] = ()
    found: tuple[Sequence[Candidate], ...] = ()
    preferred: Mapping[str, PrimFunc] = field(default_factory=dict)
    key: Hashable = None
    known: LoweringCache = field(default_factory=LoweringCache)


# ---- kernels, lowered and priced


def lower_group(func: Function, target: Target, name: str) -> Lowered:
    """The preferred kernel for the group, by plevel (E1209 if no kernel accepts it)."""
    group = group_of(func)
    return _at_least_one(group, target, {})[0].lower(group, target, name)


def candidates(
    func: Function,
    target: Target,
    name: str,
    policy: SelectionConfig,
    *,
    keyed: bool = True,
    repeated: Container[Hashable] = (),
    known: LoweringCache | None = None,
) -> list[Candidate]:
    """Every kernel that accepts the group, lowered, best plevel first; the generic path only where there is nothing else.

    Without `keyed` their keys say nothing about shared code, which saves most of the time.  `repeated` are the keys of the
    weights that several layers have; kernels made for those are left out elsewhere.  What is in `known` is not lowered again.
    Where the policy's history knows the workload, counts take the place of estimates, and whatever was measured competes.
    """
    known = LoweringCache() if known is None else known
    keys = "" if not keyed else "structural" if policy.opt == "speed" else "sharing"
    layer = cached_layer(func, target, name, known)
    group, weights = layer.group, layer.weights
    found: list[Candidate] = []
    accepted = layer.accepting
    if policy.keeps_weights:
        accepted = tuple(i for i in accepted if i.keeps and not _is_left_out(i, policy, group)) or accepted
    counts = policy.history.counts(target.name, workload_key(func)) if policy.history.rows else {}
    for impl in accepted:
        if (impl.anchor == "*" and found) or _is_left_out(impl, policy, group):
            continue
        usual = _is_running(impl, policy, weights, repeated)
        if not usual and not counts:
            continue
        key = (impl.name, keys)
        if key not in layer.lowered:
            layer.lowered[key] = _candidate(layer, impl, target, name, known=known, keys=keys)
        if usual or layer.lowered[key].kernel in counts:
            found.append(layer.lowered[key])
    by_cycles = bool(counts) and target.name in policy.history.cycles
    if counts:
        found = with_history(found, scaled_cycles(found, counts) if by_cycles else counts)
    if policy.opt == "speed":
        return found if by_cycles else _fewest_cycles(found)
    return _packed(found) if policy.opt == "size" else found


def _is_running(
    impl: OpImplementation, policy: SelectionConfig, weights: tuple[Stored, ...], repeated: Container[Hashable]
) -> bool:  # fmt: skip
    """Whether the kernel competes without measurements: special-purpose kernels compete only when needed."""
    return not _unmet_purpose(impl, policy) and (not impl.for_repeated or any(w.key in repeated for w in weights[:1]))


def _unmet_purpose(impl: OpImplementation, policy: SelectionConfig) -> str:
    """What the kernel is made for, where that is not asked for; empty where it competes."""
    if impl.small and not policy.limits_ram:
        return "it is for a limited workspace (small)"
    if impl.for_pushes and not policy.slides:
        return "it is for windows that move (for_pushes)"
    if impl.for_records:
        return "it competes where it was counted only (for_records)"
    if impl.for_speed and (policy.opt != "speed" or policy.limits_ram):
        return "it is for --opt speed without a limited workspace (for_speed)"
    return "it is not for --opt size (larger)" if impl.larger and policy.opt == "size" else ""


def why_not(impl: OpImplementation, group: Group, target: Target, policy: SelectionConfig, *, known: LoweringCache) -> str:
    """Why a kernel for groups of this anchor is not among the group's candidates; empty where it is."""
    accepted = accepting(group, target, known.accepted)
    if impl not in accepted:
        return "an external code generator has them" if "Compiler" in group.func.attrs else "accepts(group, target) refuses them"
    if _is_left_out(impl, policy, group):
        return "--kernels generic leaves it out"
    if policy.keeps_weights and not impl.keeps and any(i.keeps and not _is_left_out(i, policy, group) for i in accepted):
        return "other kernels keep the weights as the file has them (keeps)"
    if impl.anchor == "*" and any(i.anchor != "*" for i in accepted):
        return "there are kernels for the operator itself"
    return _unmet_purpose(impl, policy)


def all_candidates(func: Function, target: Target, name: str, known: LoweringCache) -> list[Candidate]:
    """Every kernel that accepts the group, whatever it is made for; the generic path only where there is nothing else."""
    layer = cached_layer(func, target, name, known)
    found: list[Candidate] = []
    for impl in layer.accepting:
        if impl.anchor != "*" or not found:
            found.append(_candidate(layer, impl, target, name, known=known, keys=""))
    return found


class CodeKey:
    """Equal for functions of which one may stand for all; its text is written when it is asked for, as few are compared."""

    __slots__ = ("_known", "_text")

    def __init__(self, text: Callable[[], str]) -> None:
        self._text, self._known = text, ""

    def text(self) -> str:
        """The same for equal keys only."""
        self._known = self._known or self._text()
        return self._known

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodeKey) and self.text() == other.text()

    def __hash__(self) -> int:
        return hash(self.text())


def _once(lowered: Lowered, known: LoweringCache) -> Lowered:
    """A kernel whose function has buffers and body of an equal one that was lowered before, so that these are analysed once."""
    func = lowered.func
    if func.scalars:
        return lowered
    buffers = tuple((b.name, b.dtype, b.shape, b.scope) for b in func.buffers)
    alike = known.functions.setdefault((func.attrs.kernel, func.attrs.opt, len(func.body), buffers), [])
    first = next((f for f in alike if equal_key(f) == equal_key(func)), None)
    if first is None:
        alike.append(func)
        return lowered
    return replace(lowered, func=replace(first, name=func.name, attrs=func.attrs, like=first))


@lru_cache(4096)
def _sharing_key(func: PrimFunc) -> str:
    """A hash of the text: that of a large network's kernels is long, and kept in the cache."""

    def digest() -> str:
        return hashlib.sha256(sharing_key(simplified(func)).encode()).hexdigest()

    return recall("sharing_key", lambda: equal_key(func).lasting(), digest, pack=str, unpack=str)


def cached_layer(func: Function, target: Target, name: str, known: LoweringCache) -> CachedLayer:
    """What is known of a layer: of the same function, or of one that is equal but for names and places in the file."""
    place = (id(func), name)
    if place not in known.layers:
        key = group_key(func)
        layer = None if key is None else known.by_key.get((name, key))
        if layer is None:
            group = group_of(func)
            layer = CachedLayer(group, tuple(_at_least_one(group, target, known.accepted)), _weights(group), key)
            if key is not None:
                known.by_key[name, key] = layer
        known.layers[place] = func, layer
    return known.layers[place][1]


def _fewest_cycles(found: list[Candidate]) -> list[Candidate]:
    """Of those that state cycles the best one by these, and all others."""
    timed = [c for c in found if c.cycles]
    best = min(timed, key=lambda c: c.cycles, default=None)
    return [c for c in found if c is best or not c.cycles]


def _is_left_out(impl: OpImplementation, policy: SelectionConfig, group: Group) -> bool:
    """With portable C only, candidates for special instructions are left out; those of external code generators stay."""
    return policy.kernels == "generic" and not impl.name.startswith("generic.") and "Compiler" not in group.func.attrs


def _packed(found: list[Candidate]) -> list[Candidate]:
    """Those that keep a large matrix in fewer bytes than one a weight, as they can 4-bit ones, where there are such."""
    weights = found[0].weights[0].nbytes if found and found[0].weights else 0
    return [c for c in found if weights >= LARGE_MATRIX and c.constants < weights] or found


def _candidate(
    layer: CachedLayer, impl: OpImplementation, target: Target, name: str, *, known: LoweringCache, keys: str
) -> Candidate:
    """A kernel with its price, which may be known from an earlier compilation.

    `keys`: the kind of text that is the key of its code; "" of none.
    """

    @cache
    def lowered() -> Lowered:
        return _once(impl.lower(layer.group, target, name), known)

    def depends() -> bytes:
        return b"\0".join((layer.key or b"", impl.name.encode(), str(target).encode()))

    def sharing() -> str:
        return recall("code", depends, lambda: _sharing_key(lowered().func.core), pack=str, unpack=str)

    if layer.key is None or keys != "sharing":
        price = _price(lowered(), keyed=bool(keys))
    else:
        price = recall("price", depends, lambda: _price(lowered(), keyed=True), pack=_packed_price, unpack=_price_of)
    key: Hashable = CodeKey(sharing) if keys == "sharing" else id(lowered().func)
    if keys == "structural":
        key = CodeKey(lambda: structural_key(lowered().func.core))
    return Candidate(
        price.kernel, lowered, key, price.instructions, price.constants, price.code, price.scratch,
        layer.weights, price.arrays, cycles=price.cycles, interface=price.interface,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Price:
    """What a candidate says of its kernel."""

    kernel: str
    instructions: int
    constants: int
    code: int
    scratch: int
    cycles: int
    arrays: tuple[Stored, ...]
    interface: str


def _price(lowered: Lowered, *, keyed: bool) -> _Price:
    func, constants = lowered.func, lowered.constants
    return _Price(
        func.attrs.kernel, lowered.instructions, sum(c.nbytes for c in constants.values()), lowered.code,
        sum(b.nbytes for b in func.scratch), lowered.cycles,
        tuple(stored(constants[b.name], b.dtype) for b in func.consts) if keyed else (), interface_key(func),
    )  # fmt: skip


def _packed_price(price: _Price) -> list[Any]:
    keys: list[Any] = [a.key for a in price.arrays]  # as `stored` made them
    arrays = [[dtype, digest.hex(), a.nbytes] for (dtype, digest), a in zip(keys, price.arrays, strict=True)]
    numbers = map(int, (price.instructions, price.constants, price.code, price.scratch, price.cycles))
    return [price.kernel, *numbers, arrays, price.interface]


def _price_of(data: Any) -> _Price | None:
    kernel, instructions, constants, code, scratch, cycles, arrays, interface = data
    good = (
        isinstance(kernel, str)
        and isinstance(interface, str)
        and all(isinstance(n, int) for n in (instructions, constants, code, scratch, cycles))
    )
    kept = tuple(Stored((str(dtype), bytes.fromhex(digest)), int(size)) for dtype, digest, size in arrays)
    return _Price(kernel, instructions, constants, code, scratch, cycles, kept, interface) if good else None


WEIGHTED = frozenset({"nn.conv2d", "nn.depthwise_conv2d", "nn.dense", "nn.bias_add"})


def _weights(group: Group) -> tuple[Stored, ...]:
    """Weights and biases as the model has them, the weights first."""
    calls = [e for e in post_order(group.result) if isinstance(e, Call) and getattr(e.op, "name", "") in WEIGHTED]
    return tuple(stored(a.data, a.type.dtype) for c in calls for a in c.args if isinstance(a, Constant))


def repeated_weights(func: Function) -> frozenset[Hashable]:
    """The keys of weights that several layers of the fused main function have, branches and loops included."""
    nodes = [e for f in all_functions(func) for e in post_order(f.body)]
    layers = [group_of(e.op) for e in nodes if isinstance(e, Call) and isinstance(e.op, Function)]
    count = Counter(w.key for group in layers for w in _weights(group)[:1])
    return frozenset(key for key, n in count.items() if n > 1)


def _at_least_one(group: Group, target: Target, known: Accepted) -> list[OpImplementation]:
    found = accepting(group, target, known)
    if not found:
        name = getattr(group.anchor.op, "name", "?")
        raise UnsupportedError(Problem("E1209", f"no kernel for {name} on {target.name}", str(group.anchor.span)))
    return found


LARGE_MATRIX = 2560
"""4-bit weights from so many on stay packed in `size`; packing smaller ones can cost more in code than it saves."""


# ---- what was counted in place of what is estimated


def with_history(found: Sequence[Candidate], counts: Counts) -> list[Candidate]:
    """The candidates with what was counted for estimates.

    Those that were not measured keep their places among the others: their estimates are scaled by the median of what the
    measured ones came to, as an estimate that all are compared with must be wrong in the same way for all.  Cycles are brought
    to the scale of instructions, which other layers are told in.
    """
    known = [c for c in found if c.kernel in counts and c.instructions > 0]
    if not known:
        return list(found)
    ratio = median(counts[c.kernel] / c.instructions for c in known)
    return [
        replace(c, instructions=counts[c.kernel] if c.kernel in counts else max(1, round(c.instructions * ratio))) for c in found
    ]


def scaled_cycles(found: Sequence[Candidate], counts: Counts) -> Counts:
    """Counted cycles in instructions: their order and proportions stay, the cheapest keeps its estimate."""
    known = [c for c in found if c.kernel in counts and c.instructions > 0]
    if not known:
        return {}
    best = min(known, key=lambda c: counts[c.kernel])
    factor = best.instructions / max(1, counts[best.kernel])
    return {c.kernel: max(1, round(counts[c.kernel] * factor)) for c in known}
