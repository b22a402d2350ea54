"""The kernels that can run a fused function, lowered and priced; a function is cut if that gives its layer a kernel."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from dataclasses import field, replace
from functools import lru_cache
from statistics import median
from typing import Any

from aot.errors import Problem, UnsupportedError, internal
from aot.executor.config import Counts, PlanConfig, SelectionConfig
from aot.executor.lowered import LoweredModule
from aot.executor.selection import Candidate, Stored, stored
from aot.ir.module import IRModule
from aot.ir.op import T_OP_PATTERN, Op
from aot.relay.analysis import LAYERS, group_key, workload_key
from aot.relay.expr import Call, Constant, Expr, Function, all_functions, map_inner_functions, operands, post_order, with_operands
from aot.relay.transform.partition import call_group
from aot.support.dataclass import dataclass
from aot.system.disk_memo import recall
from aot.target.target import Target
from aot.tir.function import PrimFunc
from aot.tir.transform import equal_key, interface_key, sharing_key, simplified, structural_key
from aot.topi.strategy import Group, Lowered, OpImplementation, external_impl, implementations


def group_of(func: Function) -> Group:
    """Find the anchor and the followers of a primitive function.

    The anchor is the first call of the highest pattern kind; the followers are the calls after it.  If a call comes before it
    (an injective producer), only the generic path can run the function, and the last call is the anchor.
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
"""Whether a kernel accepts a function: needed when functions are cut and again when they are lowered."""


def accepting(group: Group, target: Target, accepted: Accepted | None = None) -> Iterator[OpImplementation]:
    """The kernels that accept a function, best plevel first, the generic path last.  Answers in `accepted` are reused."""
    external = external_impl(group.func)
    if external is not None:
        yield external
        return
    accepted = {} if accepted is None else accepted
    for impl in implementations(str(getattr(group.anchor.op, "name", "?")), target):
        if (impl, group) not in accepted:
            accepted[impl, group] = impl.accepts(group, target)
        if accepted[impl, group]:
            yield impl


def with_cut_groups(func: Function, target: Target, accepted: Accepted | None = None) -> Function:
    """Cut functions of the fused main (`func`) that have no kernel, if a part of them has one.

    Such a function is a layer (LAYERS) with followers that its kernels cannot include (say, with a constant operand). The generic
    path would run all of it, with many times the instructions.  The first part is the layer with as many followers as a kernel
    accepts.  The other followers become one function, or one per call if kernels for single calls are better (by plevel).

    `accepted` records which kernels accept a function, so that lowering can reuse it.
    """
    accepted = {} if accepted is None else accepted
    return _cut_all(map_inner_functions(func, lambda f: _cut_all(f, target, accepted)), target, accepted)


def _cut_all(func: Function, target: Target, accepted: Accepted) -> Function:
    done: dict[int, Expr] = {}
    for expr in post_order(func.body):
        done[id(expr)] = _cut(with_operands(expr, [done[id(o)] for o in operands(expr)]), target, accepted)
    return Function(func.params, done[id(func.body)], func.attrs)


def _cut(expr: Expr, target: Target, accepted: Accepted) -> Expr:
    if not isinstance(expr, Call) or not isinstance(expr.op, Function):
        return expr
    group = group_of(expr.op)
    if "Compiler" in expr.op.attrs:
        return expr
    if not group.followers or getattr(group.anchor.op, "name", "") not in LAYERS:
        return expr
    if any(i.anchor != "*" for i in accepting(group, target, accepted)):
        return expr
    calls = (group.anchor, *group.followers)
    for n in range(len(calls) - 1, 0, -1):
        if any(i.anchor != "*" and i.cuts for i in accepting(_alone(calls[:n]), target, {})):
            return _in_parts((calls[:n], *_parts(calls[n:], target)), expr)
    return expr


