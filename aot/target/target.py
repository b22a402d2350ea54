"""Targets: a kind of code generator and its attributes, as TVM writes them (`c -keys=arm_cpu,cpu -mcpu=cortex-m4`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from aot.errors import Problem, UsageError
from aot.ir.global_func import register_func
from aot.support.dataclass import dataclass
from aot.support.near import did_you_mean
from aot.target.cpu import CORES, Core, find_core


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A code generator by name: `target.build.<name>` is the global function that makes a runtime.Module of an IRModule.

    `options` are the attributes that a target of the kind may have, name -> what it means.
    """

    name: str
    options: tuple[tuple[str, str], ...]
    description: str

    @property
    def codegen(self) -> str:
        """The name of the global function that generates code."""
        return f"target.build.{self.name}"


_KINDS: dict[str, TargetKind] = {}

_COMMON = {
    "keys": "what schedules may be made for: arm_cpu, cpu",
    "mcpu": "the core, such as cortex-m4; without what it may lack as cortex-m4+nofpu",
    "mfloat-abi": "soft, softfp or hard, where the core has a choice",
    "mfpu": "the core's floating-point unit, or none",
    "march": "the core's architecture, as its description names it",
    "model": "host for this machine",
}


def register_target_kind(
    name: str,
    *,
    options: Mapping[str, str] | None = None,
    description: str = "",
    codegen: Callable[..., Any] | None = None,
) -> TargetKind:
    """Enter a kind of target; `codegen`, from an IRModule and a Target to a runtime.Module, becomes `target.build.<name>`.

    `options` are attributes beside those that every kind has.  Raises E5080 for a name that is taken or is not an identifier.

    `description`: what `aot targets` says of it.
    """
    if not isinstance(name, str) or not name.replace("-", "_").isidentifier() or name in CORES:
        raise UsageError(Problem("E5080", f"{name!r} cannot name a kind of target"))
    if name in _KINDS:
        raise UsageError(Problem("E5080", f"the kind of target {name} is registered already"))
    kind = TargetKind(name, tuple(sorted({**_COMMON, **(options or {})}.items())), description)
    if codegen is not None:
        register_func(kind.codegen, codegen)
    _KINDS[name] = kind
    return kind


def target_kinds() -> tuple[TargetKind, ...]:
    """Every kind, sorted by name."""
    return tuple(_KINDS[k] for k in sorted(_KINDS))


C_KIND = register_target_kind("c", description="C99 for Cortex-M and for this machine")


@dataclass(frozen=True, slots=True, init=False)
class Target:
    """A kind and its attributes, with what they say about the core.

    Made from a core's name (`cortex-m4`), from TVM's form (`c -mcpu=cortex-m4 -mfloat-abi=hard`), from a mapping with "kind", or
    from another Target.  `str(target)` is the form that parses again; attributes that say what the core is anyway are left out.
    """

    kind: TargetKind
    core: Core
    options: tuple[tuple[str, str], ...]

    def __init__(self, spec: str | Mapping[str, Any] | Target) -> None:
        kind, attrs = _parse(spec)
        core, rest = _core(attrs, [name for name, _ in kind.options])
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "core", core)
        object.__setattr__(self, "options", tuple(sorted(rest.items())))

    @property
    def name(self) -> str:
        """The core, such as `cortex-m33+nodsp`."""
        return self.core.name

    @property
    def features(self) -> frozenset[str]:
        """What the core can do (aot.target.cpu.Core)."""
        return self.core.features

    @property
    def gcc_flags(self) -> tuple[str, ...]:
        """What makes GCC compile for the core."""
        return self.core.gcc_flags

    @property
    def description(self) -> str:
        """The architecture, in words."""
        return self.core.description

    @property
    def keys(self) -> tuple[str, ...]:
        """What schedules may be made for, special before general."""
        return ("cpu",) if self.core.name == "host" else ("arm_cpu", "cpu")

    @property
    def attrs(self) -> dict[str, str]:
        """The attributes by name."""
        return {"keys": ",".join(self.keys), "mcpu": self.core.name, **dict(self.options)}

    def has(self, feature: str) -> bool:
        """Whether the core has a feature."""
        return feature in self.core.features

    def with_fast_float(self) -> Target:
        """The same with the permission "ftz" (E5017 without MVE, whose vectors it is for)."""
        if not self.has("mve"):
            message = f"--fast-float is for cores with MVE, such as cortex-m55; {self.name} has none"
            raise UsageError(Problem("E5017", message))
        found = Target(self)
        object.__setattr__(found, "core", replace(self.core, features=self.core.features | {"ftz"}))
        return found

    def __str__(self) -> str:
        return " ".join([self.kind.name, *(f"-{k}={v}" for k, v in self.attrs.items())])


