"""The kernels that can run a fused group, lowered and priced."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Hashable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from aot.errors import Problem, UnsupportedError
from aot.executor.lower.draft import Known, KnownLayer
from aot.executor.lower.groups import Accepted, accepting, group_of
from aot.executor.select.config import SelectionConfig
from aot.executor.select.counted import scaled_cycles, with_history
from aot.executor.select.selection import Candidate, Stored, stored
from aot.relay.analysis import group_key, workload_key
from aot.relay.expr import Call, Constant, Function, all_functions, post_order
from aot.support.dataclass import dataclass
from aot.system.facts import recall
from aot.target.target import Target
from aot.tir.function import PrimFunc
from aot.tir.transform import equal_key, interface_key, sharing_key, simplified, structural_key
from aot.topi.strategy import Group, Lowered, OpImplementation


def lower_group(func: Function, target: Target, name: str) -> Lowered:
    """The preferred kernel for the group, by plevel (E1209 if no kernel accepts it)."""
    group = group_of(func)
    return _accepting(group, target, {})[0].lower(group, target, name)


def candidates(
    func: Function,
    target: Target,
    name: str,
    policy: SelectionConfig,
    *,
    keyed: bool = True,
    repeated: Container[Hashable] = (),
    known: Known | None = None,
) -> list[Candidate]:
    """Every kernel that accepts the group, lowered, best plevel first; the generic path only where there is nothing else.

    Without `keyed` their keys say nothing about shared code, which saves most of the time.  `repeated` are the keys of the
    weights that several layers have; kernels made for those are left out elsewhere.  What is in `known` is not lowered again.
    Where the policy's history knows the workload, counts take the place of estimates, and whatever was measured competes.
    """
    known = Known() if known is None else known
    keys = "" if not keyed else "structural" if policy.opt == "speed" else "sharing"
    layer = known_layer(func, target, name, known)
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


def why_not(impl: OpImplementation, group: Group, target: Target, policy: SelectionConfig, *, known: Known) -> str:
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


def all_candidates(func: Function, target: Target, name: str, known: Known) -> list[Candidate]:
    """Every kernel that accepts the group, whatever it is made for; the generic path only where there is nothing else."""
    layer = known_layer(func, target, name, known)
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


def _once(lowered: Lowered, known: Known) -> Lowered:
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


def known_layer(func: Function, target: Target, name: str, known: Known) -> KnownLayer:
    """What is known of a layer: of the same function, or of one that is equal but for names and places in the file."""
    place = (id(func), name)
    if place not in known.layers:
        key = group_key(func)
        layer = None if key is None else known.by_key.get((name, key))
        if layer is None:
            group = group_of(func)
            layer = KnownLayer(group, tuple(_accepting(group, target, known.accepted)), _weights(group), key)
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


def _candidate(layer: KnownLayer, impl: OpImplementation, target: Target, name: str, *, known: Known, keys: str) -> Candidate:
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


def _accepting(group: Group, target: Target, known: Accepted) -> list[OpImplementation]:
    found = accepting(group, target, known)
    if not found:
        name = getattr(group.anchor.op, "name", "?")
        raise UnsupportedError(Problem("E1209", f"no kernel for {name} on {target.name}", str(group.anchor.span)))
    return found


LARGE_MATRIX = 2560
"""4-bit weights from so many on stay packed in `size`; packing smaller ones can cost more in code than it saves."""