def _parts(calls: Sequence[Call], target: Target) -> Sequence[Sequence[Call]]:
    """`calls` as one group, or one group per call if even the worst of these has a better kernel than the whole."""
    singles = [calls[i : i + 1] for i in range(len(calls))]
    return singles if min(_plevel(s, target) for s in singles) > _plevel(calls, target) else [calls]


def _plevel(calls: Sequence[Call], target: Target) -> int:
    return max((i.plevel for i in accepting(_alone(calls), target, {})), default=-1)


def _alone(calls: Sequence[Call]) -> Group:
    """Calls of a group as a separate group; the values that they read from outside become parameters."""
    func = call_group(calls, {id(o): o for c in calls for o in operands(c)}).op
    assert isinstance(func, Function)
    return group_of(func)


def _in_parts(parts: Sequence[Sequence[Call]], whole: Call) -> Expr:
    """The parts of a group as calls of primitive functions; each passes its result to later parts."""
    assert isinstance(whole.op, Function)
    outside: dict[int, Expr] = {id(v): a for v, a in zip(whole.op.params, whole.args, strict=True)}
    for calls in parts:
        outside[id(calls[-1])] = call_group(calls, outside)
    return outside[id(parts[-1][-1])]


# ---- a model before its kernels are chosen, and what is reused between choices


@dataclass(frozen=True, slots=True)
class CachedLayer:
    """A function, the kernels that accept it, its weights and biases, its key, and its candidates.

    Candidates are cached by implementation and kind of code key.
    """

    group: Group
    accepting: tuple[OpImplementation, ...]
    weights: tuple[Stored, ...]
    key: bytes | None = None
    lowered: dict[tuple[str, str], Candidate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoweringCache:
    """Results for one model and target, reused for the next config with the same `kernels`: the memo of all attempts.

    `layers`, by id and name of the function: the function (a reference keeps its id unique) and its layer, which equal functions
    share.  `by_key`: the layers by name and key of the function.  `drafts`, `searches` (for cascades) and `plans`, by the parts
    of the config that they depend on.  `functions`: the first of each set of equal functions, by properties that are cheap to
    compare.  `accepted`: which kernels accept a function.  `optimized`: functions after the passes over loop nests.
    """

    layers: dict[tuple[int, str], tuple[Function, CachedLayer]] = field(default_factory=dict)
    by_key: dict[tuple[str, bytes], CachedLayer] = field(default_factory=dict)
    drafts: dict[Hashable, CandidateModule] = field(default_factory=dict)
    searches: dict[Hashable, Any] = field(default_factory=dict)
    plans: dict[Hashable, Any] = field(default_factory=dict)
    functions: dict[Hashable, list[PrimFunc]] = field(default_factory=dict)
    accepted: Accepted = field(default_factory=dict)
    optimized: dict[PrimFunc, PrimFunc] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedModule(IRModule):
    """A relay main that calls fused functions, with the target and settings for lowering it."""

    target: Target
    config: SelectionConfig = field(default_factory=SelectionConfig)
    planning: PlanConfig = field(default_factory=PlanConfig)
    cache: LoweringCache = field(default_factory=LoweringCache)

    @property
    def main(self) -> Function:
        func = self["main"]
        assert isinstance(func, Function)
        return func


@dataclass(frozen=True, slots=True)
class CandidateModule(LoweredModule):
    """The calls of a model in order, each with all its kernels; the functions are the preferred ones.

    `key`: the parts of the config that the candidates depend on.
    """

    key: Hashable = None
    cache: LoweringCache = field(default_factory=LoweringCache)


# ---- kernels, lowered and priced


def lower_group(func: Function, target: Target, name: str) -> Lowered:
    """The preferred kernel of the function, by plevel (E1209 if no kernel accepts it)."""
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
    cache: LoweringCache | None = None,
) -> list[Candidate]:
    """Every kernel that accepts the function, lowered, best plevel first; the generic path only if there is no other.

    Without `keyed`, the candidates' keys do not describe shared code, which saves most of the time.  `repeated` are the keys of
    weights that several layers share; kernels for repeated weights compete only for those layers.  Candidates in `cache` are not
    lowered again.  If the policy's history has the workload, its counts replace estimates, and every measured kernel competes.
    """
    cache = LoweringCache() if cache is None else cache
    keys = "" if not keyed else "sharing" if policy.mode.shares_functions else "structural"
    layer = cached_layer(func, target, name, cache)
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
            layer.lowered[key] = _candidate(layer, impl, target, name, cache=cache, keys=keys)
        if usual or layer.lowered[key].kernel in counts:
            found.append(layer.lowered[key])
    by_cycles = bool(counts) and target.name in policy.history.cycles
    if counts:
        found = with_history(found, scaled_cycles(found, counts) if by_cycles else counts)
    if policy.mode.fastest_only:
        return found if by_cycles else _fewest_cycles(found)
    return _packed(found) if policy.mode.packed_only else found


