"""Endless requests to an everyday assistant, with a fixed split into training and held-out ones."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentrl.types import Message, ToolSpec
from agentrl_functions.data import Problem
from agentrl_functions.match import OMITTED, Wanted

Kind = Literal["single", "multiple", "parallel", "irrelevant"]
KINDS: tuple[Kind, ...] = ("single", "multiple", "parallel", "irrelevant")
HELD_OUT = 4
"""One of this many problems is held out."""
TEST_SIZE = 256

CITIES = ("Lisbon", "Oslo", "Nairobi", "Lima", "Hanoi", "Graz", "Osaka", "Dakar", "Quito", "Riga")
PEOPLE = ("Ana", "Ben", "Chen", "Dara", "Emil", "Fatima", "Goran", "Hana")
THINGS = ("milk", "rice", "soap", "nails", "candles", "tea", "onions", "paper")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
CURRENCIES = ("EUR", "USD", "JPY", "GBP", "CHF", "INR")
ARTISTS = ("Blue Harbour", "The Lanterns", "Mira Sol", "North Quarter", "Paper Kites")
NEWS = ("I am late", "dinner is ready", "the train has left", "call me back", "the key is under the mat")
SMALL_TALK = (
    "Tell me a joke about {thing}.",
    "Why is the sky over {city} blue?",
    "Write a line of verse about {thing}.",
    "Who founded the city of {city}?",
    "What does the name {person} mean?",
)

Arguments = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Function:
    """A function; `draw` makes a request for it: its text and the acceptable arguments."""

    spec: ToolSpec
    draw: Callable[[random.Random], tuple[str, Arguments]]


def problem(kinds: Sequence[Kind], rng: random.Random, held_out: bool = False) -> Problem:
    """Draw a training or held-out problem of one of these kinds."""
    while True:
        drawn = _DRAW[rng.choice(kinds)](rng)
        if (_hash(str(drawn.messages[-1]["content"])) % HELD_OUT == 0) == held_out:
            return drawn


def held_out_problems(kinds: Sequence[Kind]) -> list[Problem]:
    """Return the held-out problems of these kinds, always the same."""
    rng, found = random.Random(f"agentrl-functions/test/{','.join(sorted(kinds))}"), dict[str, Problem]()
    while len(found) < TEST_SIZE:
        drawn = problem(kinds, rng, held_out=True)
        found.setdefault(str(drawn.messages[-1]["content"]), drawn)
    return list(found.values())


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"agentrl-functions/{text}".encode()).digest()[:8], "big")


# --- the functions ----------------------------------------------------------------------------------------------


def _function(
    name: str, description: str, draw: Callable[[random.Random], tuple[str, Arguments]], **parameters: dict[str, Any]
) -> Function:
    """Return a function; a parameter with `default` may be left out."""
    schema = {
        "type": "object",
        "properties": parameters,
        "required": [key for key, parameter in parameters.items() if "default" not in parameter],
    }
    return Function(ToolSpec(name=name, description=description, parameters=schema), draw)


def _maybe(rng: random.Random, words: str, value: Any, default: Any) -> tuple[str, list[Any]]:
    """Words that appear half of the time, and the acceptable values of their argument."""
    return (words, [value]) if rng.random() < 0.5 else ("", [OMITTED, default])


def _alarm(rng: random.Random) -> tuple[str, Arguments]:
    hour, minute = rng.randint(0, 23), rng.choice((0, 5, 15, 30, 45))
    words, label = _maybe(rng, f" and call it {(thing := rng.choice(THINGS))}", thing, "")
    wanted: Arguments = {"hour": [hour], "minute": [minute], "label": label}
    return f"set an alarm for {hour:02}:{minute:02}{words}", wanted


def _money(rng: random.Random) -> tuple[str, Arguments]:
    source, target = rng.sample(CURRENCIES, 2)
    amount = rng.randint(1, 400) / 4
    wanted: Arguments = {"amount": [amount], "source": [source], "target": [target]}
    return f"convert {amount:g} {source} to {target}", wanted


def _weather(rng: random.Random) -> tuple[str, Arguments]:
    city, day = rng.choice(CITIES), rng.choice(("today", "tomorrow"))
    words, unit = _maybe(rng, " in Fahrenheit", "fahrenheit", "celsius")
    wanted: Arguments = {"city": [city], "day": [day], "unit": unit}
    return f"look up the weather in {city} {day}{words}", wanted


def _message(rng: random.Random) -> tuple[str, Arguments]:
    person, text = rng.choice(PEOPLE), rng.choice(NEWS)
    return f'send {person} the message "{text}"', {"recipient": [person], "text": [text]}


def _table(rng: random.Random) -> tuple[str, Arguments]:
    city, people, hour = rng.choice(CITIES), rng.randint(2, 12), rng.randint(12, 22)
    words, outdoors = _maybe(rng, ", outdoors", True, False)
    wanted: Arguments = {"restaurant": [f"Café {city}"], "people": [people], "hour": [hour], "outdoors": outdoors}
    return f"book a table for {people} at Café {city} at {hour} o'clock{words}", wanted


def _shopping(rng: random.Random) -> tuple[str, Arguments]:
    items = rng.sample(THINGS, rng.randint(1, 3))
    store = rng.choice(("market", "pharmacy", "hardware"))
    return f"put {', '.join(items)} on the {store} list", {"list": [store], "items": [items]}


def _music(rng: random.Random) -> tuple[str, Arguments]:
    artist, minutes = rng.choice(ARTISTS), rng.randint(5, 90)
    words, length = _maybe(rng, f" for {minutes} minutes", minutes, 60)
    return f"play {artist}{words}", {"artist": [artist], "minutes": length}


def _trains(rng: random.Random) -> tuple[str, Arguments]:
    origin, target = rng.sample(CITIES, 2)
    day = rng.choice(DAYS)
    words, seats = _maybe(rng, f" for {(count := rng.randint(2, 6))} people", count, 1)
    wanted: Arguments = {"origin": [origin], "destination": [target], "day": [day], "passengers": seats}
    return f"find trains from {origin} to {target} on {day}{words}", wanted


def _area(rng: random.Random) -> tuple[str, Arguments]:
    width, height = rng.randint(2, 60) / 2, rng.randint(2, 60) / 2
    words = f"work out the area of a rectangle that is {width:g} wide and {height:g} high"
    return words, {"width": [width], "height": [height]}


FUNCTIONS = (
    _function(
        "set_alarm", "Set an alarm.", _alarm,
        hour={"type": "integer", "description": "0 to 23"},
        minute={"type": "integer", "description": "0 to 59"},
        label={"type": "string", "description": "name of the alarm", "default": ""},
    ),
    _function(
        "convert_currency", "Convert an amount of money.", _money,
        amount={"type": "number", "description": "how much"},
        source={"type": "string", "enum": list(CURRENCIES), "description": "currency of the amount"},
        target={"type": "string", "enum": list(CURRENCIES), "description": "currency to convert to"},
    ),
    _function(
        "get_weather", "Look up the weather of a city.", _weather,
        city={"type": "string", "description": "name of the city"},
        day={"type": "string", "enum": ["today", "tomorrow"]},
        unit={"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
    ),
    _function(
        "send_message", "Send a text message.", _message,
        recipient={"type": "string", "description": "first name"},
        text={"type": "string", "description": "the message, word for word"},
    ),
    _function(
        "book_table", "Book a table in a restaurant.", _table,
        restaurant={"type": "string", "description": "its full name"},
        people={"type": "integer", "description": "how many"},
        hour={"type": "integer", "description": "0 to 23"},
        outdoors={"type": "boolean", "description": "sit outside", "default": False},
    ),
    _function(
        "add_to_list", "Add items to a shopping list.", _shopping,
        list={"type": "string", "enum": ["market", "pharmacy", "hardware"]},
        items={"type": "array", "items": {"type": "string"}, "description": "what to buy, in the order named"},
    ),
    _function(
        "play_music", "Play an artist.", _music,
        artist={"type": "string", "description": "name of the artist"},
        minutes={"type": "integer", "description": "how long", "default": 60},
    ),
    _function(
        "find_trains", "Find trains between two cities.", _trains,
        origin={"type": "string", "description": "city of departure"},
        destination={"type": "string", "description": "city of arrival"},
        day={"type": "string", "enum": list(DAYS)},
        passengers={"type": "integer", "description": "how many", "default": 1},
    ),
    _function(
        "rectangle_area", "Compute the area of a rectangle.", _area,
        width={"type": "number"}, height={"type": "number"},
    ),
)  # fmt: skip


# --- the kinds --------------------------------------------------------------------------------------------------


def _ask(kind: Kind, rng: random.Random, offered: Sequence[Function], chosen: Sequence[Function]) -> Problem:
    """Return a request for the chosen functions, each in different words; those that are not offered are not wanted."""
    drawn = [(function, *function.draw(rng)) for function in chosen]
    if len({words for _, words, _ in drawn}) < len(drawn):
        return _ask(kind, rng, offered, chosen)
    text = f"Please {', and '.join(words for _, words, _ in drawn)}."
    wanted = [Wanted(function.spec["name"], arguments) for function, _, arguments in drawn if function in offered]
    return _pose(kind, text, offered, wanted)


def _pose(kind: Kind, text: str, offered: Sequence[Function], wanted: Sequence[Wanted] = ()) -> Problem:
    specs = tuple(function.spec for function in offered)
    return Problem(f"{kind}/{text}", (Message(role="user", content=text),), specs, tuple(wanted))


def _single(rng: random.Random) -> Problem:
    chosen = rng.choice(FUNCTIONS)
    return _ask("single", rng, [chosen], [chosen])


def _multiple(rng: random.Random) -> Problem:
    offered = rng.sample(FUNCTIONS, rng.randint(2, 5))
    return _ask("multiple", rng, offered, [rng.choice(offered)])


def _parallel(rng: random.Random) -> Problem:
    offered = rng.sample(FUNCTIONS, rng.randint(1, 3))
    return _ask("parallel", rng, offered, [rng.choice(offered) for _ in range(rng.randint(2, 3))])


def _irrelevant(rng: random.Random) -> Problem:
    *offered, other = rng.sample(FUNCTIONS, rng.randint(2, 4))
    if rng.random() < 0.7:
        return _ask("irrelevant", rng, offered, [other])
    names = {"thing": rng.choice(THINGS), "city": rng.choice(CITIES), "person": rng.choice(PEOPLE)}
    return _pose("irrelevant", rng.choice(SMALL_TALK).format(**names), offered)


_DRAW: dict[Kind, Callable[[random.Random], Problem]] = {
    "single": _single, "multiple": _multiple, "parallel": _parallel, "irrelevant": _irrelevant,
}  # fmt: skip