def find_target(name: str) -> Target:
    """The target of a core's name, or of TVM's form (E5010 if it is unknown)."""
    return Target(name)


def _unknown(message: str) -> UsageError:
    return UsageError(Problem("E5010", message))


def _parse(spec: str | Mapping[str, Any] | Target) -> tuple[TargetKind, dict[str, str]]:
    if isinstance(spec, Target):
        return spec.kind, spec.attrs
    if isinstance(spec, Mapping):
        fields = {str(k): _text(v) for k, v in spec.items()}
        return _kind(fields.pop("kind", "c")), fields
    if not isinstance(spec, str) or not spec.split():
        raise _unknown(f"{spec!r} is not a target: give a core such as cortex-m4, or 'c -mcpu=cortex-m4'")
    first, *words = spec.split()
    if first not in _KINDS:
        if words:
            raise _unknown(f"unknown kind of target '{first}'; known: {', '.join(sorted(_KINDS))}")
        return C_KIND, {"mcpu": first}
    attrs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not word.startswith("-") or not equals or not key or key in attrs:
            raise _unknown(f"'{word}' is not an attribute of target '{spec}', as in -mcpu=cortex-m4")
        attrs[key] = value
    return _kind(first), attrs


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return ",".join(map(str, value))
    return str(value)


def _kind(name: str) -> TargetKind:
    if name not in _KINDS:
        raise _unknown(f"unknown kind of target '{name}'{did_you_mean(name, _KINDS)}; known: {', '.join(sorted(_KINDS))}")
    return _KINDS[name]


def _core(attrs: Mapping[str, str], known: Collection[str]) -> tuple[Core, dict[str, str]]:
    """The core that attributes describe, and the attributes that do not belong to it."""
    unknown = [k for k in attrs if k not in known]
    if unknown:
        near = did_you_mean(unknown[0], known)
        raise _unknown(f"unknown attribute -{unknown[0]} of a target{near}; known: {', '.join(sorted(known))}")
    core = find_core(attrs.get("mcpu", attrs.get("model", "host")))
    arch = core.description.partition(",")[0].lower()
    expected = {"model": {core.name}, "march": {arch, arch.removesuffix(" mainline") + ".main"}}
    for key, values in expected.items():
        if key in attrs and attrs[key] not in values:
            raise _unknown(f"-{key}={attrs[key]} does not go with -mcpu={core.name}; expected {sorted(values)[0]}")
    keys = [k for k in attrs.get("keys", "").split(",") if k not in ("arm_cpu", "cpu", "")]
    if keys:
        raise _unknown(f"unknown key '{keys[0]}' of a target; known: arm_cpu, cpu")
    core = _with_abi(core, attrs)
    return core, {k: v for k, v in attrs.items() if k not in _COMMON}


def _with_abi(core: Core, attrs: Mapping[str, str]) -> Core:
    """The core as -mfloat-abi and -mfpu want it."""
    usual = {k: v for k, _, v in (f.removeprefix("-").partition("=") for f in core.gcc_flags)}
    abi, fpu = attrs.get("mfloat-abi"), attrs.get("mfpu")
    if abi is not None and abi not in ("soft", "softfp", "hard"):
        raise _unknown(f"unknown -mfloat-abi={abi}; known: soft, softfp, hard")
    if fpu not in (None, "none", "auto", usual.get("mfpu")):
        raise _unknown(f"-mfpu={fpu} does not go with -mcpu={core.name}; expected {usual.get('mfpu', 'none')}")
    wants_soft = abi == "soft" or fpu == "none"
    if wants_soft and "fpu" in core.features and core.name != "host":
        return find_core(f"{core.name}+nofpu")
    if abi in ("softfp", "hard") and usual.get("mfloat-abi") != abi:
        if "fpu" not in core.features:
            raise _unknown(f"-mfloat-abi={abi} does not go with -mcpu={core.name}, which has no floating-point unit")
        if abi == "softfp" and core.name != "host":
            raise _unknown("-mfloat-abi=softfp is not supported; known: soft, hard")
    return core


__all__ = ["Target", "TargetKind", "find_target", "register_target_kind", "target_kinds"]