def _is_running(
    impl: OpImplementation, policy: SelectionConfig, weights: tuple[Stored, ...], repeated: Container[Hashable]
) -> bool:  # fmt: skip
    """Whether the kernel competes without measurements; special-purpose kernels do so only when needed."""
    return not _unmet_purpose(impl, policy) and (not impl.for_repeated or any(w.key in repeated for w in weights[:1]))


def _unmet_purpose(impl: OpImplementation, policy: SelectionConfig) -> str:
    """The purpose of the kernel, if it is not requested; empty if the kernel competes."""
    if impl.small and not policy.limits_ram:
        return "it is for a limited workspace (small)"
    if impl.for_pushes and not policy.slides:
        return "it is for windows that move (for_pushes)"
    if impl.for_records:
        return "it competes only if it was measured (for_records)"
    if impl.for_speed and (not policy.mode.fastest_only or policy.limits_ram):
        return "it is for --opt speed without a limited workspace (for_speed)"
    return "it is not for --opt size (larger)" if impl.larger and not policy.mode.larger_kernels else ""


def why_not(impl: OpImplementation, group: Group, target: Target, policy: SelectionConfig, *, cache: LoweringCache) -> str:
    """Why a kernel for functions with this anchor is not a candidate; empty if it is."""
    accepted = list(accepting(group, target, cache.accepted))
    if impl not in accepted:
        return "an external code generator has them" if "Compiler" in group.func.attrs else "accepts(group, target) refuses them"
    if _is_left_out(impl, policy, group):
        return "--kernels generic leaves it out"
    if policy.keeps_weights and not impl.keeps and any(i.keeps and not _is_left_out(i, policy, group) for i in accepted):
        return "other kernels keep the weights as the file has them (keeps)"
    if impl.anchor == "*" and any(i.anchor != "*" for i in accepted):
        return "there are kernels for the operator itself"
    return _unmet_purpose(impl, policy)


def all_candidates(func: Function, target: Target, name: str, cache: LoweringCache) -> list[Candidate]:
    """Every kernel that accepts the function, whatever its purpose; the generic path only if there is no other."""
    layer = cached_layer(func, target, name, cache)
    result: list[Candidate] = []
    for impl in layer.accepting:
        if impl.anchor != "*" or not result:
            result.append(_candidate(layer, impl, target, name, cache=cache, keys=""))
    return result


class CodeKey:
    """A key that is equal for functions that can replace each other; its text is generated on demand: few keys are compared."""

    __slots__ = ("_known", "_text")

    def __init__(self, text: Callable[[], str]) -> None:
        self._text, self._known = text, ""

    def text(self) -> str:
        """The text that defines equality: it is the same for equal keys only."""
        self._known = self._known or self._text()
        return self._known

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodeKey) and self.text() == other.text()

    def __hash__(self) -> int:
        return hash(self.text())


