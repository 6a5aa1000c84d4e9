"""A small fictional world, always the same: its encyclopedia, and every question about it with a number of hops."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from agentrl_tools import Document

from agentrl_search.data import Question

Kind = Literal["person", "company", "town", "river", "value"]
SIZES: dict[Kind, int] = {"person": 60, "company": 25, "town": 40, "river": 18}
SYLLABLES = (
    "ba",
    "den",
    "fo",
    "gar",
    "hil",
    "jo",
    "kan",
    "lum",
    "mir",
    "nor",
    "ost",
    "pel",
    "qui",
    "ras",
    "tov",
    "vel",
)
GOODS = ("clocks", "ropes", "lamps", "bells", "maps", "kites", "stoves", "violins", "barrels", "mirrors")
SEAS = ("Amber Sea", "Gulf of Reeds", "Northern Strait", "Sea of Tiles", "Grey Ocean")


@dataclass(frozen=True)
class Relation:
    """A relation of entities: its name in questions, its sentence in the encyclopedia, and the kinds it connects."""

    subject: Kind
    name: str
    sentence: str
    object: Kind


RELATIONS = (
    Relation("person", "birthplace", "{s} was born in {o}.", "town"),
    Relation("person", "employer", "{s} works for {o}.", "company"),
    Relation("person", "teacher", "The teacher of {s} was {o}.", "person"),
    Relation("person", "birth year", "The year of birth is {o}.", "value"),
    Relation("company", "founder", "{s} was founded by {o}.", "person"),
    Relation("company", "home town", "{s} has its seat in {o}.", "town"),
    Relation("company", "main product", "It is known for its {o}.", "value"),
    Relation("town", "mayor", "The mayor of {s} is {o}.", "person"),
    Relation("town", "river", "{s} lies on the {o}.", "river"),
    Relation("town", "founding year", "The town was founded in {o}.", "value"),
    Relation("river", "length in kilometres", "The {s} is {o} kilometres long.", "value"),
    Relation("river", "mouth", "It flows into the {o}.", "value"),
)


@dataclass(frozen=True)
class World:
    """Every entity with its kind, and every fact."""

    kinds: dict[str, Kind]
    facts: dict[tuple[str, Relation], str]


@cache
def world() -> World:
    """Return the world, drawn from a fixed seed."""
    rng = random.Random("agentrl-search/world/1")
    names = _names(rng)
    kinds: dict[str, Kind] = {}
    for kind, size in SIZES.items():
        for _ in range(size):
            first = next(names)
            kinds[f"{first} {next(names)}" if kind == "person" else _FORMS[kind].format(first)] = kind
    members = {kind: [name for name, its in kinds.items() if its == kind] for kind in SIZES}
    facts = {
        (name, relation): _drawn(rng, relation, name, members)
        for name, kind in kinds.items()
        for relation in RELATIONS
        if relation.subject == kind
    }
    return World(kinds, facts)


_FORMS: dict[Kind, str] = {"company": "{} & Sons", "town": "{}", "river": "{} River"}


def _names(rng: random.Random) -> Iterator[str]:
    seen = set[str]()
    while True:
        name = "".join(rng.sample(SYLLABLES, 3)).capitalize()
        if name not in seen:
            seen.add(name)
            yield name


def _drawn(rng: random.Random, relation: Relation, name: str, members: dict[Kind, list[str]]) -> str:
    if relation.object != "value":
        return rng.choice([other for other in members[relation.object] if other != name])
    match relation.name:
        case "main product":
            return rng.choice(GOODS)
        case "mouth":
            return rng.choice(SEAS)
        case "length in kilometres":
            return str(rng.randint(40, 900))
        case _:
            return str(rng.randint(1200, 1990))


def library(hops: int) -> tuple[tuple[Question, ...], list[Document]]:
    """Return the questions with this number of hops, and the encyclopedia."""
    return questions(hops), documents()


def documents() -> list[Document]:
    """Return one document for each entity: its facts."""
    here = world()
    return [
        Document(
            name, " ".join(r.sentence.format(s=name, o=here.facts[name, r]) for r in RELATIONS if r.subject == kind)
        )
        for name, kind in here.kinds.items()
    ]


@cache
def questions(hops: int) -> tuple[Question, ...]:
    """Return every question that needs the documents of `hops` different entities."""
    here = world()
    return tuple(question for name in here.kinds for question in _from(here, name, hops, f"{name}", (name,)))


def _from(here: World, name: str, hops: int, phrase: str, seen: tuple[str, ...]) -> Iterator[Question]:
    for relation in RELATIONS:
        if relation.subject != here.kinds[name]:
            continue
        value, noun = here.facts[name, relation], f"the {relation.name} of {phrase}"
        if hops == 1:
            yield Question(noun, f"What is {noun}?", (value,), seen)
        elif relation.object != "value" and value not in seen:
            yield from _from(here, value, hops - 1, noun, (*seen, value))
