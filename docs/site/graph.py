# SPDX-License-Identifier: Apache-2.0
"""Draw a directed graph as SVG: layers from left to right, in the colours of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from itertools import pairwise

Edges = Mapping[str, set[str]]
"""Each node with those that come after it."""

CHARACTER, HIGH = 7.4, 34
"""Width of a letter and height of a box, in pixels."""

GAP_X, GAP_Y = 34, 14
"""Space between two layers, and between two boxes of one, in pixels."""


def reduced(edges: Edges) -> dict[str, set[str]]:
    """Return the edges without those that a longer way makes needless.

    :param edges: without a cycle.
    """
    reach: dict[str, set[str]] = {}

    def after(node: str) -> set[str]:
        if node not in reach:
            reach[node] = set(edges[node]).union(*(after(follower) for follower in edges[node]))
        return reach[node]

    return {node: {b for b in found if not any(b in after(a) for a in found - {b})} for node, found in edges.items()}


def layers_of(edges: Edges) -> list[list[str]]:
    """Return the nodes by the length of the longest way to them.

    :param edges: without a cycle.
    """
    depth = dict.fromkeys(edges, 0)
    for _ in edges:
        for node, found in edges.items():
            for follower in found:
                depth[follower] = max(depth[follower], depth[node] + 1)
    return [[node for node in edges if depth[node] == level] for level in range(max(depth.values(), default=-1) + 1)]


def _straight(edges: Edges) -> tuple[dict[str, set[str]], list[list[str]]]:
    """Put a point without a box into each layer that an edge skips, so that none runs through a box."""
    layers = layers_of(edges)
    level = {node: number for number, layer in enumerate(layers) for node in layer}
    full: dict[str, set[str]] = {node: set() for node in edges}
    for node, found in edges.items():
        for follower in sorted(found):
            way = [f"{node}\n{follower}\n{number}" for number in range(level[node] + 1, level[follower])]
            for number, point in enumerate(way, start=level[node] + 1):
                layers[number].append(point)
                full[point] = set()
            for start, end in pairwise([node, *way, follower]):
                full[start].add(end)
    return full, layers


def _sorted(edges: Edges, layers: list[list[str]]) -> list[list[str]]:
    """Order each layer by where its predecessors are."""
    done = layers[:1]
    for layer in layers[1:]:
        rank = {node: number for number, node in enumerate(done[-1])}

        def middle(node: str, rank: dict[str, int] = rank) -> float:
            before = [place for other, place in rank.items() if node in edges[other]]
            return sum(before) / len(before) if before else 0.0

        done.append(sorted(layer, key=middle))
    return done


def svg(edges: Edges, title: str, labels: Mapping[str, str], styles: Mapping[str, str]) -> str:
    """Return the picture.

    :param edges: without a cycle.
    :param title: read to those who cannot see it.
    :param labels: what stands in a box, if not the name of the node.
    :param styles: CSS classes of a box, by node.
    """
    full, layers = _straight(reduced(edges))
    layers = _sorted(full, layers)
    height = max(len(layer) for layer in layers) * (HIGH + GAP_Y) + GAP_Y
    boxes: dict[str, tuple[float, float, float]] = {}
    x = 8.0
    for layer in layers:
        width = max(len(labels.get(node, node)) * CHARACTER + 20 if node in edges else 0 for node in layer)
        top = (height - len(layer) * (HIGH + GAP_Y) + GAP_Y) / 2
        boxes |= {node: (x, top + number * (HIGH + GAP_Y), width) for number, node in enumerate(layer)}
        x += width + GAP_X
    parts = [
        _edge(boxes[node], boxes[after], after in edges) for node, found in full.items() for after in sorted(found)
    ]
    parts += [_box(boxes[node], labels.get(node, node), styles.get(node, "")) for node in edges]
    width = x - GAP_X + 8
    head = f'<svg class="graph" role="img" aria-label="{escape(title)}" width="{width:.0f}" height="{height:.0f}"'
    return f'<div class="graph" tabindex="0">{head} viewBox="0 0 {width:.0f} {height:.0f}">{"".join(parts)}</svg></div>'


def _box(place: tuple[float, float, float], label: str, style: str) -> str:
    x, y, width = place
    box = f'<rect class="{style}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{HIGH}" rx="5"/>'
    return f'{box}<text x="{x + width / 2:.0f}" y="{y + HIGH / 2 + 5:.0f}" text-anchor="middle">{escape(label)}</text>'


def _edge(start: tuple[float, float, float], end: tuple[float, float, float], arrives: bool) -> str:
    x1, y1, x2, y2 = start[0] + start[2], start[1] + HIGH / 2, end[0], end[1] + HIGH / 2
    through = f" H{end[0] + end[2]:.0f}" if not arrives else ""
    bend = (x1 + x2) / 2
    line = f'<path fill="none" stroke="currentColor" d="M{x1:.0f} {y1:.0f} C{bend:.0f} {y1:.0f} {bend:.0f} {y2:.0f} '
    head = f'<path fill="currentColor" d="M{x2:.0f} {y2:.0f} l-7 -4 v8 z"/>' if arrives else ""
    return f'{line}{x2:.0f} {y2:.0f}{through}"/>{head}'


def from_text(lines: Iterable[str]) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Read a flowchart as GitHub shows it: chains of ``a --> b["label"]``.

    :param lines: of the flowchart.
    :return: edges and labels.
    """
    edges: dict[str, set[str]] = {}
    labels: dict[str, str] = {}
    for line in lines:
        names = []
        for part in line.split("-->"):
            name, bracket, label = part.strip().partition("[")
            names.append(name)
            edges.setdefault(name, set())
            if bracket:
                labels[name] = label.strip('"]')
        for node, after in pairwise(names):
            edges[node].add(after)
    return edges, labels
