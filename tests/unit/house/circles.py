"""Import circles: files or rooms each of which imports, over the others, itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.unit.house.source import Modules, Source

Graph = Mapping[str, set[str]]


def file_graph(files: list[Source]) -> Graph:
    """What each module imports of ours, in whatever place: at the top, for types alone, in a function."""
    modules = Modules(files)
    return {
        file.module: {modules.target(i) for i in file.imports if str(i) != "agentrl.__version__"} - {"", file.module}
        for file in files
    }


def room_graph(files: list[Source]) -> Graph:
    """What each room imports, by the imports of its files."""
    room_of = {file.module: file.room for file in files}
    graph: dict[str, set[str]] = {room: set() for room in room_of.values()}
    for module, targets in file_graph(files).items():
        graph[room_of[module]] |= {room_of[target] for target in targets} - {room_of[module]}
    return graph


def circles(graph: Graph) -> set[frozenset[str]]:
    """The strongly connected components with more than one member."""
    reached = {node: _reached(graph, node) for node in graph}
    return {frozenset(m for m in reached[node] if node in reached[m]) for node in graph if node in reached[node]}


def _reached(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    ahead: Iterable[str] = graph[start]
    while ahead := set(ahead) - found:
        found |= ahead
        ahead = {target for node in ahead for target in graph[node]}
    return found


def circle_violations(files: list[Source]) -> set[frozenset[str]]:
    """Circles of files and of rooms."""
    return circles(file_graph(files)) | circles(room_graph(files))