def _once(lowered: Lowered, cache: LoweringCache) -> Lowered:
    """The kernel, sharing buffers and body with an equal function lowered before, so that they are analysed only once."""
    func = lowered.func
    if func.scalars:
        return lowered
    buffers = tuple((b.name, b.dtype, b.shape, b.scope) for b in func.buffers)
    alike = cache.functions.setdefault((func.attrs.kernel, func.attrs.opt, len(func.body), buffers), [])
    first = next((f for f in alike if equal_key(f) == equal_key(func)), None)
    if first is None:
        alike.append(func)
        return lowered
    return replace(lowered, func=replace(first, name=func.name, attrs=func.attrs, like=first))


@lru_cache(4096)
def _sharing_key(func: PrimFunc) -> str:
    """A hash of the sharing key; the text itself is long in large networks and would fill the cache."""

    def digest() -> str:
        return hashlib.sha256(sharing_key(simplified(func)).encode()).hexdigest()

    return recall("sharing_key", lambda: equal_key(func).lasting(), digest, pack=str, unpack=str)


def cached_layer(func: Function, target: Target, name: str, cache: LoweringCache) -> CachedLayer:
    """The cached layer of the same function, or of a function that is equal except for names and places in the file."""
    place = (id(func), name)
    if place not in cache.layers:
        key = group_key(func)
        layer = None if key is None else cache.by_key.get((name, key))
        if layer is None:
            group = group_of(func)
            layer = CachedLayer(group, tuple(_at_least_one(group, target, cache.accepted)), _weights(group), key)
            if key is not None:
                cache.by_key[name, key] = layer
        cache.layers[place] = func, layer
    return cache.layers[place][1]


def _fewest_cycles(options: list[Candidate]) -> list[Candidate]:
    """The best of the candidates with cycle counts, and all candidates without."""
    timed = [c for c in options if c.cycles]
    best = min(timed, key=lambda c: c.cycles, default=None)
    return [c for c in options if c is best or not c.cycles]


def _is_left_out(impl: OpImplementation, policy: SelectionConfig, group: Group) -> bool:
    """Whether `--kernels generic` excludes the kernel: it is not portable C; external code generators stay."""
    return policy.kernels == "generic" and not impl.name.startswith("generic.") and "Compiler" not in group.func.attrs


def _packed(options: list[Candidate]) -> list[Candidate]:
    """Only candidates that store a large matrix in less than one byte per weight (4-bit weights), if there are any."""
    weights = options[0].weights[0].nbytes if options and options[0].weights else 0
    return [c for c in options if weights >= LARGE_MATRIX and c.constants < weights] or options


def _candidate(
    layer: CachedLayer, impl: OpImplementation, target: Target, name: str, *, cache: LoweringCache, keys: str
) -> Candidate:
    """A kernel with its price, which may be cached from an earlier compilation.

    `keys`: the kind of text for its code key; "" for no key.
    """

    @lru_cache(1)
    def lowered() -> Lowered:
        return _once(impl.lower(layer.group, target, name), cache)

    def priced() -> Candidate:
        func, constants = lowered().func, lowered().constants
        arrays = tuple(stored(constants[b.name], b.dtype) for b in func.consts) if keys else ()
        return Candidate(
            func.attrs.kernel, lowered, None, lowered().instructions, sum(c.nbytes for c in constants.values()), lowered().code,
            sum(b.nbytes for b in func.scratch), layer.weights, arrays, cycles=lowered().cycles, interface=interface_key(func),
        )  # fmt: skip

    def packed(price: Candidate) -> list[Any]:
        known: list[Any] = [a.key for a in price.arrays]  # as created by `stored`
        arrays = [[dtype, digest.hex(), a.nbytes] for (dtype, digest), a in zip(known, price.arrays, strict=True)]
        numbers = map(int, (price.instructions, price.constants, price.code, price.scratch, price.cycles))
        return [price.kernel, *numbers, arrays, price.interface]

    def unpacked(data: Any) -> Candidate | None:
        kernel, instructions, constants, code, scratch, cycles, rows, interface = data
        numbers = (instructions, constants, code, scratch, cycles)
        arrays = tuple(Stored((str(dtype), bytes.fromhex(digest)), int(size)) for dtype, digest, size in rows)
        if not (isinstance(kernel, str) and isinstance(interface, str) and all(isinstance(n, int) for n in numbers)):
            return None
        return Candidate(
            kernel, lowered, None, instructions, constants, code, scratch, layer.weights, arrays, cycles=cycles,
            interface=interface,
        )  # fmt: skip

    def depends() -> bytes:
        return b"\0".join((layer.key or b"", impl.name.encode(), str(target).encode()))

    def sharing() -> str:
        return recall("code", depends, lambda: _sharing_key(lowered().func.core), pack=str, unpack=str)

    is_cached = layer.key is not None and keys == "sharing"
    price = recall("price", depends, priced, pack=packed, unpack=unpacked) if is_cached else priced()
    if keys == "sharing":
        return replace(price, key=CodeKey(sharing))
    if keys == "structural":
        return replace(price, key=CodeKey(lambda: structural_key(lowered().func.core)))
    return replace(price, key=id(lowered().func))


