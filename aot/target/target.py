"""Targets: a kind of code generator with attributes, in TVM's notation (`c -keys=arm_cpu,cpu -mcpu=cortex-m4`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from aot.errors import Problem, UsageError
from aot.ir.op import register_func
from aot.support.dataclass import dataclass
from aot.support.text import did_you_mean
from aot.target.cpu import CORES, Core, find_core

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class TargetOption:
    """An attribute of targets of a kind: the type of its values, its default, and its documentation.

    `kind` is str, int, float or bool.  Without a default, a target that does not set the attribute does not have it.
    """

    kind: type
    default: Value | None = None
    doc: str = ""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A code generator by name: the global function `target.build.<name>` turns an IRModule into a runtime.Module.

    `options` are the attributes that a target of this kind may have, by name.
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
    "keys": "keys for schedules: arm_cpu, cpu",
    "mcpu": "the core, such as cortex-m4, or cortex-m4+nofpu without its FPU",
    "mfloat-abi": "soft, softfp or hard, if the core has a choice",
    "mfpu": "the core's floating-point unit, or none",
    "march": "the core's architecture, as in its description",
    "model": "host for this machine",
}


def register_target_kind(
    name: str,
    *,
    options: Mapping[str, TargetOption | str] | None = None,
    description: str = "",
    codegen: Callable[..., Any] | None = None,
) -> TargetKind:
    """Register a kind of target; `codegen`, from an IRModule and a Target to a runtime.Module, becomes `target.build.<name>`.

    `options` are attributes in addition to the common ones: a TargetOption, or the documentation of a str attribute.
    `description` says what the kind is for.  Raises E5080 for a name that is in use or not an identifier, and for an option with
    an invalid type or a default of another type.
    """
    if not isinstance(name, str) or not name.replace("-", "_").isidentifier() or name in CORES:
        raise UsageError(Problem("E5080", f"{name!r} cannot name a kind of target"))
    if name in _KINDS:
        raise UsageError(Problem("E5080", f"the kind of target {name} is registered already"))
    specific = {str(k): _declared(name, str(k), o) for k, o in (options or {}).items()}
    common = {k: TargetOption(str, None, doc) for k, doc in _COMMON.items()}
    kind = TargetKind(name, tuple(sorted({**common, **specific}.items())), description)
    if codegen is not None:
        register_func(kind.codegen, codegen)
    _KINDS[name] = kind
    return kind


def _declared(kind: str, key: str, given: TargetOption | str) -> TargetOption:
    option = TargetOption(str, None, given) if isinstance(given, str) else given
    wrong = ""
    if not isinstance(option, TargetOption) or option.kind not in (str, int, float, bool):
        wrong = f"must be a TargetOption(kind, default, doc) of kind str, int, float or bool, not {given!r}"
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
    """A kind with its attributes, and the core that they describe.

    Created from a core's name (`cortex-m4`), from TVM's notation (`c -mcpu=cortex-m4 -mfloat-abi=hard`), from a mapping with
    "kind", or from another Target.  `str(target)` can be parsed again; it leaves out attributes that follow from the core, and
    options with default values.
    """

    kind: TargetKind
    core: Core
    options: tuple[tuple[str, Value], ...]

    def __init__(self, spec: str | Mapping[str, Any] | Target) -> None:
        kind, attrs = _parse(spec)
        core, texts = _core(attrs, [name for name, _ in kind.options])
        options = dict(kind.options)
        typed = {k: _typed(k, v, options[k]) for k, v in texts.items()}
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "core", core)
        changed = ((k, v) for k, v in typed.items() if v != options[k].default)
        object.__setattr__(self, "options", tuple(sorted(changed)))

    @property
    def name(self) -> str:
        """The core, such as `cortex-m33+nodsp`."""
        return self.core.name

    @property
    def features(self) -> frozenset[str]:
        """The core's features (aot.target.cpu.Core)."""
        return self.core.features

    @property
    def gcc_flags(self) -> tuple[str, ...]:
        """The flags that make GCC compile for the core."""
        return self.core.gcc_flags

    @property
    def description(self) -> str:
        """The architecture and its extensions, in words."""
        return self.core.description

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys for schedules, the most specific first."""
        return ("cpu",) if self.core.name == "host" else ("arm_cpu", "cpu")

    @property
    def attrs(self) -> dict[str, Value]:
        """The attributes by name, with the types of their options; missing ones have their defaults."""
        defaults = {k: o.default for k, o in self.kind.options if o.default is not None}
        return {"keys": ",".join(self.keys), "mcpu": self.core.name, **defaults, **dict(self.options)}

    def has(self, feature: str) -> bool:
        """Whether the core has a feature."""
        return feature in self.core.features

    def with_fast_float(self) -> Target:
        """The target with the permission "ftz" (E5017 without MVE, as it only applies to MVE vectors)."""
        if not self.has("mve"):
            message = f"--fast-float is for cores with MVE, such as cortex-m55; {self.name} has none"
            raise UsageError(Problem("E5017", message))
        target = Target(self)
        object.__setattr__(target, "core", replace(self.core, features=self.core.features | {"ftz"}))
        return target

    def __str__(self) -> str:
        shown = {"keys": ",".join(self.keys), "mcpu": self.core.name, **dict(self.options)}
        return " ".join([self.kind.name, *(f"-{k}={_text(v)}" for k, v in shown.items())])


def find_target(name: str) -> Target:
    """The target with a core's name, or in TVM's notation (E5010 if it is unknown)."""
    return Target(name)


def _unknown(message: str) -> UsageError:
    return UsageError(Problem("E5010", message))


def _parse(spec: str | Mapping[str, Any] | Target) -> tuple[TargetKind, dict[str, str]]:
    if isinstance(spec, Target):
        return spec.kind, {k: _text(v) for k, v in spec.attrs.items()}
    if isinstance(spec, Mapping):
        mapping = {str(k): _text(v) for k, v in spec.items()}
        return _kind(mapping.pop("kind", "c")), mapping
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
    """The value of an option from its text (E5010)."""
    try:
        value: Value = _TRUTHS[text.lower()] if option.kind is bool else option.kind(text)
    except (KeyError, ValueError):
        forms = {int: "a whole number", float: "a number", bool: "0 or 1"}
        raise _unknown(f"-{key}={text}: the value must be {forms[option.kind]}") from None
    return value


def _kind(name: str) -> TargetKind:
    if name not in _KINDS:
        raise _unknown(f"unknown kind of target '{name}'{did_you_mean(name, _KINDS)}; known: {', '.join(sorted(_KINDS))}")
    return _KINDS[name]


def _core(attrs: Mapping[str, str], names: Collection[str]) -> tuple[Core, dict[str, str]]:
    """The core that the attributes describe, and the attributes that do not describe it."""
    unknown = [k for k in attrs if k not in names]
    if unknown:
        hint = did_you_mean(unknown[0], names)
        raise _unknown(f"unknown attribute -{unknown[0]} of a target{hint}; known: {', '.join(sorted(names))}")
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
    """The core with -mfloat-abi and -mfpu applied."""
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
    """The target, which must be of kind c (E5081): only `aot.build` calls the code generators of other kinds."""
    if target.kind is not C_KIND:
        message = f"this needs C code, but targets of kind {target.kind.name} have their own code generator: use aot.build"
        raise UsageError(Problem("E5081", message))
    return target


__all__ = ["Target", "TargetKind", "TargetOption", "find_target", "register_target_kind", "require_c", "target_kinds"]
