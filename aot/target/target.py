"""Targets: a kind of code generator and its attributes, as TVM writes them (`c -keys=arm_cpu,cpu -mcpu=cortex-m4`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from aot.errors import Problem, UsageError
from aot.ir.global_func import register_func
from aot.support.dataclass import dataclass
from aot.support.suggestions import did_you_mean
from aot.target.cpu import CORES, Core, find_core

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class TargetOption:
    """An attribute that targets of a kind may have: the type of its values, the value where none is given, and what it means.

    `kind` is str, int, float or bool.  Without a default the attribute is missing from a target that does not give it.
    """

    kind: type
    default: Value | None = None
    doc: str = ""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A code generator by name: `target.build.<name>` is the global function that makes a runtime.Module of an IRModule.

    `options` are the attributes that a target of the kind may have, by name.
    """

    name: str
    options: tuple[tuple[str, TargetOption], ...]
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
    options: Mapping[str, TargetOption | str] | None = None,
    description: str = "",
    codegen: Callable[..., Any] | None = None,
) -> TargetKind:
    """Enter a kind of target; `codegen`, from an IRModule and a Target to a runtime.Module, becomes `target.build.<name>`.

    `options` are attributes beside those that every kind has: a TargetOption, or what a text means.  Raises E5080 for a name that
    is taken or is not an identifier, and for an option whose type is none or is not that of its default.

    `description`: what the kind is for.
    """
    if not isinstance(name, str) or not name.replace("-", "_").isidentifier() or name in CORES:
        raise UsageError(Problem("E5080", f"{name!r} cannot name a kind of target"))
    if name in _KINDS:
        raise UsageError(Problem("E5080", f"the kind of target {name} is registered already"))
    own = {str(k): _declared(name, str(k), o) for k, o in (options or {}).items()}
    common = {k: TargetOption(str, None, doc) for k, doc in _COMMON.items()}
    kind = TargetKind(name, tuple(sorted({**common, **own}.items())), description)
    if codegen is not None:
        register_func(kind.codegen, codegen)
    _KINDS[name] = kind
    return kind


def _declared(kind: str, key: str, given: TargetOption | str) -> TargetOption:
    option = TargetOption(str, None, given) if isinstance(given, str) else given
    wrong = ""
    if not isinstance(option, TargetOption) or option.kind not in (str, int, float, bool):
        wrong = f"takes TargetOption(kind, default, doc), the kind str, int, float or bool, not {given!r}"
    elif option.default is not None and type(option.default) is not option.kind:
        wrong = f"has a default of another type than {option.kind.__name__}: {option.default!r}"
    elif key in _COMMON:
        wrong = "is an attribute of every kind"
    if wrong:
        raise UsageError(Problem("E5080", f"the option {key} of the kind of target {kind} {wrong}"))
    return option


def target_kinds() -> tuple[TargetKind, ...]:
    """Every kind, sorted by name."""
    return tuple(_KINDS[k] for k in sorted(_KINDS))


C_KIND = register_target_kind("c", description="C99 for Cortex-M and for this machine")


@dataclass(frozen=True, slots=True, init=False)
class Target:
    """A kind and its attributes, with what they say about the core.

    Made from a core's name (`cortex-m4`), from TVM's form (`c -mcpu=cortex-m4 -mfloat-abi=hard`), from a mapping with "kind", or
    from another Target.  `str(target)` is the form that parses again; attributes that say what the core is anyway are left out,
    and so are options that are as the kind has them by default.
    """

    kind: TargetKind
    core: Core
    options: tuple[tuple[str, Value], ...]

    def __init__(self, spec: str | Mapping[str, Any] | Target) -> None:
        kind, attrs = _parse(spec)
        core, rest = _core(attrs, [name for name, _ in kind.options])
        known = dict(kind.options)
        typed = {k: _typed(k, v, known[k]) for k, v in rest.items()}
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "core", core)
        given = ((k, v) for k, v in typed.items() if v != known[k].default)
        object.__setattr__(self, "options", tuple(sorted(given)))

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
    def attrs(self) -> dict[str, Value]:
        """The attributes by name, each of its option's type; those that were not given have their defaults."""
        defaults = {k: o.default for k, o in self.kind.options if o.default is not None}
        return {"keys": ",".join(self.keys), "mcpu": self.core.name, **defaults, **dict(self.options)}

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
        shown = {"keys": ",".join(self.keys), "mcpu": self.core.name, **dict(self.options)}
        return " ".join([self.kind.name, *(f"-{k}={_text(v)}" for k, v in shown.items())])


def find_target(name: str) -> Target:
    """The target of a core's name, or of TVM's form (E5010 if it is unknown)."""
    return Target(name)


def _unknown(message: str) -> UsageError:
    return UsageError(Problem("E5010", message))


def _parse(spec: str | Mapping[str, Any] | Target) -> tuple[TargetKind, dict[str, str]]:
    if isinstance(spec, Target):
        return spec.kind, {k: _text(v) for k, v in spec.attrs.items()}
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
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Iterable):
        return ",".join(map(str, value))
    return str(value)


_TRUTHS = {"1": True, "true": True, "0": False, "false": False}


def _typed(key: str, text: str, option: TargetOption) -> Value:
    """The value of an option that its text stands for (E5010)."""
    try:
        value: Value = _TRUTHS[text.lower()] if option.kind is bool else option.kind(text)
    except (KeyError, ValueError):
        forms = {int: "a whole number", float: "a number", bool: "0 or 1"}
        raise _unknown(f"-{key}={text}: the option takes {forms[option.kind]}") from None
    return value


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


def require_c(target: Target) -> Target:
    """The target, which has to be one of C code (E5081): of other kinds only `aot.build` knows the code generator."""
    if target.kind is not C_KIND:
        message = f"a target of kind {target.kind.name} yields no C, which this needs; aot.build calls its code generator"
        raise UsageError(Problem("E5081", message))
    return target


__all__ = ["Target", "TargetKind", "TargetOption", "find_target", "register_target_kind", "require_c", "target_kinds"]