WEIGHTED = frozenset({"nn.conv2d", "nn.depthwise_conv2d", "nn.dense", "nn.bias_add"})


def _weights(group: Group) -> tuple[Stored, ...]:
    """Weights and biases of the model, weights first."""
    calls = [e for e in post_order(group.result) if isinstance(e, Call) and getattr(e.op, "name", "") in WEIGHTED]
    return tuple(stored(a.data, a.type.dtype) for c in calls for a in c.args if isinstance(a, Constant))


def repeated_weights(func: Function) -> frozenset[Hashable]:
    """The keys of weights that several layers of the fused main use, including branches and loops."""
    nodes = [e for f in all_functions(func) for e in post_order(f.body)]
    layers = [group_of(e.op) for e in nodes if isinstance(e, Call) and isinstance(e.op, Function)]
    count = Counter(w.key for group in layers for w in _weights(group)[:1])
    return frozenset(key for key, n in count.items() if n > 1)


def _at_least_one(group: Group, target: Target, accepted: Accepted) -> list[OpImplementation]:
    found = list(accepting(group, target, accepted))
    if not found:
        name = getattr(group.anchor.op, "name", "?")
        raise UnsupportedError(Problem("E1209", f"no kernel for {name} on {target.name}", str(group.anchor.span)))
    return found


LARGE_MATRIX = 2560
"""From this many elements on, 4-bit weights stay packed in `size`; packing fewer can cost more code than it saves."""


# ---- measured counts in place of estimates


def with_history(found: Sequence[Candidate], counts: Counts) -> list[Candidate]:
    """Replace the estimates of candidates by measured counts.

    Candidates without a count keep their rank: their estimates are scaled by the median ratio of count to estimate, since figures
    that are compared must have the same bias.  Counts in cycles must first be converted to the scale of instructions, which other
    layers use (`scaled_cycles`).
    """
    counted = [c for c in found if c.kernel in counts and c.instructions > 0]
    if not counted:
        return list(found)
    ratio = median(counts[c.kernel] / c.instructions for c in counted)
    return [
        replace(c, instructions=counts[c.kernel] if c.kernel in counts else max(1, round(c.instructions * ratio))) for c in found
    ]


def scaled_cycles(found: Sequence[Candidate], counts: Counts) -> Counts:
    """Measured cycles on the scale of instructions: their ratios stay, and the cheapest kernel keeps its estimate."""
    counted = [c for c in found if c.kernel in counts and c.instructions > 0]
    if not counted:
        return {}
    best = min(counted, key=lambda c: counts[c.kernel])
    factor = best.instructions / max(1, counts[best.kernel])
    return {c.kernel: max(1, round(counts[c.kernel] * factor)) for c in counted}
