"""The dataclass whose methods are made when they are called, against the standard one."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import asdict, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from aot.support.dataclass import dataclass, late_dataclass

Decorator = Callable[..., Callable[[type], type]]


def make_point(decorator: Decorator, **options: Any) -> Any:
    @decorator(slots=True, **options)
    class Point:
        """A point."""

        KIND: ClassVar[str] = "flat"
        x: int
        y: int = 2
        names: dict[str, int] = field(default_factory=dict)
        label: str = field(default="p", compare=False, repr=False)
        norm: int = field(default=7, init=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

    return Point


OPTIONS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"frozen": True, "eq": False},
    {"frozen": True, "repr": False},
    {"frozen": True, "kw_only": True},
    {"eq": False},
]


def seen(cls: Any) -> dict[str, Any]:
    """What can be said about a class and some objects of it, without their addresses."""
    a, b = cls(x=1), cls(x=1, label="q")
    a_hash: object
    try:
        a_hash = hash(cls(x=3, names=())) == hash(cls(x=3, names=(), label="r"))
    except TypeError:
        a_hash = "none"
    return {
        "equal": (a == b, a != b, a == cls(x=2), a == 1),
        "hash": a_hash,
        "repr": repr(a) if cls.__repr__ is not object.__repr__ else "none",
        "fields": [(f.name, f.type, f.default, f.default_factory, f.init, f.compare, f.kw_only) for f in fields(cls)],
        "dict": asdict(a),
        "changed": asdict(replace(a, y=9)),
        "is": (is_dataclass(cls), is_dataclass(a)),
        "signature": str(inspect.signature(cls)),
        "match": cls.__match_args__,
        "slots": cls.__slots__,
        "copied": asdict(copy.deepcopy(a)),
        "apart": a.names is not b.names,
        "kind": cls.KIND,
    }


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_is_the_standard_one_to_all_who_look(options: dict[str, bool]) -> None:
    assert seen(make_point(late_dataclass, **options)) == seen(make_point(dataclasses.dataclass, **options))


@pytest.mark.parametrize("decorator", [late_dataclass, dataclasses.dataclass])
def test_frozen(decorator: Decorator) -> None:
    point = make_point(decorator, frozen=True)(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 3
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert point.x == 1
    with pytest.raises(ValueError, match="negative"):
        replace(point, x=-1)


@pytest.mark.parametrize("decorator", [late_dataclass, dataclasses.dataclass])
def test_arguments_are_checked(decorator: Decorator) -> None:
    cls = make_point(decorator, frozen=True)
    for arguments, message in (((), "missing 1 required positional argument: 'x'"), ((1, 2, {}, "l", 5), "takes from 2 to 5")):
        with pytest.raises(TypeError, match=rf"Point.__init__\(\) {message}"):
            cls(*arguments)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        cls(1, z=3)


@pytest.mark.parametrize("base", [late_dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("derived", [late_dataclass, dataclasses.dataclass])
def test_both_inherit_from_each_other(base: Decorator, derived: Decorator) -> None:
    @base(frozen=True, slots=True)
    class Base:
        a: int
        b: int = 1

    @derived(frozen=True, slots=True)
    class Derived(Base):
        b: int = 5
        c: tuple[int, ...] = ()

    one: Any = Derived(1, c=(2,))  # type: ignore[call-arg]
    assert (one.a, one.b, one.c) == (1, 5, (2,))
    assert repr(one).endswith("Derived(a=1, b=5, c=(2,))")
    assert one == Derived(1, 5, (2,)) != Base(1, 5)  # type: ignore[call-arg]
    assert len({one, Derived(1, 5, (2,))}) == 1  # type: ignore[call-arg]


def test_a_class_derived_by_hand_has_attributes_of_its_own() -> None:
    class ByHand(Kept):
        def __init__(self, extra: int) -> None:
            super().__init__(extra)
            self.extra = extra

    one = ByHand(4)
    assert (one.extra, one.a) == (4, 4)
    for name, owner in (("a", one), ("other", Kept(1))):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(owner, name, 1)


@dataclass(frozen=True, slots=True)
class Kept:
    """At the top level, as pickle wants it."""

    a: int
    deep: Kept | None = None


def test_pickled() -> None:
    one = Kept(1, Kept(2))
    assert pickle.loads(pickle.dumps(one)) == one


def test_repr_of_one_that_holds_itself() -> None:
    one = Kept(1)
    object.__setattr__(one, "deep", one)
    assert repr(one) == "Kept(a=1, deep=...)"


def test_methods_are_made_once_and_only_where_no_other_took_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    cls = make_point(late_dataclass, frozen=True)
    stand_in = cls.__init__
    cls(1)
    assert cls.__init__ is not stand_in
    made = cls.__init__
    cls(2)
    assert cls.__init__ is made

    other = make_point(late_dataclass, frozen=True)
    first, calls = other.__init__, []

    def counted(self: object, *args: object) -> None:
        calls.append(args)
        first(self, *args)

    monkeypatch.setattr(other, "__init__", counted)
    assert [other(1).x, other(2).x] == [1, 2]
    assert calls == [(1,), (2,)]


def test_methods_of_the_class_itself_stay() -> None:
    @late_dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "own"

    one: Any = Own(1)  # type: ignore[call-arg]
    assert (one == 3, hash(one), repr(one)) == (True, 5, "own")


def test_what_needs_the_standard_one_is_refused() -> None:
    def late(annotation: str, value: object = dataclasses.MISSING) -> None:
        members: dict[str, Any] = {"__annotations__": {"a": annotation}}
        if value is not dataclasses.MISSING:
            members["a"] = value
        late_dataclass(slots=True)(type("Late", (), members))

    with pytest.raises(ValueError, match="mutable default <class 'list'> for field a"):
        late("list[int]", [])
    with pytest.raises(TypeError, match=r"Late\.a: InitVar"):
        late("InitVar[int]")
